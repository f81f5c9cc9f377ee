#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with op=Adasum: more ranks, each with a batch of its own, and the learning rate of one.

    python adasum.py --save one.pt
    ruedarun -np 2 python adasum.py --against one.pt
    ruedarun -np 2 python adasum.py --op average --against one.pt

Here more ranks mean a larger global batch: all see another part of the data, so that N ranks take
an Nth of the steps per epoch. An average of gradients then needs a larger learning rate, which has
to be found. Adasum combines what the ranks' steps do: as a sum where they point to different
directions, as an average where to the same one. So the learning rate is the one that suits a
single process with the batch of one rank; do not multiply it by the number of ranks.

The two runs are not the same training. What is asked for is that N ranks, in as many epochs as one
process and so in 1/N of the steps, reach at least its accuracy minus 2 % of the test images, and
its loss plus 0.03; and that all ranks have the same parameters. --op average falls behind that.
"""

import sys

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd

RANK_BATCH = 20
TOLERANCE = {'accuracy': common.at_least(0.02), 'loss': common.at_most(0.03)}


def make_model(side):
    """One hidden layer."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(side * side, 64),
                               torch.nn.Tanh(), torch.nn.Linear(64, 10))


def train_epoch(model, optimizer, images, labels, seed):
    """A step with a batch per rank each; returns their number."""
    batches = common.batches(len(labels), RANK_BATCH * hvd.size(), seed)
    for batch in batches:
        own = common.own_share(batch)
        optimizer.zero_grad()
        functional.cross_entropy(model(images[own]), labels[own]).backward()
        optimizer.step()
    return len(batches)


def main():
    """Returns the exit status; see common.finish()."""
    parser = common.parser_for(__doc__, epochs=3)
    parser.add_argument('--op', choices=['adasum', 'average'], default='adasum')
    parser.add_argument('--lr', type=float, default=0.1, help='learning rate, for any number of '
                        'ranks (default %(default)s)')
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    (images, labels), test = common.load_images()
    model = make_model(images.shape[-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        op=hvd.Adasum if options.op == 'adasum' else hvd.Average)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(1 if options.short else options.epochs):
        steps = train_epoch(model, optimizer, images, labels, options.seed + epoch)
        result = common.evaluate(model, *test)
        common.say(f'epoch {epoch + 1}: {steps} steps, loss {result["loss"]:.3f}, accuracy '
                   f'{result["accuracy"]:.1%}')
    return common.finish(options, model.state_dict(), result, TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
