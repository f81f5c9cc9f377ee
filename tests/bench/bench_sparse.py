# SPDX-License-Identifier: Apache-2.0
"""The gradient of an embedding of 64 float32 a row, of which each rank has touched 4,096 rows.

usage: bench_sparse.py FOLDER RANK RANKS {rueda,torch} [PORT]
kinds: optimizer (synchronize() of a DistributedOptimizer), call (sparse_allreduce_async),
       gather (indices and values of all ranks, duplicates included), dense (the whole table);
       with -text, token ids of a text (Zipf), in which rows repeat, else each row once.
One torch thread a rank, pinned to a core. BYTES are those of the table.
"""
import os
import sys
from collections import namedtuple

import torch

from lib.rank_gang import RankGang

WIDTH, TOUCHED = 64, 4096

# What one rank has after backward: ids as (n,) int64, with duplicates; values as (n, WIDTH).
Gradient = namedtuple("Gradient", "ids values")


def token_ids(rows, rank, text):
    """Ids of TOUCHED different rows; with `text`, as many as rank 0 needs to touch so many."""
    generator = torch.Generator().manual_seed(rank)
    if not text:
        return torch.randperm(rows, generator=generator)[:TOUCHED]
    shares = 1.0 / torch.arange(1, rows + 1, dtype=torch.float64)
    steps = torch.cumsum(shares / shares.sum(), 0)

    def draw(seed):
        points = torch.rand(40 * TOUCHED, generator=torch.Generator().manual_seed(seed),
                            dtype=torch.float64)
        return torch.searchsorted(steps, points).clamp(max=rows - 1)

    seen, count = set(), 0
    for count, row in enumerate(draw(0).tolist(), 1):
        seen.add(row)
        if len(seen) == TOUCHED:
            break
    return draw(rank)[:count]


def make_gradient(rows, rank, text):
    """The gradient of one rank, which every rank can make."""
    ids = token_ids(rows, rank, text)
    values = torch.randn(len(ids), WIDTH, generator=torch.Generator().manual_seed(rank))
    return Gradient(ids, values)


def as_sparse(gradient, rows):
    """What backward puts into `.grad`."""
    return torch.sparse_coo_tensor(gradient.ids.unsqueeze(0), gradient.values, (rows, WIDTH))


class Rueda:
    """The ways of rueda.torch."""

    def __init__(self):
        import rueda.torch as hvd
        hvd.init()
        self.hvd = hvd
        self._optimizers = {}

    def way(self, kind, gradient, rows):
        """(prepare, call): `call()` returns the mean of all ranks."""
        hvd = self.hvd
        if kind == "optimizer":
            optimizer, weight = self._optimizer(rows)

            def prepare():
                weight.grad = as_sparse(gradient, rows)
            return prepare, lambda: optimizer.synchronize() or weight.grad
        if kind == "call":
            return None, lambda: hvd.sparse_allreduce_async(as_sparse(gradient, rows), "call")()
        if kind == "gather":
            return None, lambda: self._gather(gradient, rows)
        table = hvd.shared_zeros(rows, WIDTH)

        def fill():
            table.zero_().index_add_(0, *gradient)
        return fill, lambda: hvd.allreduce_(table, name=f"dense.{rows}")

    def _optimizer(self, rows):
        if rows not in self._optimizers:
            model = torch.nn.Embedding(rows, WIDTH, sparse=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self._optimizers[rows] = (self.hvd.DistributedOptimizer(
                optimizer, named_parameters=model.named_parameters()), model.weight)
        return self._optimizers[rows]

    def _gather(self, gradient, rows):
        hvd = self.hvd
        handles = [hvd.allgather_async(tensor, name=name)
                   for tensor, name in zip(gradient, Gradient._fields)]
        ids, values = map(hvd.synchronize, handles)
        return as_sparse(Gradient(ids, values / hvd.size()), rows)


class Torch:
    """The ways of torch.distributed over gloo on loopback."""

    def __init__(self, rank, ranks, port):
        import torch.distributed as dist
        os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        self.dist, self.ranks = dist, ranks

    def way(self, kind, gradient, rows):
        """As Rueda.way()."""
        if kind == "gather":
            return None, lambda: self._gather(gradient, rows)
        table = torch.zeros(rows, WIDTH)

        def fill():
            table.zero_().index_add_(0, *gradient)

        def call():
            self.dist.all_reduce(table)
            return table.div_(self.ranks)
        return fill, call

    def _gather(self, gradient, rows):
        """Both at once; ranks have equally many rows, so that nothing need be asked before."""
        outputs = [[torch.empty_like(tensor) for _ in range(self.ranks)] for tensor in gradient]
        for work in [self.dist.all_gather(output, tensor, async_op=True)
                     for output, tensor in zip(outputs, gradient)]:
            work.wait()
        ids, values = map(torch.cat, outputs)
        return as_sparse(Gradient(ids, values / self.ranks), rows)


def main():
    """One rank: joins, then serves the driver's commands."""
    folder, rank, ranks, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    torch.set_num_threads(1)
    gang = RankGang(folder, rank, ranks)
    library = Rueda() if mode == "rueda" else Torch(rank, ranks, sys.argv[5])
    for command in gang.commands():
        kind, _, text = command.kind.partition("-")
        if kind not in ("gather", "dense") + (("optimizer", "call") if mode == "rueda" else ()):
            gang.fail(f"does not know how to measure '{command.kind}'")
        rows = command.bytes // WIDTH // 4
        gradients = [make_gradient(rows, other, text == "text") for other in range(ranks)]
        merged = [torch.cat(parts) for parts in zip(*gradients)]
        wanted = as_sparse(Gradient(merged[0], merged[1] / ranks), rows).coalesce()
        prepare, call = library.way(kind, gradients[rank], rows)

        def check(result):
            found = result if result.is_sparse else result.sparse_mask(wanted)
            found = found.coalesce()
            return (torch.equal(found.indices(), wanted.indices())
                    and torch.allclose(found.values(), wanted.values(), atol=1e-3))

        gang.time_calls(command, prepare, call, check, meet=True)


if __name__ == "__main__":
    main()
