# SPDX-License-Identifier: Apache-2.0
"""`python -m rueda.as_horovod [--force] ...` is `python ...` in which horovod is rueda.

What follows is a command line of Python: a script with its arguments, `-m module`, `-c code`, or
nothing. The interpreter starts anew with it, so that __main__, sys.argv, sys.path, tracebacks and
the exit status are its own; processes that it starts inherit the name. `--force`: even where
Horovod is installed, which is refused otherwise.
"""

import os
import subprocess
import sys

from rueda import _alias

_USAGE_ERROR = 2


def main(arguments):
    """Becomes the interpreter with these arguments; returns the exit status where that is refused.

    2: Horovod is in the way, or the interpreter was told to ignore its environment.
    """
    environment = _alias.environment(os.environ)
    if arguments[:1] == ['--force']:
        arguments = arguments[1:]
        environment[_alias.FORCE] = '1'
    reason = _refusal(arguments, environment)
    if reason is not None:
        print(f'rueda.as_horovod: {reason}', file=sys.stderr)
        return _USAGE_ERROR
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *_own_flags(), *arguments], environment)


def _refusal(arguments, environment):
    if sys.flags.ignore_environment:
        return 'Python ignores its environment (-E or -I), and with it PYTHONPATH'
    return _alias.refusal_of_python(arguments, environment)


def _own_flags():
    """The options of this interpreter, those before `-m rueda.as_horovod`."""
    given = getattr(sys, 'orig_argv', [])  # Since Python 3.10.
    given = given[1:len(given) - len(sys.argv) + 1]
    if given[-2:-1] == ['-m']:
        return given[:-2]
    return subprocess._args_from_interpreter_flags()  # pylint: disable=protected-access


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
