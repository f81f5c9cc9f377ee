# SPDX-License-Identifier: Apache-2.0
"""Catches a step of an optimizer that has been wrapped, taken with gradients of one rank only."""

import functools
import types
import weakref


def guard_unwrapped(optimizer, reducer):
    """Makes `optimizer.step()` raise RuntimeError while `reducer` has gradients to reduce.

    Such a step would move the parameters of each rank elsewhere, and nothing would tell. `reducer`
    has outstanding(); once it has gone, step() is as before.
    """
    step, watched = optimizer.step, weakref.ref(reducer)
    # A bound method of the class or of a scheduler: the optimizer must not keep itself alive.
    function = getattr(step, '__func__', None)

    @functools.wraps(function or step)
    def guarded(self, *arguments, **options):
        target = watched()
        name = target and target.outstanding()
        if name is not None:
            raise RuntimeError(
                f'step() of an optimizer that DistributedOptimizer has wrapped, while the gradient '
                f'of {name} waits to be reduced: ranks would drift apart. Call step() of the '
                'optimizer that DistributedOptimizer returned.')
        return function(self, *arguments, **options) if function else step(*arguments, **options)

    optimizer.step = types.MethodType(guarded, optimizer)
