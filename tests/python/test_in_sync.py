# SPDX-License-Identifier: Apache-2.0
"""hvd.assert_in_sync: that all ranks have the same parameters, to the bit."""

import pytest
import torch
from training import network

import rueda.torch as hvd


def body_equal():
    model = network()
    hvd.assert_in_sync(model)
    hvd.assert_in_sync(model.state_dict(), name='state')
    hvd.assert_in_sync(model.parameters(), process_set=hvd.global_process_set)
    hvd.assert_in_sync(list(model.named_parameters()))
    hvd.assert_in_sync({'tensor': torch.ones(2), 'number': hvd.rank()})  # Tensors count.
    hvd.assert_in_sync(torch.ones(()))
    hvd.assert_in_sync([torch.ones(0, 3), torch.tensor([float('nan')]), torch.ones(2).bfloat16(),
                        torch.ones(2, dtype=torch.bool), torch.ones(2).to(torch.complex64).conj(),
                        torch.arange(6).view(2, 3).t(), torch.eye(3).to_sparse()])
    for wrong in (5, [1, 2], None, [('a', 'b', 'c')]):
        with pytest.raises((ValueError, TypeError)):
            hvd.assert_in_sync(wrong)


@pytest.mark.parametrize('size', [1, 2, 3])
def test_equal_parameters_pass(ranks, size):
    ranks(size).run(body_equal)


def message(target):
    with pytest.raises(hvd.MismatchError) as caught:
        hvd.assert_in_sync(target)
    text = str(caught.value)
    assert set(hvd.allgather_object(text)) == {text}, 'ranks are told different things'
    return text


def body_different():
    rank, size = hvd.rank(), hvd.size()
    model = network()
    if rank == 1:
        with torch.no_grad():  # The last bit of one value; and one that comes later.
            model[0].bias.view(torch.int64)[3] += 1
            model[2].bias.add_(1.0)
    text = message(model)
    others = 'ranks 0, 2 have' if size == 3 else 'rank 0 has'
    assert 'out of sync at parameter 0.bias: ' + others in text, text
    assert 'rank 1 has 0.bias float64 (7,) with digest' in text, text
    zero = torch.tensor(0.0 if rank else -0.0)
    assert 'parameter x: ' in message({'a': torch.ones(1), 'x': zero})
    assert 'float32 (2,)' in message([torch.ones(2).double() if rank else torch.ones(2)])
    assert '(1, 2)' in message([torch.ones((1, 2) if rank else (2, 1))])
    assert 'rank 0 has a ' in message([('b' if rank else 'a', torch.ones(1))])
    assert 'rank 0 has no such parameter' in message([torch.ones(1)] * (3 if rank else 2))
    hvd.assert_in_sync(network())  # The session goes on.


@pytest.mark.parametrize('size', [2, 3])
def test_the_first_difference_is_named_on_all_ranks(ranks, size):
    ranks(size).run(body_different)
