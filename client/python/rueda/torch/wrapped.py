# SPDX-License-Identifier: Apache-2.0
"""What all distributed optimizers share: an instance of the user's class with ours in front.

One thread at a time, as with any torch optimizer.
"""

import contextlib

from rueda.torch.unwrapped import guard_unwrapped


def wrapped(front, optimizer, names, reducer):
    """An optimizer that shares all state of `optimizer`; `front` is a subclass of Wrapped.

    `names` by parameter. `reducer` does what step() adds; see the members that Wrapped uses.
    """
    kind = type(optimizer)
    made = type(kind.__name__, (front, kind), {'__module__': kind.__module__})
    result = made.__new__(made)
    # Whatever the user's class keeps. A scheduler that was made before may have put a `step` of the
    # unwrapped optimizer there, which must not win.
    result.__dict__.update(optimizer.__dict__)
    result.__dict__.pop('step', None)
    result._reducer = reducer
    result._parameter_names = names
    guard_unwrapped(optimizer, reducer)
    return result


class Wrapped:
    """What is put in front of the user's optimizer class, but for step()."""

    @contextlib.contextmanager
    def no_sync(self):
        """Inside this context backward only accumulates: no pass is counted or reduced."""
        before, self._reducer.paused = self._reducer.paused, True
        try:
            yield
        finally:
            self._reducer.paused = before

    def set_backward_passes_per_step(self, passes):
        """Sets how often gradients are accumulated before they are reduced."""
        if passes <= 0:
            raise ValueError('backward_passes_per_step must be > 0')
        self._reducer.set_passes(passes)

    def zero_grad(self, *arguments, **options):
        """Clears gradients. AssertionError between backward and step()."""
        self._check_between_steps('zero_grad')
        super().zero_grad(*arguments, **options)

    def add_param_group(self, param_group):
        """Adds parameters; on all ranks the same, and not between backward and step()."""
        self._check_between_steps('add_param_group')
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = [(f'noname.{number}.{index}', parameter)
                 for index, parameter in enumerate(self.param_groups[-1]['params'])]
        self._parameter_names.update((parameter, name) for name, parameter in added)
        self._reducer.add([pair for pair in added if pair[1].requires_grad])

    # What ends a step, for messages.
    _ends = 'optimizer.step()'

    def _check_between_steps(self, call):
        if self._reducer.under_way:
            raise AssertionError(
                f'optimizer.{call}() was called after loss.backward() but before {self._ends}. '
                'This is prohibited as it can cause a race condition. (A loss of another network '
                'that runs back through these parameters counts too: call it inside '
                'optimizer.no_sync(), or with loss.backward(inputs=...).)')
