# SPDX-License-Identifier: Apache-2.0
"""Tells an object of each accumulation into the gradient of a parameter.

Hooks run in the thread that runs backward.
"""

import weakref

_TOO_MANY_PASSES = (
    'Gradients were computed more than backward_passes_per_step times before call to step(). '
    'Increase backward_passes_per_step to accumulate gradients locally. (rueda: parameter {}.)')


class GradientHooks:
    """Hooks that call `listener.on_gradient(slot)` while the listener lives.

    Owned by the listener, to which they refer weakly; they go when it has gone.
    """

    def __init__(self, listener):
        self._listener = weakref.ref(listener)
        self._handles = []
        weakref.finalize(listener, _remove, self._handles).atexit = False

    def watch(self, slot):
        """Begins to tell of `slot.parameter`."""
        listener = self._listener

        def on_accumulated(*ignored):
            target = listener()
            if target is not None:
                target.on_gradient(slot)

        self._handles.append(_hook(slot.parameter, on_accumulated))


def count_pass(slot):
    """Counts one backward pass. AssertionError when there are more than were announced."""
    if slot.passes_left <= 0:
        raise AssertionError(_TOO_MANY_PASSES.format(slot.name))
    slot.passes_left -= 1


def _remove(handles):
    for handle, _ in handles:
        handle.remove()


def _hook(parameter, function):
    """Returns (removable handle, object to keep alive with it)."""
    if hasattr(parameter, 'register_post_accumulate_grad_hook'):  # torch >= 2.1
        return parameter.register_post_accumulate_grad_hook(function), None
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return accumulator.register_hook(function), accumulator
