# SPDX-License-Identifier: Apache-2.0
"""Console scripts that replace themselves with a program of this package (`ruedad`, `ruedactl`).

In the wheel this is `rueda/bin/__init__.py`, beside the programs. Nothing else of the package is
imported, so that starting the daemon needs neither numpy nor a training framework.
"""

import os
import sys


def _replace(name):
    """Runs the program `name` of this folder in this process's place; never returns normally.

    Signals, standard streams and the process id stay those of the caller. Exits with 127 and a
    message if the program cannot be started.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    try:
        os.execv(path, [path] + sys.argv[1:])
    except OSError as error:
        sys.stderr.write("%s: cannot start %s: %s\n" % (name, path, error.strerror))
        sys.exit(127)


def ruedad():
    """Entry point of the console script `ruedad`."""
    _replace("ruedad")


def ruedactl():
    """Entry point of the console script `ruedactl`."""
    _replace("ruedactl")
