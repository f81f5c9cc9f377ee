# SPDX-License-Identifier: Apache-2.0
"""Life cycle, topology and what is built in: the functions of `rueda` itself."""

from rueda import (Adasum, Average, Max, Min, Product, Sum, ccl_built, cross_rank, cross_size,
                   cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous,
                   is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                   mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size,
                   start_timeline, stop_timeline)

__all__ = [
    'Adasum', 'Average', 'Max', 'Min', 'Product', 'Sum', 'ccl_built', 'cross_rank', 'cross_size',
    'cuda_built', 'ddl_built', 'gloo_built', 'gloo_enabled', 'init', 'is_homogeneous',
    'is_initialized', 'local_rank', 'local_size', 'mpi_built', 'mpi_enabled',
    'mpi_threads_supported', 'nccl_built', 'rank', 'rocm_built', 'shutdown', 'size',
    'start_timeline', 'stop_timeline',
]
