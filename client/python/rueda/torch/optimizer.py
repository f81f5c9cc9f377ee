# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: averages gradients over all ranks before each step of an optimizer.

The wrapped optimizer is an instance of the user's own class, so that learning-rate schedulers and
`isinstance` work. One thread at a time, as with any torch optimizer.
"""

import contextlib
import warnings

import torch

import rueda
from rueda import _session, check_process_set
from rueda.torch._tensors import reduce_op, scales
from rueda.torch.compression import Compression
from rueda.torch.reducer import GradientReducer, Settings

_TORCH_2 = int(torch.__version__.split('.')[0]) >= 2


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=rueda.Average,
                         gradient_predivide_factor=1.0, num_groups=0, groups=None,
                         sparse_as_dense=False, process_set=None):
    """Wraps `optimizer`; step() of the result first reduces the gradients over all ranks.

    `named_parameters`: pairs (name, parameter) of all parameters, e.g. model.named_parameters();
    names show up in messages. `compression`: Compression.fp16 halves the bytes.
    `backward_passes_per_step`: gradients are accumulated that often before they are reduced.
    `op`: Average or Sum (also Min, Max, Product). `gradient_predivide_factor` f: gradients are
    divided by f before the sum and multiplied after it. `groups`: number of groups, or lists of
    parameters that are reduced together. `sparse_as_dense`: sparse gradients become dense first.

    Optimizers must be made in the same order on all ranks. Gradients may move into memory of the
    package, so keep `parameter.grad`, not a copy of its address. ValueError: wrong arguments.
    """
    check_process_set(process_set)
    op = reduce_op(None, op)
    _session.topology()
    if backward_passes_per_step <= 0:
        raise ValueError('backward_passes_per_step must be > 0')
    if gradient_predivide_factor != 1.0 and op != rueda.Average:
        raise ValueError('gradient_predivide_factor not supported with op != Average')
    if num_groups:
        warnings.warn('the argument num_groups is deprecated; use groups', DeprecationWarning,
                      stacklevel=2)
        groups = num_groups if groups is None else groups
    names = _names(optimizer, named_parameters)
    factors = scales(1.0 / gradient_predivide_factor, gradient_predivide_factor)
    reducer = GradientReducer(Settings(op, factors, compression, sparse_as_dense),
                              backward_passes_per_step)
    trained = [(name, parameter) for parameter, name in names.items() if parameter.requires_grad]
    reducer.add(trained, _groups(groups, [parameter for _, parameter in trained], names))
    kind = type(optimizer)
    wrapper = type(kind.__name__, (_Distributed, kind), {'__module__': kind.__module__})
    wrapped = wrapper.__new__(wrapper)
    # All of the optimizer's own state is shared, whatever its class keeps. A scheduler that was
    # made before may have put a `step` of the unwrapped optimizer there, which must not win.
    wrapped.__dict__.update(optimizer.__dict__)
    wrapped.__dict__.pop('step', None)
    wrapped._reducer = reducer
    wrapped._parameter_names = names
    wrapped._synchronized = False
    wrapped._should_synchronize = True
    return wrapped


class _Distributed:
    """What is put in front of the user's optimizer class."""

    def step(self, closure=None):
        """Reduces the gradients, then takes a step of the user's optimizer. Blocking.

        With a closure the gradients are reduced after each evaluation of it.
        """
        if not self._should_synchronize or rueda.size() == 1:
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
        if rueda.size() > 1:
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

    @contextlib.contextmanager
    def no_sync(self):
        """Inside this context backward only accumulates: no pass is counted or reduced."""
        before, self._reducer.paused = self._reducer.paused, True
        try:
            yield
        finally:
            self._reducer.paused = before

    def zero_grad(self, set_to_none=_TORCH_2):
        """Clears gradients. Small ones that the package reduces stay where they are, as zeros.

        AssertionError between backward and step() or synchronize(), where it would race with the
        reduction.
        """
        if self._reducer.under_way:
            raise AssertionError(
                'optimizer.zero_grad() was called after loss.backward() but before '
                'optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause '
                'a race condition.')
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

    def set_backward_passes_per_step(self, passes):
        """Sets how often gradients are accumulated before they are reduced."""
        if passes <= 0:
            raise ValueError('backward_passes_per_step must be > 0')
        self._reducer.set_passes(passes)

    def add_param_group(self, param_group):
        """Adds parameters; on all ranks the same, and not between backward and step()."""
        if self._reducer.under_way:
            raise AssertionError('optimizer.add_param_group() was called between loss.backward() '
                                 'and optimizer.step()')
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = [(f'noname.{number}.{index}', parameter)
                 for index, parameter in enumerate(self.param_groups[-1]['params'])]
        self._parameter_names.update((parameter, name) for name, parameter in added)
        self._reducer.add([pair for pair in added if pair[1].requires_grad])


def _names(optimizer, named_parameters):
    """Names by parameter for all parameters of the optimizer. ValueError: T43-style faults."""
    if named_parameters is None:
        return {parameter: f'noname.{group}.{index}'
                for group, parameters in enumerate(optimizer.param_groups)
                for index, parameter in enumerate(parameters['params'])}
    named_parameters = list(named_parameters)
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
               and isinstance(pair[1], torch.Tensor) for pair in named_parameters):
        raise ValueError('named_parameters should be a sequence of tuples (name, parameter), '
                         'usually produced by model.named_parameters().')
    names = [name for name, _ in named_parameters]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError('Parameter names in named_parameters must be unique. Found duplicates: '
                         + ', '.join(repeated))
    result = {parameter: name for name, parameter in named_parameters}
    unnamed = sum(parameter not in result for group in optimizer.param_groups
                  for parameter in group['params'])
    if unnamed:
        raise ValueError('named_parameters was specified, but one or more model parameters were '
                         f'not named: {unnamed} parameters of the optimizer.')
    own = {id(parameter) for group in optimizer.param_groups for parameter in group['params']}
    return {parameter: name for parameter, name in result.items() if id(parameter) in own}


def _groups(groups, trained, names):
    """Explicit lists of parameters from the argument `groups`. ValueError for other things."""
    if groups is None or isinstance(groups, bool):
        groups = groups or 0
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError('groups should be a non-negative integer or a list of list of '
                             f'torch.Tensor, not {groups}')
        count = min(groups, len(trained))
        return [trained[len(trained) * index // count:len(trained) * (index + 1) // count]
                for index in range(count)]
    if not (isinstance(groups, (list, tuple))
            and all(isinstance(group, (list, tuple)) for group in groups)):
        raise ValueError('groups should be a non-negative integer or a list of list of '
                         f'torch.Tensor, not {type(groups).__name__}')
    seen = set()
    for parameter in (parameter for group in groups for parameter in group):
        if not isinstance(parameter, torch.Tensor) or parameter not in names:
            raise ValueError('groups must consist of lists of parameters of the optimizer')
        if parameter in seen:
            raise ValueError(f'parameter {names[parameter]} is in groups more than once')
        seen.add(parameter)
    known = set(trained)
    return [[parameter for parameter in group if parameter in known] for group in groups]
