# SPDX-License-Identifier: Apache-2.0
"""Process sets, over real ranks."""

import os
import time

import pytest
import torch

import rueda
import rueda.torch as hvd
from rueda import _native, _session
from rueda._comm import narrow
from rueda.common.process_sets import process_set_by_id


def dynamic():
    os.environ['HOROVOD_DYNAMIC_PROCESS_SETS'] = '1'


@pytest.mark.row('C20')
def test_a_set_is_sorted_and_has_its_text_before_it_is_registered():
    one = hvd.ProcessSet([2, 0, 2])
    assert one.ranks == [0, 2] and one.process_set_id is None and one.mpi_comm is None
    assert str(one) == 'ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)'
    for wrong in (['a'], [1.5], [True], 3, None, object()):
        with pytest.raises(ValueError, match='ProcessSet needs a list of ranks'):
            hvd.ProcessSet(wrong)


@pytest.mark.row('C21')
def test_an_unregistered_set_knows_no_place():
    one = hvd.ProcessSet([0])
    assert (one.size(), one.rank(), one.included()) == (None, None, None)


def body_places():
    dynamic()
    even = hvd.add_process_set([0, 2])
    assert str(even) == 'ProcessSet(process_set_id=1, ranks=[0, 2], mpi_comm=None)'
    assert hvd.global_process_set.ranks == [0, 1, 2]
    assert str(hvd.global_process_set) == \
        'ProcessSet(process_set_id=0, ranks=[0, 1, 2], mpi_comm=None)'
    assert hvd.global_process_set.included() and hvd.global_process_set.size() == 3
    return even.size(), even.rank(), even.included()


@pytest.mark.row('C20', 'C21', 'C22')
def test_places(ranks):
    assert ranks(3).run(body_places) == [[2, 0, True], [2, -1, False], [2, 1, True]]


def body_ids():
    dynamic()
    first, second = hvd.add_process_set([0]), hvd.add_process_set(hvd.ProcessSet([1]))
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    assert process_set_by_id(2) is second
    assert hvd.remove_process_set(first) is True
    assert first.process_set_id is None
    assert hvd.remove_process_set(first) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    third = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.add_process_set([0])
    assert third.process_set_id == 1
    with pytest.raises(ValueError, match='process set 2 has these ranks already'):
        hvd.add_process_set([1])
    with pytest.raises(ValueError, match='has these ranks already'):
        hvd.add_process_set(range(hvd.size()))
    with pytest.raises(ValueError, match='ranks of the job'):
        hvd.add_process_set([0, 99])
    with pytest.raises(ValueError, match='no process set with id 7'):
        process_set_by_id(7)


@pytest.mark.row('C23', 'C24', 'C26')
def test_ids_count_from_1_and_come_again(ranks):
    ranks(3).run(body_ids)


def body_anonymous_in_a_used_number():
    dynamic()
    first = hvd.add_process_set([1, 2])
    if first.included():
        assert hvd.allreduce(torch.ones(2), process_set=first).tolist() == [1, 1]
    hvd.remove_process_set(first)
    for members in ([0, 1], [0, 2]):
        second = hvd.add_process_set(members)
        if second.included():
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=second).tolist() == [2, 2]
            assert hvd.broadcast_object(hvd.rank(), members[1], process_set=second) == members[1]
        hvd.barrier()
        hvd.remove_process_set(second)


def test_anonymous_operations_meet_in_a_number_that_comes_again(ranks):
    """Once the ranks that had been in the earlier set of that number counted on."""
    ranks(3).run(body_anonymous_in_a_used_number)


@pytest.mark.parametrize('text', ['abc', '-1', '²', ''])
def test_whether_sets_are_dynamic_must_be_a_number(python, text):
    """Once that was 0, and add_process_set() said that the variable had to be set."""
    result = python('import rueda\nrueda.init()', env={'HOROVOD_DYNAMIC_PROCESS_SETS': text})
    assert f'HOROVOD_DYNAMIC_PROCESS_SETS={text!r} is not a number of at least 0' in result.stderr


