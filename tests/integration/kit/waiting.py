# SPDX-License-Identifier: Apache-2.0
"""Waiting for what has no event: a condition is asked again until it holds or time is over."""

import time

_ASK_AGAIN = 0.002


class TooLate(AssertionError):
    """A condition did not come true in time."""


def until(condition, seconds, what):
    """Returns the first true value of `condition()`. Raises TooLate naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise TooLate(f'not within {seconds} s: {said}')
        time.sleep(_ASK_AGAIN)
