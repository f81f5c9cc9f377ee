# SPDX-License-Identifier: Apache-2.0
"""Names of horovod.torch that rueda.torch does not have."""

import pytest

import rueda.torch as hvd

NAMES = ['ProcessSet', 'add_process_set', 'alltoall', 'alltoall_async',
         'check_installed_version', 'grouped_reducescatter',
         'grouped_reducescatter_async', 'join', 'reducescatter', 'reducescatter_async',
         'remove_process_set', 'sparse_allreduce_async']


@pytest.mark.parametrize('name', NAMES)
def test_the_error_says_that_it_is_not_offered_yet(name):
    # It read as if the script had misspelt the name.
    assert not hasattr(hvd, name)
    with pytest.raises(AttributeError, match=f"rueda.torch does not offer '{name}' yet: "):
        getattr(hvd, name)


def test_other_names_get_the_ordinary_error():
    assert not hasattr(hvd, 'allredcue')
    with pytest.raises(AttributeError, match="^module 'rueda.torch' has no attribute 'allredcue'$"):
        hvd.allredcue  # pylint: disable=pointless-statement


def test_no_name_is_both_there_and_missing():
    missing = hvd._NOT_YET  # pylint: disable=protected-access
    assert not set(missing) & (set(vars(hvd)) | set(hvd.__all__))
