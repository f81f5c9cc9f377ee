# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over gloo on loopback, in place, one torch thread a rank, not pinned.

usage: bench_torch.py FOLDER RANK RANKS PORT     kinds: sync, resnet-sync, resnet-async, resnet-flat
"""
import os
import sys

import torch
import torch.distributed as dist

from lib.rank_gang import RankGang, resnet50_shapes


def sum_started(tensors):
    """All of them started one by one, then waited for."""
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def main():
    """One rank: joins the group, then serves the driver's commands."""
    folder, rank, ranks, port = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    gang = RankGang(folder, rank, ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for command in gang.commands():
        if command.kind == "sync":
            tensors = [torch.zeros(command.bytes // 4)]
        elif command.kind == "resnet-flat":
            tensors = [torch.zeros(sum(torch.Size(s).numel() for s in resnet50_shapes()))]
        elif command.kind in ("resnet-sync", "resnet-async"):
            tensors = [torch.zeros(shape) for shape in resnet50_shapes()]
        else:
            gang.fail(f"does not know how to measure '{command.kind}'")
        if command.kind == "resnet-async":
            gang.measure(command, tensors, lambda: sum_started(tensors))
        else:
            gang.measure(command, tensors, lambda: [dist.all_reduce(t) for t in tensors])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
