# SPDX-License-Identifier: Apache-2.0
"""Small functions that scripts and their tests import from here. Pure but for env(); any thread.

rueda has no compiled extensions. What Horovod asks of its own is answered for the adapters.
"""

import contextlib
import functools
import importlib.util
import os
import re
import sysconfig
import warnings

from rueda import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

__all__ = ['ccl_built', 'check_extension', 'check_installed_version', 'ddl_built', 'env',
           'extension_available', 'get_average_backwards_compatibility_fun', 'get_ext_suffix',
           'gloo_built', 'gpu_available', 'is_iterable', 'is_version_greater_equal_than',
           'mpi_built', 'nccl_built', 'num_rank_is_power_2', 'split_list']

# Frameworks that this version has an adapter for.
_ADAPTERS = ('torch',)

# Decorator: calls with equal arguments, which must be hashable, run the function once.
_cache = functools.lru_cache(maxsize=None)


def check_extension(ext_name, ext_env_var=None, pkg_path=None, *args):
    """ImportError unless there is an adapter for the last part of `ext_name`, e.g. horovod.torch.

    The other arguments name compiled files and are not used.
    """
    framework = ext_name.rpartition('.')[2]
    if framework not in _ADAPTERS:
        raise ImportError(f'rueda has no adapter for {framework}; it has those for '
                          + ', '.join(_ADAPTERS))


def check_installed_version(name, version, exception=None):
    """Accepts every version of a framework: rueda is not built for one. No argument is used."""


def get_ext_suffix():
    """How the file names of compiled modules end, e.g. '.cpython-311-x86_64-linux-gnu.so'."""
    return sysconfig.get_config_var('EXT_SUFFIX')


def get_average_backwards_compatibility_fun(reduce_ops):
    """A function of (op, average), the latter deprecated, that returns the operation they mean.

    `reduce_ops` has the operations as attributes `Average` and `Sum`, as rueda and its adapters do.
    The function raises ValueError when both are given, and warns of `average`.
    """
    def choose(op, average):
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError('give either op or average, not both; average is deprecated')
        warnings.warn('the argument average is deprecated; use op=hvd.Average or op=hvd.Sum',
                      DeprecationWarning, stacklevel=2)
        return reduce_ops.Average if average else reduce_ops.Sum
    return choose


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
