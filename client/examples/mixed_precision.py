#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in bfloat16 by autocast, and sends the gradients in 16 bits.

    python mixed_precision.py --save one.pt
    ruedarun -np 2 python mixed_precision.py --against one.pt

Weights and their updates stay in float32, products are computed in bfloat16, and a gradient takes
half the bytes on its way. --precision float32 --compression none does without both, which shows
what they cost. bfloat16 has the range of float32, so that no loss needs scaling; Compression.fp16
is three bits more exact, and overflows at 65,504.

A bfloat16 is exact to 0.4 %, and each rank rounds for itself: parameters of 2 ranks and of one
process drift apart in the third digit. What holds is the accuracy, to 1 % of the test images, and
the loss, to 0.01.
"""

import sys

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd

GLOBAL_BATCH = 60
TOLERANCE = {'accuracy': common.within(0.01), 'loss': common.within(0.01)}


def make_model(side):
    """Three linear layers, which bfloat16 suits on a CPU."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(side * side, 256),
                               torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU(),
                               torch.nn.Linear(128, 10))


def train_epoch(model, optimizer, images, labels, options, epoch):
    """Trains on this rank's share of each batch; returns the mean loss over all ranks."""
    losses = []
    for batch in common.batches(len(labels), GLOBAL_BATCH, options.seed + epoch):
        own = common.own_share(batch)
        optimizer.zero_grad()
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=options.precision == 'bfloat16'):
            outputs = model(images[own])
        # The loss in float32, and backward outside of autocast, as PyTorch recommends.
        loss = functional.cross_entropy(outputs.float(), labels[own])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return common.over_ranks(sum(losses) / len(losses), hvd.Average)


def main():
    """Returns the exit status; see common.finish()."""
    parser = common.parser_for(__doc__, epochs=5)
    parser.add_argument('--precision', choices=['bfloat16', 'float32'], default='bfloat16')
    parser.add_argument('--compression', choices=['bf16', 'fp16', 'none'], default='bf16',
                        help='what gradients are sent in (default %(default)s)')
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    (images, labels), test = common.load_images()
    model = make_model(images.shape[-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, options.compression))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(1 if options.short else options.epochs):
        loss = train_epoch(model, optimizer, images, labels, options, epoch)
        result = common.evaluate(model, *test)
        common.say(f'epoch {epoch + 1}: training loss {loss:.4f}, accuracy '
                   f'{result["accuracy"]:.1%}')
    return common.finish(options, model.state_dict(), result, TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
