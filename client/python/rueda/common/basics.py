# SPDX-License-Identifier: Apache-2.0
"""Life cycle, topology and what is built in: the functions of `rueda` itself."""

from rueda import (Adasum, Average, Max, Min, Product, Sum, ccl_built, cross_rank, cross_size,
                   cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous,
                   is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                   mpi_threads_supported, nccl_built, process_sets, rank, rocm_built, shutdown,
                   size, start_timeline, stop_timeline)

__all__ = [
    'Adasum', 'Average', 'Max', 'Min', 'Product', 'Sum', 'ccl_built', 'cross_rank', 'cross_size',
    'cuda_built', 'ddl_built', 'gloo_built', 'gloo_enabled', 'init', 'is_homogeneous',
    'is_initialized', 'local_rank', 'local_size', 'mpi_built', 'mpi_enabled',
    'mpi_threads_supported', 'nccl_built', 'rank', 'rocm_built', 'shutdown', 'size',
    'start_timeline', 'stop_timeline',
]

MPI_LIB_CTYPES = ()  # There is no MPI library to load.


# What tests of scripts ask of the object of that name in Horovod, by the number of a process set.

def _get_process_set_ids_and_ranks():
    return process_sets.ids_and_ranks()


def _process_set_size(number):
    return process_sets.process_set_by_id(number).size()


def _process_set_rank(number):
    return process_sets.process_set_by_id(number).rank()


def _add_process_set_impl(ranks):
    return process_sets.add_process_set(ranks).process_set_id


def _remove_process_set_impl(number):
    removed = process_sets.remove_process_set(process_sets.process_set_by_id(number))
    return number if removed else None


def _comm_process_set_id(comm):
    raise NotImplementedError('rueda does not use MPI: process sets are made of lists of ranks')
