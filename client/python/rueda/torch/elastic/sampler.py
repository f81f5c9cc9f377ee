# SPDX-License-Identifier: Apache-2.0
"""A sampler that goes on in the middle of an epoch, with any number of ranks."""

import itertools

import torch

import rueda


class ElasticSampler(torch.utils.data.Sampler):
    """Deals the indices of a dataset out to the ranks, those of this epoch that are still to come.

    `shuffle`: in an order that depends on `seed` and the epoch only. All ranks get the same number
    of indices: where they do not divide, some of those to come are given out twice. A new iterator
    begins behind what was recorded, so record each batch, and make the DataLoader's iterator anew
    after a failure. One thread. ValueError before init().
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch):
        """Begins an epoch. To be called at the end of the one before, not at the start.

        At the start it would forget what of a restored epoch was done.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Notes that each rank has done a batch of `batch_size`. The number of the batch is unused.

        Has no effect on an iterator that has begun.
        """
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self):
        """The epoch and how many indices of it are done, over all ranks."""
        return {'epoch': self.epoch, 'processed_num': self.processed_num}

    def load_state_dict(self, state_dict):
        """Goes to where the other sampler was, and deals the rest out."""
        self.epoch = state_dict['epoch']
        self.processed_num = state_dict['processed_num']
        self.reset()

    def reset(self):
        """Deals out what is to come of this epoch among the ranks of the present session."""
        self.num_replicas = rueda.size()
        self.rank = rueda.rank()
        self.remaining_indices = self._order()[self.processed_num:]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _order(self):
        if not self.shuffle:
            return list(range(len(self.dataset)))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(len(self.dataset), generator=generator).tolist()

    def __iter__(self):
        """The indices of this rank."""
        padded = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        return itertools.islice(padded, self.rank, None, self.num_replicas)

    def __len__(self):
        return self.num_samples
