# SPDX-License-Identifier: Apache-2.0
"""Small functions that scripts and their tests import from here. Pure but for env(); any thread.

What Horovod has for its compiled extensions is missing: rueda has none, so there is nothing to
check or to look up.
"""

import contextlib
import importlib.util
import os
import re

from rueda import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

__all__ = ['ccl_built', 'ddl_built', 'env', 'extension_available', 'gloo_built', 'gpu_available',
           'is_iterable', 'is_version_greater_equal_than', 'mpi_built', 'nccl_built',
           'num_rank_is_power_2', 'split_list']

# Frameworks that this version has an adapter for.
_ADAPTERS = ('torch',)


def extension_available(ext_base_name, verbose=False):
    """Whether there is an adapter for the framework of that name, and the framework is installed.

    Imports nothing. `verbose` has no effect.
    """
    return ext_base_name in _ADAPTERS and importlib.util.find_spec(ext_base_name) is not None


def gpu_available(ext_base_name, verbose=False):
    """False: tensors live in host memory."""
    return False


@contextlib.contextmanager
def env(**kwargs):
    """Sets environment variables inside the context; None removes one. Not for several threads."""
    before = {name: os.environ.get(name) for name in kwargs}
    _set_environment(kwargs)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def split_list(items, parts):
    """Cuts a list into `parts` lists in order; sizes differ by one at most, longer ones first."""
    size, longer = divmod(len(items), parts)
    ends = [size * number + min(number, longer) for number in range(parts + 1)]
    return [items[first:last] for first, last in zip(ends, ends[1:])]


def is_iterable(value):
    """Whether iter() takes it."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def num_rank_is_power_2(num_rank):
    """Whether the number is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_version_greater_equal_than(version, target):
    """Whether a version such as '2.1.0+cpu' is at least `target`.

    Only the leading numbers of the dotted parts count: 2.1.0rc1 is as large as 2.1.0. ValueError
    unless both are texts that begin with three numbers.
    """
    return _numbers(version) >= _numbers(target)


def _numbers(version):
    match = re.match(r'(\d+)\.(\d+)\.(\d+)', version) if isinstance(version, str) else None
    if match is None:
        raise ValueError(f'expected a version such as 2.1.0, got {version!r}')
    return tuple(map(int, match.groups()))
