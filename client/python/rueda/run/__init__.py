# SPDX-License-Identifier: Apache-2.0
"""ruedarun: starts the ranks of a job on this host and looks after them.

Only what starting a job needs; nothing here imports a training framework. The package can be called
like a function: `rueda.run(train, num_proc=2)` is the function run() below, under the name that
scripts know; `python -m rueda.run` is `ruedarun`.
"""

import sys
import types

from rueda.run.function import run

__all__ = ['run']


class _CallableModule(types.ModuleType):
    """A module that is called as run()."""

    __wrapped__ = staticmethod(run)  # For help() and inspect.signature().

    def __call__(self, *args, **kwargs):
        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
