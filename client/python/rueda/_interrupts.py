# SPDX-License-Identifier: Apache-2.0
"""Lets Python signal handlers (Ctrl-C) run while a call into the library waits for other ranks.

The library calls back every 100 ms and on EINTR, in the thread that waits. Only the main thread
may run signal handlers; what a handler raises is kept here and raised again by the caller.

Why a generator: the interpreter runs pending handlers at the first instruction of a Python
function, before any `try` of that function is entered, so an ordinary callback would lose the
KeyboardInterrupt. A generator resumes inside its `try`, and everything between C and its resume
point is implemented in C.
"""

import functools
import operator
import threading

from rueda import _native


class Interrupts:
    """The `interrupted` callback of one session, and the exception that it caught.

    `callback` goes into Options.interrupted and must live as long as the session.
    """

    def __init__(self):
        self._caught = None
        self._closing = False
        owner = self

        class Steps(threading.local):
            # Threads other than the main one: int() is 0, go on waiting. stop() changes it.
            step = int

            def __init__(self):
                if threading.current_thread() is threading.main_thread():
                    handlers = owner._run_handlers()
                    next(handlers)  # Into its `try`.
                    self.step = handlers.__next__

        self._steps = Steps()
        # Here and not in the first callback, whose first instruction would run handlers, too.
        operator.attrgetter('step')(self._steps)
        self.callback = _native.interrupted_callback(
            functools.partial(operator.methodcaller('step'), self._steps))

    def _run_handlers(self):
        result = 0
        while True:
            try:
                yield result  # Pending signal handlers run right after this point.
                result = 1 if self._closing else 0
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: B902 - handed to the waiting caller whole.
                self._caught = error
                result = 1

    def stop(self):
        """Makes every wait of the session end within 100 ms. Any thread."""
        self._closing = True
        type(self._steps).step = staticmethod(functools.partial(int, 1))

    def take(self):
        """The exception that ended a wait of this thread, or None; forgets it."""
        if threading.current_thread() is not threading.main_thread():
            return None
        caught, self._caught = self._caught, None
        return caught
