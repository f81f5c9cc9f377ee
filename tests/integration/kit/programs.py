# SPDX-License-Identifier: Apache-2.0
"""Where the programs under test are. Any thread."""

import importlib.util
import os
import shutil
import subprocess

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))


class NotBuilt(Exception):
    """A program is neither named by its variable, nor installed, nor built."""


def _find(variable, in_package, in_bazel):
    named = os.environ.get(variable)
    if named:
        return os.path.abspath(named)
    candidates = []
    package = importlib.util.find_spec('rueda')
    if package is not None and package.submodule_search_locations:
        candidates += [os.path.join(folder, in_package)
                       for folder in package.submodule_search_locations]
    candidates.append(os.path.join(_ROOT, 'bazel-bin', in_bazel))
    for path in candidates:
        if os.path.exists(path):
            return path
    raise NotBuilt(f'set {variable}, install the wheel, or build {in_bazel}; '
                   f'looked at {candidates}')


def daemon():
    """Path of ruedad: RUEDA_DAEMON, the installed package's, bazel-bin's. Raises NotBuilt."""
    return _find('RUEDA_DAEMON', 'bin/ruedad', 'daemon/ruedad')


def library():
    """Path of librueda.so: RUEDA_LIBRARY, the installed package's, bazel-bin's. Raises NotBuilt."""
    return _find('RUEDA_LIBRARY', 'lib/librueda.so', 'client/c/librueda.so')


def ctl():
    """Path of ruedactl: RUEDACTL, the installed package's, bazel-bin's. Raises NotBuilt."""
    return _find('RUEDACTL', 'bin/ruedactl', 'client/cli/ruedactl')


def clean_environment():
    """The environment without what would change a daemon or a rank."""
    prefixes = ('RUEDA', 'HOROVOD_')
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def run_ctl(*arguments, seconds=10):
    """Runs ruedactl; returns the finished subprocess with text output."""
    return subprocess.run([ctl(), *arguments], env=clean_environment(), timeout=seconds,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


def reachable_copy(path, folder):
    """A copy of a program that every user may run, since the checkout may be closed to them."""
    copy = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(path, copy)
    os.chmod(copy, 0o755)
    return copy
