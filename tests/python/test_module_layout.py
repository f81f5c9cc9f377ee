# SPDX-License-Identifier: Apache-2.0
"""The modules that scripts written for Horovod import names from."""

import importlib
import os

import pytest

import rueda
import rueda.torch as hvd
from rueda.common import util

MODULES = {
    'rueda.common.basics': ['init', 'nccl_built', 'rank', 'shutdown', 'size'],
    'rueda.common.elastic': ['HostUpdateResult', 'ObjectState', 'State', 'notification_manager',
                             'run_fn'],
    'rueda.common.exceptions': ['HorovodInternalError', 'HorovodVersionMismatchError',
                                'HostsUpdatedInterrupt'],
    'rueda.torch.compression': ['Compression', 'Compressor', 'FP16Compressor', 'NoneCompressor'],
    'rueda.torch.elastic': ['ElasticSampler', 'TorchState', 'run'],
    'rueda.torch.elastic.sampler': ['ElasticSampler'],
    'rueda.torch.elastic.state': ['ModelStateHandler', 'OptimizerStateHandler',
                                  'SamplerStateHandler', 'StateHandler', 'TorchState',
                                  'get_handler_registry', 'set_handler_registry'],
    'rueda.torch.functions': ['allgather_object', 'broadcast_object', 'broadcast_optimizer_state',
                              'broadcast_parameters'],
    'rueda.torch.mpi_ops': ['allgather', 'allreduce_async_', 'broadcast', 'poll', 'rank', 'size',
                            'synchronize'],
    'rueda.torch.optimizer': ['DistributedOptimizer'],
    'rueda.torch.sync_batch_norm': ['SyncBatchNorm'],
}
# What of rueda.torch is at home in other modules than mpi_ops.
NOT_OPERATIONS = {'Compressor', 'DaemonLostError', 'DistributedOptimizer', 'MismatchError',
                  'RankLostError', 'ShutDownError', 'SyncBatchNorm', '__version__',
                  'allgather_object', 'assert_in_sync', 'broadcast_object',
                  'broadcast_optimizer_state', 'broadcast_parameters', 'check_extension',
                  'check_installed_version', 'elastic', 'mpi_ops', 'shared_zeros'}


@pytest.mark.parametrize('name', MODULES)
def test_modules_have_the_very_objects_of_the_package(name):
    module = importlib.import_module(name)
    for member in MODULES[name]:
        found = getattr(module, member)
        assert found is getattr(hvd, member, found), f'{name}.{member} is another object'


@pytest.mark.row('T52')
def test_all_operations_are_in_mpi_ops_and_the_package():
    assert set(hvd.mpi_ops.__all__) == set(hvd.__all__) - NOT_OPERATIONS
    for name in hvd.mpi_ops.__all__:
        assert getattr(hvd.mpi_ops, name) is getattr(hvd, name)


def test_every_exported_name_is_there():
    for module in [hvd, util, *map(importlib.import_module, MODULES)]:
        for name in getattr(module, '__all__', ()):
            assert hasattr(module, name), f'{module.__name__}.{name}'


def body_basics():
    basics = hvd.mpi_ops._basics  # pylint: disable=protected-access
    return [basics.rank(), basics.size(), basics.is_initialized(), basics.nccl_built()]


def test_the_basics_of_mpi_ops_answer_as_the_package_does(ranks):
    assert ranks(2).run(body_basics) == [[0, 2, True, 0], [1, 2, True, 0]]


@pytest.mark.row('C33')
def test_what_is_available():
    assert util.extension_available('torch') and util.extension_available('torch', verbose=True)
    assert not util.extension_available('mxnet') and not util.extension_available('json')
    assert not util.gpu_available('torch')
    for name in ('mpi_built', 'gloo_built', 'nccl_built', 'ddl_built', 'ccl_built'):
        assert getattr(util, name) is getattr(rueda, name)


@pytest.mark.row('C33')
def test_env_sets_removes_and_puts_back(monkeypatch):
    monkeypatch.setenv('RUEDA_TEST_A', 'a')
    monkeypatch.setenv('RUEDA_TEST_B', 'b')
    monkeypatch.delenv('RUEDA_TEST_C', raising=False)
    before = dict(os.environ)
    with pytest.raises(KeyError), util.env(RUEDA_TEST_A='other', RUEDA_TEST_B=None,
                                           RUEDA_TEST_C='new'):
        inside = {**before, 'RUEDA_TEST_A': 'other', 'RUEDA_TEST_C': 'new'}
        del inside['RUEDA_TEST_B']
        assert dict(os.environ) == inside
        raise KeyError
    assert dict(os.environ) == before


@pytest.mark.row('C33')
@pytest.mark.parametrize('count, parts, sizes', [
    (6, 3, [2, 2, 2]), (7, 3, [3, 2, 2]), (8, 3, [3, 3, 2]), (2, 3, [1, 1, 0]), (0, 2, [0, 0]),
    (5, 1, [5])])
def test_split_list_keeps_the_order(count, parts, sizes):
    pieces = util.split_list(list(range(count)), parts)
    assert [len(piece) for piece in pieces] == sizes
    assert sum(pieces, []) == list(range(count))


@pytest.mark.row('C33')
def test_iterables_and_powers_of_two():
    assert all(map(util.is_iterable, ([], (), {}, 'a', iter([]), range(1))))
    assert not any(map(util.is_iterable, (1, None, 1.5, len)))
    assert [number for number in range(-4, 20) if util.num_rank_is_power_2(number)] == [
        1, 2, 4, 8, 16]


@pytest.mark.row('C33')
def test_versions_compare_by_number():
    # As texts 1.9.0 would be larger than 1.13.0.
    assert util.is_version_greater_equal_than('1.13.0', '1.9.0')
    assert not util.is_version_greater_equal_than('1.9.0', '1.13.0')
    assert util.is_version_greater_equal_than('2.1.0+cpu', '2.1.0')
    assert util.is_version_greater_equal_than('1.13.0a0', '1.13.0')
    assert not util.is_version_greater_equal_than('2.0.9', '2.1.0')
    for wrong in ('2.1', '', 'v2.1.0', 2.1, None):
        with pytest.raises(ValueError, match='2.1.0'):
            util.is_version_greater_equal_than(wrong, '2.1.0')
        with pytest.raises(ValueError, match='2.1.0'):
            util.is_version_greater_equal_than('2.1.0', wrong)
