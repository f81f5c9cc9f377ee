# SPDX-License-Identifier: Apache-2.0
"""A small model with data that differs by step and rank, for the tests of DistributedOptimizer."""

import torch

import rueda.torch as hvd

BATCH = 6


def network(dtype=torch.float64, width=7):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(),
                               torch.nn.Linear(width, 2)).to(dtype)


def data(step, rank, dtype=torch.float64):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 4, generator=generator, dtype=torch.float64).to(dtype)


def loss_of(model, inputs):
    return (model(inputs) - 1.0).pow(2).mean()


def train_alone(make, steps, dtype=torch.float64, width=7):
    """What one process makes of the data of all ranks."""
    model = network(dtype, width)
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        inputs = torch.cat([data(step, rank, dtype) for rank in range(hvd.size())])
        loss_of(model, inputs).backward()
        optimizer.step()
    return model


def assert_same(model, wanted, tolerance=1e-9):
    for parameter, other in zip(model.parameters(), wanted.parameters()):
        assert torch.allclose(parameter, other, rtol=tolerance, atol=tolerance), (
            (parameter - other).abs().max())
    for parameters in hvd.allgather_object(list(model.parameters())):
        for one, other in zip(model.parameters(), parameters):
            assert torch.equal(one, other), 'ranks have other bits'


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def wrap(model, make=sgd, **options):
    return hvd.DistributedOptimizer(make(model.parameters()),
                                    named_parameters=model.named_parameters(), **options)
