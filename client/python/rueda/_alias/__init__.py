# SPDX-License-Identifier: Apache-2.0
"""rueda under the name `horovod`: which processes get it, and when it is refused.

A process gets it from its environment: PYTHONPATH leads to a folder with a package `horovod` that
puts rueda in its own place when it is imported. Environments are inherited, so that processes
started by spawn, data loaders and programs that a rank starts get it as well. Nothing runs in a
process that does not import horovod, and no start-up file of the site is touched; a
`sitecustomize` of ours would run everywhere and hide that of the system.

Nothing here runs unless `ruedarun --as-horovod` or `python -m rueda.as_horovod` asked for it.
"""

import importlib.machinery
import importlib.metadata
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'path')
FORCE = 'RUEDA_AS_HOROVOD_FORCE'


class GenuineHorovodError(RuntimeError):
    """Horovod itself is installed, so that its name is taken.

    Not an ImportError: scripts that go on alone without Horovod would do so on every rank.
    """


def environment(base):
    """A copy of the environment `base` in which `import horovod` gives rueda."""
    result = dict(base)
    entries = [entry for entry in base.get('PYTHONPATH', '').split(os.pathsep)
               if entry and entry != FOLDER]
    result['PYTHONPATH'] = os.pathsep.join([FOLDER, *entries])
    return result


def forced(base):
    """Whether the environment `base` allows rueda to stand in for a Horovod that is installed."""
    return base.get(FORCE, '0') not in ('', '0')


def refusal(base, entries):
    """Why rueda does not stand in for Horovod where sys.path has these entries, or None.

    `base` is the environment in which it would.
    """
    found = None if forced(base) else genuine(entries)
    if found is None:
        return None
    version, path = found
    return (f'Horovod {version} is installed at {path}: remove it (pip uninstall horovod), or set '
            f'{FORCE}=1 to have rueda in its place all the same')


def refusal_of_python(arguments, base):
    """As refusal(), for a Python like this one that is started with these arguments."""
    if getattr(sys.flags, 'safe_path', False):
        return refusal(base, sys.path)
    first = _first_path_entry(arguments)
    beside = package_in([first])
    if beside is not None and forced(base):
        # sys.path begins with that folder, before PYTHONPATH.
        return f'{beside} hides what stands in for it: start the script from another folder'
    return refusal(base, [first, *sys.path[1:]])


def _first_path_entry(arguments):
    """Where Python looks for modules first when it is started with these arguments."""
    rest = iter(arguments)
    for argument in rest:
        if argument in ('-W', '-X'):
            next(rest, None)
        elif argument[:2] in ('-m', '-c') or argument == '-':
            break
        elif not argument.startswith('-'):
            script = os.path.realpath(argument)
            return os.path.dirname(script) if os.path.isfile(script) else script
    return os.getcwd()


def genuine(entries):
    """(version, path) of the Horovod that is found in these entries of sys.path, or None."""
    for distribution in importlib.metadata.distributions(name='horovod', path=entries):
        return distribution.version, str(distribution.locate_file('horovod'))
    path = package_in(entries)
    return None if path is None else ('of unknown version', path)


def package_in(entries):
    """Path of the package or module `horovod` in these entries of sys.path, ours aside, or None."""
    others = [entry for entry in entries if os.path.abspath(entry or os.curdir) != FOLDER]
    spec = importlib.machinery.PathFinder.find_spec('horovod', others)
    # A folder without __init__.py comes after all packages, ours included.
    if spec is None or spec.loader is None or not spec.has_location:
        return None
    return os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin
