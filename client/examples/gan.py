#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GAN: two networks and two distributed optimizers in one process, which take turns.

    python gan.py --save one.pt
    ruedarun -np 2 python gan.py --against one.pt

A generator draws digits, a discriminator tells them from real ones. Three things to know:

- Make the optimizers in the same order on all ranks.
- The generator's loss goes through the discriminator. backward(inputs=...) keeps it from leaving
  gradients there: the optimizer of the discriminator would count and reduce them.
- Batch norm over a rank's share is another network for each number of ranks. SyncBatchNorm takes
  its statistics over all ranks.

The measure is the Frechet distance between the drawn and the real images, each seen as a normal
distribution of 7 x 7 pixels: 0 if these are the same. Last bits grow in the contest of the two:
after 20 epochs parameters of two runs need not agree, though those of all ranks do, and the
distance is no more than 0.15 above the one of one process. With --float64 --epochs 1 the last bits
are still small: no parameter may differ by more than 1e-9.
"""

import sys

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd

GLOBAL_BATCH = 60
NOISE = 32
SIDE = 14
TOLERANCE = {'distance': common.at_most(0.15)}
TOLERANCE_FLOAT64 = {'distance': common.within(1e-9), 'parameters': common.within(1e-9)}


def make_generator():
    """From [n, NOISE] to images [n, 1, SIDE, SIDE] in 0..1."""
    half = SIDE // 2
    return torch.nn.Sequential(
        torch.nn.Linear(NOISE, 32 * half * half, bias=False),
        torch.nn.Unflatten(1, (32, half, half)),
        hvd.SyncBatchNorm(32), torch.nn.ReLU(), torch.nn.Upsample(scale_factor=2),
        torch.nn.Conv2d(32, 16, 3, padding=1, bias=False), hvd.SyncBatchNorm(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 1, 3, padding=1), torch.nn.Sigmoid())


def make_discriminator():
    """From images to scores: positive for real ones."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 4, stride=2, padding=1), torch.nn.LeakyReLU(0.2),
        torch.nn.Flatten(), torch.nn.Linear(16 * (SIDE // 2) ** 2, 64), torch.nn.LeakyReLU(0.2),
        torch.nn.Linear(64, 1))


def distributed_adam(model, learning_rate):
    """An optimizer for one of the two, which begins as on rank 0."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.5, 0.99))
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer


def score_loss(scores, real):
    """How far the scores are from saying that all images are real, or none."""
    wanted = torch.full_like(scores, float(real))
    return functional.binary_cross_entropy_with_logits(scores, wanted)


def train_epoch(networks, optimizers, images, seed, most):
    """At most `most` batches. Each trains the discriminator once, then the generator once."""
    generator, discriminator = networks
    generator_optimizer, discriminator_optimizer = optimizers
    source = torch.Generator().manual_seed(seed)
    for batch in common.batches(len(images), GLOBAL_BATCH, seed)[:most]:
        # All ranks draw the noise of the whole batch, so that it is the same for any number.
        noise = common.own_share(torch.randn(GLOBAL_BATCH, NOISE, generator=source))
        real = images[common.own_share(batch)]
        drawn = generator(noise)

        discriminator_optimizer.zero_grad()
        loss = (score_loss(discriminator(real), True)
                + score_loss(discriminator(drawn.detach()), False))
        loss.backward()
        discriminator_optimizer.step()

        generator_optimizer.zero_grad()
        loss = score_loss(discriminator(drawn), True)
        loss.backward(inputs=list(generator.parameters()))
        generator_optimizer.step()


def distribution(images):
    """Mean and covariance of the images, in 7 x 7 pixels."""
    pixels = functional.adaptive_avg_pool2d(images, 7).flatten(1).double()
    centred = pixels - pixels.mean(0)
    return pixels.mean(0), centred.T @ centred / (len(pixels) - 1)


def frechet_distance(first, second):
    """Between the distributions of two sets of images."""
    (mean, covariance), (other_mean, other_covariance) = distribution(first), distribution(second)
    eigenvalues = torch.linalg.eigvals(covariance @ other_covariance).real.clamp(min=0)
    return ((mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace()
            - 2 * eigenvalues.sqrt().sum()).item()


@torch.no_grad()
def distance_of(generator, images, seed):
    """Between images and as many drawn ones; the same on all ranks."""
    generator.eval()
    noise = torch.randn(len(images), NOISE, generator=torch.Generator().manual_seed(seed))
    distance = frechet_distance(generator(noise), images)
    generator.train()
    return distance


def main():
    """Returns the exit status; see common.finish()."""
    parser = common.parser_for(__doc__, epochs=20)
    parser.add_argument('--float64', action='store_true',
                        help='compute in double precision, to compare the first epoch')
    options = parser.parse_args()
    if options.float64:
        torch.set_default_dtype(torch.float64)
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    (images, _), (test_images, _) = common.load_images()
    images, test_images = (functional.adaptive_avg_pool2d(one.to(torch.get_default_dtype()), SIDE)
                           for one in (images, test_images))
    networks = torch.nn.ModuleDict({'generator': make_generator(),
                                    'discriminator': make_discriminator()})
    optimizers = [distributed_adam(networks['generator'], 2e-3),
                  distributed_adam(networks['discriminator'], 1e-3)]
    common.say(f'distance of the training images {frechet_distance(images, test_images):.2f}, of '
               f'an untrained generator {distance_of(networks["generator"], test_images, 1):.2f}')
    for epoch in range(1 if options.short else options.epochs):
        train_epoch(networks.values(), optimizers, images, options.seed + epoch,
                    25 if options.short else None)
        result = {'distance': distance_of(networks['generator'], test_images, options.seed + 1)}
        common.say(f'epoch {epoch + 1}: distance {result["distance"]:.3f}')
    return common.finish(options, networks.state_dict(), result,
                         TOLERANCE_FLOAT64 if options.float64 else TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