def body_static():
    os.environ.pop('HOROVOD_DYNAMIC_PROCESS_SETS', None)
    hvd.shutdown()
    listed = [hvd.ProcessSet([1]), hvd.ProcessSet([0, 1])]
    hvd.init(process_sets=listed)
    ids = [one.process_set_id for one in listed]
    total = hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=listed[1]).tolist() \
        if hvd.rank() < 2 else None
    with pytest.raises(ValueError, match='HOROVOD_DYNAMIC_PROCESS_SETS=1'):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match='HOROVOD_DYNAMIC_PROCESS_SETS=1'):
        hvd.remove_process_set(listed[0])
    hvd.barrier()
    hvd.shutdown()
    assert [one.process_set_id for one in listed] == [None, None]
    hvd.init(process_sets=listed)  # Again, with the same objects.
    assert [one.process_set_id for one in listed] == [1, 2]
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match='has these ranks already'):
        hvd.init(process_sets=[[0], [0]])
    assert not hvd.is_initialized()
    hvd.init(process_sets='dynamic')
    hvd.add_process_set([0])
    return ids, total


@pytest.mark.row('C01', 'C26')
def test_sets_given_to_init(ranks):
    assert ranks(3).run(body_static) == [[[1, 2], [2.0, 2.0]], [[1, 2], [2.0, 2.0]], [[1, 2], None]]


def body_operations():
    dynamic()
    odd = hvd.add_process_set([1, 3])
    rank = hvd.rank()
    one = torch.full((2, 2), float(rank))
    if not odd.included():
        for call in (lambda: hvd.allreduce(one, process_set=odd),
                     lambda: hvd.allgather_async(one, process_set=odd),
                     lambda: hvd.broadcast_(one, 1, process_set=odd),
                     lambda: hvd.alltoall(one, process_set=odd),
                     lambda: hvd.reducescatter(one, process_set=odd),
                     lambda: hvd.grouped_allreduce([one], process_set=odd),
                     lambda: hvd.barrier(odd)):
            with pytest.raises(ValueError, match=f'rank {rank} does not belong to ProcessSet'):
                call()
        return
    assert hvd.allreduce(one, process_set=odd).unique().tolist() == [2.0]  # Of 1 and 3.
    assert hvd.allreduce(one, op=hvd.Sum, process_set=odd, name='s').unique().tolist() == [4.0]
    assert hvd.allgather(one, process_set=odd)[:, 0].tolist() == [1, 1, 3, 3]
    assert hvd.broadcast(one, 3, process_set=odd).unique().tolist() == [3.0]
    with pytest.raises(ValueError, match='root 0 is not one of the 2 ranks'):
        hvd.broadcast(one, 0, process_set=odd)
    rows, received = hvd.alltoall(one, [2, 0], process_set=odd)
    assert received.tolist() == ([2, 2] if rank == 1 else [0, 0])
    assert len(rows) == sum(received)
    assert hvd.reducescatter(one, op=hvd.Sum, process_set=odd).tolist() == [[4.0, 4.0]]
    outputs = hvd.grouped_allreduce([one, one], op=hvd.Max, process_set=odd)
    assert [output.max().item() for output in outputs] == [3.0, 3.0]
    assert hvd.allgather_object(rank, process_set=odd) == [1, 3]
    assert hvd.broadcast_object(rank, 3, process_set=odd) == 3
    hvd.barrier(odd)
    leaf = one.clone().requires_grad_()
    hvd.allgather(leaf, process_set=odd).sum().backward()
    assert leaf.grad.unique().tolist() == [1.0]


@pytest.mark.row('C25')
def test_every_operation_in_a_set(ranks):
    ranks(4).run(body_operations)


def body_unregistered():
    with pytest.raises(ValueError, match='is not registered'):
        hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match='must be a ProcessSet'):
        hvd.allreduce(torch.ones(1), process_set=[0])


