# SPDX-License-Identifier: Apache-2.0
"""Some ranks of a job as one of their own: the argument `comm` of init(). Pure."""

from rueda.exceptions import StartError

# The field of rueda_options less its NUL.
_JOB_BYTES = 127


def narrow(options, comm):
    """Makes the options those of a job of some of its ranks. StartError: `comm` cannot be one."""
    known = range(options.size)
    if options.rank not in comm or len(set(comm)) < len(comm) or any(r not in known for r in comm):
        raise StartError(f'comm={list(comm)} must hold ranks of the job, 0 to {options.size - 1}, '
                         f'each once, and this one, {options.rank}')
    ranks = sorted(comm)
    if len(ranks) == options.size:
        return
    job = options.job + b'/%x' % sum(1 << rank for rank in ranks)
    if len(job) > _JOB_BYTES:
        raise StartError(f'comm={ranks} makes the job name {job.decode(errors="replace")}, which '
                         f'has {len(job)} bytes; the limit is {_JOB_BYTES}, see RUEDA_JOB')
    options.job = job
    options.rank, options.size = ranks.index(options.rank), len(ranks)
    # All ranks of a job are on this host.
    options.local_rank, options.local_size = options.rank, options.size
    options.cross_rank, options.cross_size = 0, 1
