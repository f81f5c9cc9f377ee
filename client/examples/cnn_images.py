#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on handwritten digits with any number of ranks.

    python cnn_images.py --save one.pt
    ruedarun -np 2 python cnn_images.py --against one.pt

A plain Horovod script; what rueda needs are the lines marked with (*). The global batch is the same
for any number of ranks, so that several ranks make the same steps as one process. After 3 epochs
no parameter may differ by more than 1e-4 from its value in one process (3e-6 was measured: sums
in another order differ in the last bits, and hundreds of steps add up).
"""

import sys
import time

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd  # (*)

GLOBAL_BATCH = 60  # Shared equally by 1 to 6 ranks, 10, 12, ... deploy/quickstart reads it here.
TOLERANCE = {'parameters': common.within(1e-4), 'accuracy': common.within(0.002)}


class Network(torch.nn.Module):
    """Two convolutions and two linear layers.

    Smooth throughout, so that several ranks can be compared with one process: with ReLU and max
    pooling a last bit may flip a choice, and 120 steps made 1e-2 of it (tanh and mean: 3e-6).
    """

    def __init__(self, side):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = torch.nn.Linear(32 * (side // 4) ** 2, 64)
        self.output = torch.nn.Linear(64, 10)

    def forward(self, images):
        images = functional.avg_pool2d(torch.tanh(self.first(images)), 2)
        images = functional.avg_pool2d(torch.tanh(self.second(images)), 2)
        return self.output(torch.tanh(self.hidden(images.flatten(1))))


def train_epoch(model, optimizer, images, labels, seed):
    """Trains on this rank's share of each batch; returns (mean loss, seconds, of which waiting)."""
    losses, communication, begin = [], 0.0, time.perf_counter()
    for batch in common.batches(len(labels), GLOBAL_BATCH, seed):
        own = common.own_share(batch)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[own]), labels[own])
        loss.backward()
        # step() alone would do; this way the time for the exchange is seen.
        before = time.perf_counter()
        optimizer.synchronize()
        communication += time.perf_counter() - before
        with optimizer.skip_synchronize():
            optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - begin
    return common.over_ranks(sum(losses) / len(losses), hvd.Average), seconds, communication


def main():
    """Returns the exit status; see common.finish()."""
    options = common.parser_for(__doc__, epochs=3).parse_args()
    hvd.init()  # (*)
    torch.set_num_threads(1)  # A core for each rank, whatever their number.
    # Different weights on each rank, until those of rank 0 are broadcast.
    torch.manual_seed(options.seed + hvd.rank())
    (images, labels), test = common.load_images()
    model = Network(images.shape[-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(  # (*)
        optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (*)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # (*)
    for epoch in range(1 if options.short else options.epochs):
        loss, seconds, communication = train_epoch(model, optimizer, images, labels,
                                                   options.seed + epoch)
        result = common.evaluate(model, *test)
        common.say(f'epoch {epoch + 1}: training loss {loss:.4f}, accuracy '
                   f'{result["accuracy"]:.1%}, {len(labels) / seconds:,.0f} images/s, '
                   f'{communication / seconds:.1%} of the time in communication')
    return common.finish(options, model.state_dict(), result, TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
