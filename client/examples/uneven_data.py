#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on shards of different lengths: a rank that has no more data joins, the others go on.

    python uneven_data.py --save one.pt
    ruedarun -np 2 python uneven_data.py --against one.pt

The images lie in shards, as files of a data set would, and each rank reads its own. A rank that is
through calls hvd.join(): it blocks until all have done so, and the allreduces of the others run as
though it gave zeros. Two things to know:

- An average still divides by the number of all ranks, so that steps become shorter near the end of
  an epoch. With --left-out the rank counts no more: the average is over the others.
- A rank that has joined misses the steps of the others. join() returns the rank that was last, and
  parameters and state of the optimizer come from there.

There is a shard for each rank; one process reads --shards of them side by side, two if that is not
given, and weighs them in the same way. Hence no parameter may differ by more than 1e-4.
"""

import sys

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd

SHARD_BATCH = 30
TOLERANCE = {'parameters': common.within(1e-4), 'accuracy': common.within(0.002)}


def own_shards(images, shards):
    """The numbers of the images of this rank, by shard. Each shard is longer than the one before.
    """
    if shards % hvd.size():
        sys.exit(f'{hvd.size()} ranks cannot share {shards} shards equally')
    lengths = torch.arange(shards) + shards  # The last has almost twice as many as the first.
    ends = (lengths.cumsum(0) * images // lengths.sum()).tolist()
    pieces = [torch.arange(first, end) for first, end in zip([0, *ends], ends)]
    return common.own_share(pieces)


def steps_of(shards, seed):
    """For each step the batches of the shards that still have one."""
    source = torch.Generator()
    piles = []
    for shard in shards:
        source.manual_seed(seed + int(shard[0]))
        piles.append(shard[torch.randperm(len(shard), generator=source)].split(SHARD_BATCH))
    for step in range(max(len(pile) for pile in piles)):
        yield [pile[step] for pile in piles if step < len(pile)]


def train_epoch(model, optimizer, data, shards, options, epoch):
    """Trains until no rank has data; returns the number of steps of this rank."""
    images, labels = data
    steps = 0
    for batches in steps_of(shards, options.seed + 10000 * epoch):
        optimizer.zero_grad()
        losses = [functional.cross_entropy(model(images[batch]), labels[batch])
                  for batch in batches]
        # A shard without data counts with zeros, as a rank does. With --left-out it does not count.
        loss = sum(losses) / (len(losses) if options.left_out else len(shards))
        loss.backward()
        optimizer.step()
        steps += 1
    last = hvd.join(left_out=options.left_out)
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)
    return steps


def main():
    """Returns the exit status; see common.finish()."""
    parser = common.parser_for(__doc__, epochs=8)
    parser.add_argument('--left-out', action='store_true',
                        help='average over the ranks that have data')
    parser.add_argument('--shards', type=int, help='number of shards (default: that of the ranks, '
                        'and at least 2)')
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    data, test = common.load_images()
    side = data[0].shape[-1]
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(side * side, 64),
                                torch.nn.Tanh(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    shards = own_shards(len(data[0]), options.shards or max(hvd.size(), 2))
    for epoch in range(2 if options.short else options.epochs):
        steps = train_epoch(model, optimizer, data, shards, options, epoch)
        result = common.evaluate(model, *test)
        by_rank = hvd.allgather(torch.tensor([steps])).tolist()
        common.say(f'epoch {epoch + 1}: accuracy {result["accuracy"]:.1%}, '
                   f'steps of the ranks: {by_rank}')
    return common.finish(options, model.state_dict(), result, TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
