# SPDX-License-Identifier: Apache-2.0
"""Settings of the environment that are read at each init()."""

import os
import time

import pytest
import torch

import rueda.torch as hvd
from rueda.common.util import env


def body_stall():
    hvd.barrier()
    hvd.shutdown()
    with env(HOROVOD_STALL_CHECK_TIME_SECONDS='0.5', HOROVOD_STALL_SHUTDOWN_TIME_SECONDS='1'):
        hvd.init()
    begin = time.monotonic()
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodInternalError, match=r"'allreduce.lonely' waits since"):
            hvd.allreduce(torch.ones(1), name='lonely')
    else:
        time.sleep(2)
        with pytest.raises(hvd.HorovodInternalError, match="'allreduce.lonely' waits since"):
            hvd.allreduce(torch.ones(1), name='late')
    assert time.monotonic() - begin < 5
    hvd.shutdown()
    with env(HOROVOD_STALL_CHECK_DISABLE='1', HOROVOD_STALL_SHUTDOWN_TIME_SECONDS='1'):
        hvd.init()
    if hvd.rank() == 1:
        time.sleep(1.5)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


def test_stall_settings_count_from_the_next_init_on(ranks):
    ranks(2).run(body_stall)


KNOBS = [('FUSION_THRESHOLD', '0'), ('FUSION_THRESHOLD', '1024'), ('CYCLE_TIME', '2.5'),
         ('CYCLE_TIME', '0'), ('CACHE_CAPACITY', '0'), ('DISABLE_GROUP_FUSION', '1'),
         ('FUSION_LOOK_BACK', '1')]


def body_results(name, value):
    hvd.barrier()
    hvd.shutdown()
    with env(**{'HOROVOD_' + name: value}):
        hvd.init()
    tensors = [torch.full((100 + index,), float(hvd.rank()), dtype=dtype)
               for index in range(10) for dtype in (torch.float16, torch.float32)]
    handles = [hvd.allreduce_async(tensor, op=hvd.Sum, name=f't.{index}')
               for index, tensor in enumerate(tensors)]
    outputs = [hvd.synchronize(handle) for handle in handles]
    outputs += hvd.grouped_allreduce(tensors, op=hvd.Sum)
    assert all(output.eq(1).all() for output in outputs)
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


@pytest.mark.row('Q25')
@pytest.mark.parametrize('name, value', KNOBS)
def test_knobs_of_fusion_change_no_result(ranks, name, value):
    ranks(2).run(body_results, name, value)


@pytest.mark.parametrize('name, value', [('FUSION_THRESHOLD', '-1'), ('CYCLE_TIME', 'fast'),
                                         ('CYCLE_TIME', '1000.5'),
                                         ('STALL_CHECK_TIME_SECONDS', 'nan')])
def test_a_knob_that_means_nothing_is_named(name, value):
    with env(**{'RUEDA_' + name: value}):
        with pytest.raises(ValueError, match=f"RUEDA_{name}='{value}' is not a number"):
            hvd.init()
    assert 'RUEDA_' + name not in os.environ and not hvd.is_initialized()