@pytest.mark.row('C25')
def test_a_set_must_be_registered(ranks):
    ranks(2).run(body_unregistered)


def body_not_removed():
    dynamic()
    sets = [hvd.add_process_set([rank]) for rank in range(2)]
    session = _session.current()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, 'remove_process_set', fails)
        with pytest.raises(hvd.HorovodInternalError):
            hvd.remove_process_set(sets[0])
    assert process_set_by_id(1) is sets[0] and sets[0].included() == (hvd.rank() == 0)
    assert hvd.remove_process_set(sets[0]) is True
    with pytest.raises(ValueError, match='no process set with id 1'):
        process_set_by_id(1)


def fails(number):
    raise hvd.HorovodInternalError(f'set {number} was not removed')


def test_a_set_that_was_not_removed_is_still_there(ranks):
    # It was gone from the table of ids, and the next attempt was a KeyError.
    ranks(2).run(body_not_removed)


def body_dynamic_again():
    os.environ.pop('HOROVOD_DYNAMIC_PROCESS_SETS', None)
    hvd.init(process_sets='dynamic')  # Initialised already: does nothing.
    with pytest.raises(ValueError, match='HOROVOD_DYNAMIC_PROCESS_SETS=1'):
        hvd.add_process_set([0])


def test_init_that_does_nothing_does_not_make_sets_dynamic(ranks):
    ranks(2).run(body_dynamic_again)


def body_ranks_in_messages():
    dynamic()
    later = hvd.add_process_set([1, 2])
    if hvd.rank() == 0:
        return
    other = hvd.rank() == 2
    with pytest.raises(hvd.MismatchError, match='rank 1 has .*; rank 2 has '):
        hvd.assert_in_sync([torch.ones(2 + other)], process_set=later)
    model = torch.nn.Linear(2 + other, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         process_set=later)
    with pytest.raises(hvd.MismatchError, match='rank 1 has .*; rank 2 has '):
        optimizer.step()
    finish = hvd.sparse_allreduce_async(torch.eye(2 + other).to_sparse(), process_set=later)
    with pytest.raises(hvd.MismatchError, match='rank 1 has .*, but rank 2 has '):
        finish()


def test_messages_of_a_set_name_ranks_of_the_job(ranks):
    # Those of sparse tensors named places in the set.
    ranks(3).run(body_ranks_in_messages)


def body_two_optimizers():
    dynamic()
    pair = hvd.add_process_set([0, 1])
    models = [torch.nn.Linear(3, 1, bias=False) for _ in range(2)]
    own, everyone = [hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                              process_set=process_set)
                     for model, process_set in zip(models, (pair, hvd.global_process_set))]
    for model, optimizer in zip(models, (own, everyone)):
        model(torch.full((1, 3), float(hvd.rank()))).sum().backward()
        optimizer.step()
    return [model.weight.grad[0, 0].item() for model in models]


def test_optimizers_of_a_set_and_of_all_ranks(ranks):
    # Both numbered their first exchange in one row, so the third rank waited for another name.
    assert ranks(3).run(body_two_optimizers) == [[0.5, 1.0], [0.5, 1.0], [2.0, 1.0]]


def test_comm_and_the_length_of_the_job_name():
    options = _native.Options(rank=1, size=4, job=b'j' * 125)
    narrow(options, [1, 3])  # 127 bytes and the NUL.
    assert (options.job, options.rank, options.size) == (b'j' * 125 + b'/a', 0, 2)
    options = _native.Options(rank=1, size=4, job=b'j' * 126)
    with pytest.raises(rueda.exceptions.StartError, match='job name j*/a, which has 128 bytes'):
        narrow(options, [1, 3])
    assert options.size == 4


def body_disagree():
    dynamic()
    words = r'rank 0 has ranks \[0\], but rank 1 has ranks \[1\]'
    with pytest.raises(hvd.MismatchError, match=words):
        hvd.add_process_set([hvd.rank()])
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2


