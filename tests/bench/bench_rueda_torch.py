# SPDX-License-Identifier: Apache-2.0
"""rueda.torch as a training script calls it: torch tensors, in place, pinned to a core.

usage: bench_rueda_torch.py FOLDER RANK RANKS   (rank, size, job and socket are in the environment)
kinds: {shared,private}-{sync,async}, {shared,private}-resnet-{sync,async,grouped}
"""
import os
import sys

import torch

import rueda.torch as rt
from lib.rank_gang import RankGang, resnet50_shapes


def sum_each(tensors, names):
    """One blocking call a tensor."""
    for tensor, name in zip(tensors, names):
        rt.allreduce_(tensor, op=rt.Sum, name=name)


def sum_started(tensors, names):
    """All of them started one by one, then waited for."""
    handles = [rt.allreduce_async_(tensor, op=rt.Sum, name=name)
               for tensor, name in zip(tensors, names)]
    for handle in handles:
        rt.synchronize(handle)


def sum_grouped(tensors, names):
    """All of them by one call."""
    rt.grouped_allreduce_(tensors, op=rt.Sum, name=names[0])


# By the end of the kind.
RUNS = {"sync": sum_each, "async": sum_started, "grouped": sum_grouped}


def main():
    """One rank: joins the job, then serves the driver's commands."""
    folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    torch.set_num_threads(1)
    gang = RankGang(folder, rank, ranks)
    rt.init()
    for command in gang.commands():
        memory, _, kind = command.kind.partition("-")
        zeros = {"shared": rt.shared_zeros, "private": torch.zeros}[memory]
        if kind in ("sync", "async"):
            tensors = [zeros(command.bytes // 4)]
        elif kind in ("resnet-sync", "resnet-async", "resnet-grouped"):
            tensors = [zeros(shape) for shape in resnet50_shapes()]
        else:
            gang.fail(f"does not know how to measure '{command.kind}'")
        names = [f"tensor.{i}.{tensor.numel()}" for i, tensor in enumerate(tensors)]
        run = RUNS[kind.rpartition("-")[2]]
        gang.measure(command, tensors, lambda: run(tensors, names))
    rt.shutdown()


if __name__ == "__main__":
    main()
