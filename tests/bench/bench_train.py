# SPDX-License-Identifier: Apache-2.0
"""Trains small models on scikit-learn's digits, with rueda's optimizer or alone.

usage: bench_train.py FOLDER RANK RANKS {rueda,alone} DIGITS_CSV_GZ
kinds: cnn (152 KB of gradients), mlp (340 KB), mlp-wide (17.4 MB); resnet161 and small161, which
have the shapes of ResNet-50's 161 gradients, or 64 floats each, and next to no computation.
ITERATIONS counts steps.
The answer is microseconds a step, by the ranks' mean rate. One torch thread a rank, not pinned.
"""
import gzip
import sys
import time

import torch
from torch import nn

from lib.rank_gang import RankGang, answer, resnet50_shapes

BATCH = 64
WARM_UP_STEPS = 5


def load_digits(path):
    """Images as (n, 1, 8, 8) floats in [0, 1], and labels as (n,) int64."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = torch.tensor([[float(v) for v in line.split(",")] for line in file])
    return rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()


def make_model(kind):
    """A fresh model; equal weights on every rank."""
    torch.manual_seed(1)
    if kind in ("resnet161", "small161"):
        shapes = resnet50_shapes()
        return Synthetic(shapes if kind == "resnet161" else [(64,)] * len(shapes))
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 72), nn.ReLU(), nn.Linear(72, 10))
    width = {"mlp": 256, "mlp-wide": 2048}[kind]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 10))


class Synthetic(nn.Module):
    """Parameters of given shapes, with gradients that cost one pass over them."""

    def __init__(self, shapes):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes])

    def forward(self, images):
        """Scores of ten classes; the gradients depend on the images."""
        level = images.mean()
        return images.new_zeros(len(images), 10) + level * sum(
            weight.sum() for weight in self.weights) * 1e-9


class Trainer:
    """One model and its optimizer; with rueda when `hvd` is given."""

    def __init__(self, kind, data, rank, ranks, hvd):
        self.images, self.labels = (part[rank::ranks] for part in data)
        self.model = make_model(kind)
        self.loss = nn.CrossEntropyLoss()
        self.last_loss = float("nan")
        self._next = 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        if hvd is not None:
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, named_parameters=self.model.named_parameters())
            hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)

    def train(self, steps):
        """Runs `steps` steps over the rank's share of the images, again and again."""
        for _ in range(steps):
            if self._next + BATCH > len(self.labels):
                self._next = 0
            batch = slice(self._next, self._next + BATCH)
            self._next += BATCH
            self.optimizer.zero_grad()
            loss = self.loss(self.model(self.images[batch]), self.labels[batch])
            loss.backward()
            self.optimizer.step()
        self.last_loss = float(loss.detach())

    def checksum(self):
        """Sum of all weights, to compare the ranks."""
        return sum(float(p.detach().double().sum()) for p in self.model.parameters())


def measure(gang, trainer, steps, together):
    """Mean microseconds a step over the ranks' own rates; ends the gang on a wrong result."""
    trainer.train(WARM_UP_STEPS)
    gang.barrier()
    begin = time.perf_counter()
    trainer.train(steps)
    rate = steps / (time.perf_counter() - begin)
    rates = gang.exchange(rate)
    losses = gang.exchange(trainer.last_loss)
    sums = gang.exchange(trainer.checksum())
    if not all(value < 10 for value in losses):
        gang.fail(f"the loss went astray: {losses}")
    if together and any(value != sums[0] for value in sums):
        gang.fail(f"the ranks' weights differ: sums {sums}")
    return gang.ranks / sum(rates) * 1e6


def main():
    """One rank: loads the data, then trains on command. Each model lives through the run."""
    folder, rank, ranks, mode, data_path = (sys.argv[1], int(sys.argv[2]), int(sys.argv[3]),
                                            sys.argv[4], sys.argv[5])
    torch.set_num_threads(1)
    gang = RankGang(folder, rank, ranks)
    data = load_digits(data_path)
    hvd = None
    if mode == "rueda":
        import rueda.torch as hvd
        hvd.init()
    trainers = {}
    for command in gang.commands():
        if command.kind not in ("cnn", "mlp", "mlp-wide", "resnet161", "small161"):
            gang.fail(f"does not know how to train '{command.kind}'")
        if command.kind not in trainers:
            trainers[command.kind] = Trainer(command.kind, data, rank, ranks, hvd)
        us = measure(gang, trainers[command.kind], command.iterations, hvd is not None)
        if rank == 0:
            gang.reply(answer([us]))
    if hvd is not None:
        hvd.shutdown()


if __name__ == "__main__":
    main()
