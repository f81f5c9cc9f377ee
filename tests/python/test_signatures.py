# SPDX-License-Identifier: Apache-2.0
"""Arguments by position and by name, and their defaults, as scripts for Horovod give them."""

import inspect

import pytest

import rueda
import rueda.torch as hvd

# Scripts give arguments by position, too. More may follow those that are listed; `set` stands for
# process_set, whose default may be written in several ways.
_SCALES = 'prescale_factor=1.0 postscale_factor=1.0'
_REDUCE = f'average=None name=None op=None {_SCALES} set'
SIGNATURES = {
    'allreduce': f'tensor average=None name=None compression=none op=None {_SCALES} set',
    'allreduce_': f'tensor {_REDUCE}',
    'allreduce_async': f'tensor {_REDUCE}',
    'allreduce_async_': f'tensor {_REDUCE}',
    'grouped_allreduce':
        f'tensors average=None name=None compression=none op=None {_SCALES} set',
    'grouped_allreduce_': f'tensors {_REDUCE}',
    'grouped_allreduce_async': f'tensors {_REDUCE}',
    'grouped_allreduce_async_': f'tensors {_REDUCE}',
    'sparse_allreduce_async': 'tensor name op',
    'allgather': 'tensor name=None set',
    'allgather_async': 'tensor name=None set',
    'grouped_allgather': 'tensors name=None set',
    'grouped_allgather_async': 'tensors name=None set',
    'broadcast': 'tensor root_rank name=None set',
    'broadcast_': 'tensor root_rank name=None set',
    'broadcast_async': 'tensor root_rank name=None set',
    'broadcast_async_': 'tensor root_rank name=None set',
    'alltoall': 'tensor splits=None name=None set',
    'alltoall_async': 'tensor splits=None name=None set',
    'reducescatter': f'tensor name=None compression=none op=Average set {_SCALES}',
    'reducescatter_async': f'tensor name=None op=Average set {_SCALES}',
    'grouped_reducescatter': f'tensors name=None compression=none op=Average set {_SCALES}',
    'grouped_reducescatter_async': f'tensors name=None op=Average set {_SCALES}',
    'barrier': 'set',
    'poll': 'handle',
    'synchronize': 'handle',
    'broadcast_parameters': 'params root_rank',
    'broadcast_optimizer_state': 'optimizer root_rank model=None',
    'broadcast_object': 'obj root_rank=0 name=None',
    'allgather_object': 'obj name=None',
    'DistributedOptimizer': 'optimizer named_parameters=None compression=none '
                            'backward_passes_per_step=1 op=Average gradient_predivide_factor=1.0 '
                            'num_groups=0 groups=None sparse_as_dense=False set',
    'SyncBatchNorm': 'num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True',
    'init': 'comm=None process_sets=None',
    'start_timeline': 'file_path mark_cycles=False',
}
_WORDS = {'Average': rueda.Average, 'none': hvd.Compression.none}


@pytest.mark.row('arguments', 'T30')
@pytest.mark.parametrize('name', sorted(SIGNATURES))
def test_arguments_are_those_of_horovod(name):
    parameters = list(inspect.signature(getattr(hvd, name)).parameters.values())
    wanted = SIGNATURES[name].split()
    assert len(parameters) >= len(wanted)
    for parameter, text in zip(parameters, wanted):
        assert parameter.kind == parameter.POSITIONAL_OR_KEYWORD
        word, equals, default = text.partition('=')
        if word == 'set':
            assert parameter.name == 'process_set' and parameter.default is not parameter.empty
            continue
        assert parameter.name == word
        if equals:
            default = _WORDS[default] if default in _WORDS else eval(default)
            assert parameter.default == default and type(parameter.default) is type(default)
    for parameter in parameters[len(wanted):]:
        assert parameter.default is not parameter.empty, f'{parameter} is needed, but not known'


@pytest.mark.row('C10')
def test_the_values_of_the_operations():
    for module in (rueda, hvd, hvd.mpi_ops):
        assert [getattr(module, name) for name in (
            'Average', 'Sum', 'Adasum', 'Min', 'Max', 'Product')] == list(range(6))


@pytest.mark.row('arguments', 'T51')
def test_elastic_classes_take_the_arguments_of_horovod():
    for kind, wanted in ((hvd.elastic.ElasticSampler, ['dataset', 'shuffle', 'seed']),
                         (hvd.elastic.TorchState, ['model', 'optimizer', 'kwargs']),
                         (hvd.elastic.run, ['func'])):
        assert list(inspect.signature(kind).parameters)[:len(wanted)] == wanted
    from rueda.torch.elastic import state
    for name in ('get_handler_registry', 'set_handler_registry', 'StateHandler'):
        assert callable(getattr(state, name))


@pytest.mark.row('T19')
def test_compressors_of_scripts_derive_from_the_base():
    for name in ('none', 'fp16'):
        assert issubclass(getattr(hvd.Compression, name), hvd.Compressor)
    with pytest.raises(NotImplementedError):
        hvd.Compressor.compress(None)
    with pytest.raises(NotImplementedError):
        hvd.Compressor.decompress(None, None)


@pytest.mark.row('T52', 'C30')
def test_the_framework_module_has_the_common_names():
    for name in ('init', 'shutdown', 'is_initialized', 'start_timeline', 'stop_timeline', 'size',
                 'rank', 'local_size', 'local_rank', 'cross_size', 'cross_rank', 'mpi_enabled',
                 'mpi_threads_supported', 'mpi_built', 'gloo_enabled', 'gloo_built', 'nccl_built',
                 'ddl_built', 'ccl_built', 'cuda_built', 'rocm_built', 'is_homogeneous',
                 'global_process_set'):
        assert getattr(hvd, name) is getattr(rueda, name), name
    assert hvd.HorovodInternalError is rueda.HorovodInternalError
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert not issubclass(hvd.HorovodInternalError, ValueError)
