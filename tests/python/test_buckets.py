# SPDX-License-Identifier: Apache-2.0
"""How gradients are cut into buckets."""

import torch

from rueda.torch import buckets


def slots(*sizes, dtypes=None):
    return [buckets.Slot(torch.empty(size, dtype=(dtypes or {}).get(index, torch.float32)),
                         str(index), 1) for index, size in enumerate(sizes)]


def names(plan):
    return [[slot.name for slot in bucket] for bucket in plan]


def test_a_small_model_is_one_bucket_in_reverse_order():
    assert names(buckets.plan(slots(10, 20, 30), [])) == [['2', '1', '0']]


def test_a_large_model_is_cut_by_size():
    million = 1 << 20
    assert names(buckets.plan(slots(million, million, million, million), [])) == [
        ['3', '2'], ['1', '0']]
    assert names(buckets.plan(slots(5 * million, 10), [])) == [['1'], ['0']]


def test_a_bucket_has_one_dtype_and_groups_stay_together():
    mixed = slots(10, 20, 30, dtypes={1: torch.float64})
    assert names(buckets.plan(mixed, [])) == [['1'], ['2', '0']]
    grouped = slots(10, 20, 30, 40)
    plan = buckets.plan(grouped, [[grouped[0], grouped[2]], [grouped[3]]])
    assert names(plan) == [['3'], ['1'], ['2', '0']]
