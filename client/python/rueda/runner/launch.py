# SPDX-License-Identifier: Apache-2.0
"""`python -m rueda.runner.launch` is the same as `ruedarun`."""

import sys

from rueda.run.launcher import main as run_commandline

__all__ = ['run_commandline']

if __name__ == '__main__':
    sys.exit(run_commandline())
