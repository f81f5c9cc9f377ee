# SPDX-License-Identifier: Apache-2.0
"""The environment of a rank. Pure."""


def of_rank(base, rank, job):
    """A copy of `base` with what rank number `rank` needs to join `job`.

    Topology variables come under both names, since scripts written for Horovod read them.
    """
    environment = dict(base)
    topology = {
        'RANK': rank, 'SIZE': job.size, 'LOCAL_RANK': rank, 'LOCAL_SIZE': job.size,
        'CROSS_RANK': 0, 'CROSS_SIZE': 1, 'HOSTNAME': job.hostname,
    }
    if job.start_timeout:
        topology['START_TIMEOUT'] = job.start_timeout
    for name, value in topology.items():
        environment['RUEDA_' + name] = environment['HOROVOD_' + name] = str(value)
    environment['RUEDA_JOB'] = job.name
    if job.socket:
        environment['RUEDA_SOCKET'] = job.socket
    else:
        environment.pop('RUEDA_SOCKET', None)
    environment['HOROVOD_CONTROLLER'] = 'gloo'
    environment['HOROVOD_CPU_OPERATIONS'] = 'gloo'
    environment['PYTHONUNBUFFERED'] = '1'
    return environment


def with_settings(base, settings, options=()):
    """A copy of `base` with the `NAME=VALUE` of --env, where a bare NAME stays as it is.

    `options`: variables without their prefix, which come under both names.
    """
    environment = dict(base)
    for name, value in dict(options).items():
        environment['RUEDA_' + name] = environment['HOROVOD_' + name] = value
    for setting in settings:
        name, equals, value = setting.partition('=')
        if equals:
            environment[name] = value
    return environment