@pytest.mark.row('C23')
def test_ranks_that_name_other_sets(ranks):
    ranks(2).run(body_disagree)


def body_barriers():
    dynamic()
    even, odd = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])
    mine = even if hvd.rank() % 2 == 0 else odd
    hvd.barrier(mine)
    hvd.barrier()
    if hvd.rank() == 0:
        time.sleep(2)
    begin = time.monotonic()
    hvd.barrier(mine)
    return time.monotonic() - begin


@pytest.mark.row('Q31')
def test_the_barrier_of_a_set_does_not_wait_for_another(ranks):
    took = ranks(4).run(body_barriers)
    assert took[2] > 1.5
    assert took[1] < 1 and took[3] < 1


def body_optimizer():
    dynamic()
    pair = hvd.add_process_set([0, 1])
    model = torch.nn.Linear(3, 1, bias=False)
    hvd.broadcast_parameters(model.state_dict(), 0)
    before = model.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         process_set=pair)
    model(torch.full((1, 3), float(hvd.rank() + 1))).sum().backward()
    optimizer.step()
    after = model.weight.detach().clone()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    # The set is none of this session: all ranks trained alone from here, and nothing told.
    with pytest.raises(ValueError, match='is not registered'):
        model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ValueError, match='is not registered'):
        optimizer.step()
    assert torch.equal(model.weight, after)
    hvd.add_process_set(pair)
    optimizer.step()
    return (before - after).round().unique().tolist()


@pytest.mark.row('T32')
def test_an_optimizer_of_a_set_averages_over_it_and_is_a_local_one_outside(ranks):
    # 1.5 rounds to 2, as torch does.
    assert ranks(3).run(body_optimizer) == [[2.0], [2.0], [3.0]]


def body_basics():
    dynamic()
    basics = hvd.mpi_ops._basics  # pylint: disable=protected-access
    one = basics._add_process_set_impl([1])
    assert basics._get_process_set_ids_and_ranks() == {0: [0, 1], 1: [1]}
    assert (basics._process_set_size(one), basics._process_set_rank(one)) == (1, hvd.rank() - 1)
    with pytest.raises(ValueError):
        basics._process_set_size(5)
    assert basics._remove_process_set_impl(one) == 1
    with pytest.raises(NotImplementedError):
        basics._comm_process_set_id(None)
    return len(basics.MPI_LIB_CTYPES)


@pytest.mark.row('C11')
def test_the_basics_answer_for_sets(ranks):
    assert ranks(2).run(body_basics) == [0, 0]


def body_comm():
    hvd.shutdown()
    rank, size = int(os.environ['RUEDA_RANK']), int(os.environ['RUEDA_SIZE'])
    half = [one for one in range(size) if one % 2 == rank % 2]
    hvd.init(comm=half)
    assert hvd.size() == len(half) and hvd.rank() == half.index(rank)
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    hvd.init(comm=list(range(size)))  # Initialised already: does nothing.
    total = hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum).item()
    hvd.barrier()
    hvd.shutdown()
    for wrong in ([rank, rank], [99, rank], [1 - rank % 2]):
        with pytest.raises(ValueError, match='comm='):
            hvd.init(comm=wrong)
    with pytest.raises(ValueError, match='MPI'):
        hvd.init(comm='world')
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.size() == size
    return total


@pytest.mark.row('C01')
def test_some_ranks_are_a_job_of_their_own(ranks):
    assert ranks(4).run(body_comm) == [2.0, 4.0, 2.0, 4.0]


def test_a_lone_process_has_sets_too(monkeypatch):
    monkeypatch.setenv('HOROVOD_DYNAMIC_PROCESS_SETS', '1')
    hvd.init()
    try:
        with pytest.raises(ValueError, match='has these ranks already'):
            hvd.add_process_set([0])
        assert rueda.join() == 0
    finally:
        hvd.shutdown()
