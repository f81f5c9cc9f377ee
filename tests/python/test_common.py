# SPDX-License-Identifier: Apache-2.0
"""rueda.common and the life cycle, as far as they need no other rank."""

import importlib.machinery
import types
import warnings

import pytest

import rueda
import rueda.torch as hvd
from rueda.common import exceptions, util

INIT = '''
import rueda.torch as hvd
assert not hvd.is_initialized()
hvd.init()
hvd.init()  # Does nothing.
assert hvd.is_initialized() and hvd.is_homogeneous() is True
hvd.init([0])
hvd.shutdown()
hvd.shutdown()  # Does nothing.
assert not hvd.is_initialized()
hvd.init(comm=[0], process_sets=None)
print(hvd.rank(), hvd.size())
'''


@pytest.mark.row('C01', 'C02', 'C03', 'C05')
def test_init_and_shutdown_may_be_repeated(python):
    result = python(INIT, launch=['-np', '1'])
    assert result.stdout == '0 1\n', result.stderr


WITHOUT_LIBRARY = '''
import rueda.torch as hvd, rueda.common.util, rueda.run
print(hvd.nccl_built(), rueda.common.util.split_list([1, 2], 2), rueda.run.run.__name__)
try:
    hvd.init()
except ValueError as error:
    print(error)
'''


@pytest.mark.row('C01', 'C34')
def test_the_package_can_be_imported_without_its_library(python):
    result = python(WITHOUT_LIBRARY, env={'RUEDA_LIBRARY': '/does/not/exist.so'})
    lines = result.stdout.splitlines()
    assert lines[0] == '0 [[1], [2]] run', result.stderr
    assert lines[1].startswith('cannot load librueda.so from /does/not/exist.so'), lines


@pytest.mark.row('C08', 'C09', 'C07')
def test_what_is_built_in_needs_no_session():
    assert hvd.nccl_built() == 0 and isinstance(hvd.nccl_built(), int)
    assert hvd.nccl_built() < 2700  # Scripts compare it with versions.
    assert [hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built(),
            hvd.mpi_built(), hvd.gloo_built()] == [False] * 5 + [True]
    for function in (hvd.mpi_enabled, hvd.gloo_enabled, hvd.mpi_threads_supported):
        with pytest.raises(ValueError, match='Horovod has not been initialized'):
            function()


@pytest.mark.row('C32')
def test_no_version_of_a_framework_is_refused():
    error = exceptions.HorovodVersionMismatchError('torch', '1.13', '2.0')
    assert (error.name, error.version, error.installed_version) == ('torch', '1.13', '2.0')
    assert util.check_installed_version('torch', '0.1') is None
    assert hvd.check_installed_version('torch', '99', ValueError('unused')) is None


@pytest.mark.row('C33')
def test_check_extension_asks_for_an_adapter():
    assert hvd.check_extension('horovod.torch', 'HOROVOD_WITH_PYTORCH', __file__, 'mpi_lib') is None
    with pytest.raises(ImportError, match='no adapter for mxnet'):
        util.check_extension('horovod.mxnet', 'HOROVOD_WITH_MXNET', __file__, 'mpi_lib')
    assert util.get_ext_suffix() in importlib.machinery.EXTENSION_SUFFIXES


@pytest.mark.row('C33')
def test_a_cached_function_runs_once_for_each_argument():
    calls = []

    @util._cache  # pylint: disable=protected-access
    def twice(number, plus=0):
        calls.append(number)
        return 2 * number + plus

    assert [twice(1), twice(1), twice(2), twice(1, plus=1), twice(1, plus=1)] == [2, 2, 4, 3, 3]
    assert calls == [1, 2, 1]


@pytest.mark.row('C33')
@pytest.mark.parametrize('ops', [rueda, hvd, types.SimpleNamespace(Average='a', Sum='s')])
def test_average_and_op_mean_one_operation(ops):
    choose = util.get_average_backwards_compatibility_fun(ops)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert choose(None, None) == ops.Average and choose(ops.Sum, None) == ops.Sum
    for average, wanted in ((True, ops.Average), (False, ops.Sum)):
        with pytest.warns(DeprecationWarning, match='average is deprecated') as caught:
            assert choose(op=None, average=average) == wanted
        assert caught[0].filename == __file__
        with pytest.raises(ValueError, match='either op or average'):
            choose(ops.Sum, average)
