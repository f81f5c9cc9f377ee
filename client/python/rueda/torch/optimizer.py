# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: averages gradients over all ranks before each step of an optimizer.

The wrapped optimizer is an instance of the user's own class, so that learning-rate schedulers and
`isinstance` work. One thread at a time, as with any torch optimizer.
"""

import contextlib
import warnings

import torch

import rueda
from rueda import _session
from rueda.process_sets import check_process_set, global_process_set
from rueda.torch import adasum_optimizer
from rueda.torch._tensors import reduce_op, scales
from rueda.torch.compression import Compression
from rueda.torch.optimizer_arguments import groups_of, names_of
from rueda.torch.reducer import GradientReducer
from rueda.torch.settings import Settings
from rueda.torch.wrapped import Wrapped, wrapped

_TORCH_2 = int(torch.__version__.split('.')[0]) >= 2


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=rueda.Average,
                         gradient_predivide_factor=1.0, num_groups=0, groups=None,
                         sparse_as_dense=False, process_set=global_process_set, nan_guard=False):
    """Wraps `optimizer`; step() of the result first reduces the gradients over all ranks.

    `named_parameters`: pairs (name, parameter) of all parameters, e.g. model.named_parameters();
    names show up in messages. `compression`: Compression.fp16 or bf16 halves the bytes.
    `backward_passes_per_step`: gradients are accumulated that often before they are reduced.
    `op`: Average or Sum (also Min, Max, Product), or Adasum, see adasum_optimizer.py.
    `gradient_predivide_factor` f: gradients are divided by f before the sum and multiplied after
    it. `groups`: number of groups, or lists of parameters that are reduced together.

    Sparse gradients (nn.Embedding(sparse=True)) stay sparse: the rows that any rank has touched are
    reduced, and `.grad` becomes a coalesced sparse tensor of them on all ranks. Where the result
    for one parameter would take more than RUEDA_SPARSE_LIMIT_BYTES (1 GiB), all ranks raise
    ResourceExhaustedError. `sparse_as_dense`: sparse gradients become dense first.

    `nan_guard` (or RUEDA_NAN_GUARD=1): a gradient with NaN or infinity makes step() raise
    FloatingPointError on all ranks, which names it and the rank that had it first.

    Optimizers must be made in the same order on all ranks. Gradients may move into memory of the
    package, so keep `parameter.grad`, not a copy of its address. A process outside of `process_set`
    gets an optimizer that trains alone. ValueError: wrong arguments.
    """
    _session.topology()
    check_process_set(process_set)
    op = reduce_op(None, op)
    if backward_passes_per_step <= 0:
        raise ValueError('backward_passes_per_step must be > 0')
    if gradient_predivide_factor != 1.0 and op != rueda.Average:
        raise ValueError('gradient_predivide_factor not supported with op != Average')
    if num_groups:
        warnings.warn('the argument num_groups is deprecated; use groups', DeprecationWarning,
                      stacklevel=2)
        groups = num_groups if groups is None else groups
    names = names_of(optimizer, named_parameters)
    factors = scales(1.0 / gradient_predivide_factor, gradient_predivide_factor)
    settings = Settings(op, factors, compression, sparse_as_dense, process_set, nan_guard)
    if op == rueda.Adasum and settings.active:
        return adasum_optimizer.wrap(optimizer, names, settings, backward_passes_per_step)
    reducer = GradientReducer(settings, backward_passes_per_step)
    trained = [(name, parameter) for parameter, name in names.items() if parameter.requires_grad]
    reducer.add(trained, groups_of(groups, [parameter for _, parameter in trained], names))
    result = wrapped(_Distributed, optimizer, names, reducer)
    result._synchronized = False
    result._should_synchronize = True
    return result


class _Distributed(Wrapped):
    """Reduces gradients in front of the user's optimizer class."""

    _ends = 'optimizer.step() or optimizer.synchronize()'

    def step(self, closure=None):
        """Reduces the gradients, then takes a step of the user's optimizer. Blocking.

        With a closure the gradients are reduced after each evaluation of it.
        """
        if not self._should_synchronize or not self._reducer.active:
            self._synchronized = False
            return super().step() if closure is None else super().step(closure)
        if self._synchronized:
            warnings.warn(
                'optimizer.step() called without optimizer.skip_synchronize() context after '
                'optimizer.synchronize(). The gradients are reduced a second time. Write: '
                'with optimizer.skip_synchronize(): optimizer.step()')
        if closure is None:
            self.synchronize()
            self._synchronized = False
            return super().step()

        def reduced_closure():
            loss = closure()
            self.synchronize()
            self._synchronized = False
            return loss

        return super().step(reduced_closure)

    # torch wraps `step` of a class in its hooks unless this says that it has: the user's class is
    # wrapped already, and hooks must run once.
    step.hooked = True

    def synchronize(self):
        """Reduces all gradients now, e.g. before clipping them; missing ones count as zeros.

        Take the step inside skip_synchronize() then. Blocks until all ranks have done the same.
        """
        if self._reducer.active:
            self._reducer.synchronize()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Inside this context step() does not reduce: synchronize() was called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def zero_grad(self, set_to_none=_TORCH_2):
        """Clears gradients. Small ones that the package reduces stay where they are, as zeros.

        AssertionError between backward and step() or synchronize(), where it would race with the
        reduction.
        """
        self._check_between_steps('zero_grad')
        cleared = self._reducer.zero(set_to_none)
        for group in self.param_groups:
            for parameter in group['params']:
                if parameter.grad is None or parameter in cleared:
                    continue
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad.detach_()
                    parameter.grad.zero_()
