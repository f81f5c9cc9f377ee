# SPDX-License-Identifier: Apache-2.0
"""The command line of ruedarun: its own options, and those of horovodrun. Pure.

Options of horovodrun that change nothing here are accepted, so that existing job scripts run; one
INFO line names those that were given.
"""

import argparse
import math

# Options of horovodrun without effect here, by the number of their values. They concern ssh, MPI,
# networks, elastic jobs, or knobs of Horovod's own runtime.
_WITHOUT_EFFECT = {
    0: ['--disable-cache', '--hierarchical-allreduce', '--no-hierarchical-allreduce',
        '--hierarchical-allgather', '--no-hierarchical-allgather', '--torus-allreduce',
        '--no-torus-allreduce', '--autotune', '--no-autotune', '--mpi-threads-disable',
        '--no-mpi-threads-disable', '--tcp', '--log-with-timestamp', '--log-without-timestamp',
        '--log-hide-timestamp', '--no-log-hide-timestamp', '--gloo', '--mpi', '--jsrun'],
    1: ['--network-interfaces', '--network-interface', '--config-file', '-p', '--ssh-port', '-i',
        '--ssh-identity-file', '--cache-capacity',
        '--autotune-log-file', '--autotune-warmup-samples', '--autotune-steps-per-sample',
        '--autotune-bayes-opt-max-samples', '--autotune-gaussian-process-noise', '--min-np',
        '--min-num-proc', '--max-np', '--max-num-proc', '--slots-per-host', '--elastic-timeout',
        '--reset-limit', '--mpi-args', '--binding-args',
        '--num-nccl-streams', '--thread-affinity', '--gloo-timeout-seconds'],
    2: ['--blacklist-cooldown-range'],
}


_LOG_LEVELS = {'TRACE': 'debug', 'DEBUG': 'debug', 'INFO': 'info', 'WARNING': 'warning',
               'ERROR': 'error', 'FATAL': 'off'}


class _Ignored(argparse.Action):
    """Notes that an option without effect was given."""

    def __call__(self, parser, namespace, values, option_string=None):
        namespace.ignored = getattr(namespace, 'ignored', []) + [option_string]


def _parser():
    parser = argparse.ArgumentParser(
        prog='ruedarun', allow_abbrev=False,
        usage='ruedarun -np N [options] command [arguments]',
        description='Starts N ranks of a training job on this host and looks after them.',
        epilog='The other options of horovodrun are accepted too; they change nothing here.')
    parser.add_argument('-v', '--version', action='store_true', help='print the version and exit')
    parser.add_argument('-cb', '--check-build', action='store_true',
                        help='print which frameworks and programs are usable, and exit')
    parser.add_argument('-np', '--num-proc', type=_positive, metavar='N', help='number of ranks')
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument('-H', '--hosts', metavar='localhost:N',
                       help='this host and its slots; ranks run on this host only')
    hosts.add_argument('-hostfile', '--hostfile', metavar='FILE',
                       help='file with lines "host slots=N"')
    hosts.add_argument('--host-discovery-script', metavar='SCRIPT',
                       help='program that prints "host:slots"; asked once, at the start')
    parser.add_argument('--env', action='append', default=[], metavar='NAME[=VALUE]',
                        help='set a variable for the ranks; all others are passed on anyway')
    parser.add_argument('--tag-output', '--prefix-rank', action='store_true', dest='tag_output',
                        help='start each line of output with [rank]<stdout>: or [rank]<stderr>:')
    parser.add_argument('-prefix-timestamp', '--prefix-output-with-timestamp', action='store_true',
                        dest='timestamp', help='as --tag-output, with the time in front')
    parser.add_argument('--output-filename', metavar='DIR',
                        help='write output to DIR/rank.N/stdout and stderr as well')
    parser.add_argument('--start-timeout', type=_positive, metavar='S',
                        help='seconds for all ranks to arrive in init(); default 30')
    parser.add_argument('--grace-period', type=_at_least_0, default=5.0, metavar='S',
                        help='seconds between SIGTERM and SIGKILL; default 5')
    parser.add_argument('--private', action='store_true',
                        help='use a private daemon even where one runs as a service')
    parser.add_argument('--as-horovod', action='store_true',
                        help='in the ranks, `import horovod` gives rueda; refused where Horovod is '
                             'installed, unless RUEDA_AS_HOROVOD_FORCE=1')
    _add_settings(parser)
    parser.add_argument('--log-level', type=str.upper, choices=list(_LOG_LEVELS),
                        help='how much a private daemon logs; default WARNING')
    parser.add_argument('--verdict-file', help=argparse.SUPPRESS)  # For rueda.run().
    parser.add_argument('--verbose', action='store_true', help='say what is being done')
    for count, names in _WITHOUT_EFFECT.items():
        for name in names:
            parser.add_argument(name, nargs=count, action=_Ignored, help=argparse.SUPPRESS,
                                default=argparse.SUPPRESS)
    parser.add_argument('command', nargs=argparse.REMAINDER, help='the program of each rank')
    return parser


# The option that sets each variable of the ranks, and how its value becomes that of the variable.
_SETTINGS = {
    'FUSION_THRESHOLD': ('fusion_threshold_mb', lambda mb: int(mb * (1 << 20))),
    'CYCLE_TIME': ('cycle_time_ms', lambda ms: f'{ms:g}'),
    'STALL_CHECK_TIME_SECONDS': ('stall_check_warning_time_seconds', lambda s: f'{s:g}'),
    'STALL_SHUTDOWN_TIME_SECONDS': ('stall_check_shutdown_time_seconds', lambda s: f'{s:g}'),
    'STALL_CHECK_DISABLE': ('no_stall_check', int),
    'TIMELINE': ('timeline_filename', str),
    'TIMELINE_MARK_CYCLES': ('timeline_mark_cycles', int),
}


def _add_settings(parser):
    group = parser.add_argument_group('settings of the job, which win over variables')
    group.add_argument('--fusion-threshold-mb', type=_at_least_0, metavar='MB',
                       help='largest operation made of several; 0: none')
    group.add_argument('--cycle-time-ms', type=_at_least_0, metavar='MS',
                       help='collect operations for that long before they run; 0: do not')
    group.add_argument('--stall-check-warning-time-seconds', type=_at_least_0, metavar='S',
                       help='report an operation that waits for ranks after S; 0: never')
    group.add_argument('--stall-check-shutdown-time-seconds', type=_at_least_0, metavar='S',
                       help='fail it after S; 0: never')
    group.add_argument('--no-stall-check', action='store_const', const=True, default=None,
                       help='neither')
    group.add_argument('--stall-check', dest='no_stall_check', action='store_const', const=False,
                       help=argparse.SUPPRESS)
    group.add_argument('--timeline-filename', metavar='FILE',
                       help='where rank 0 writes a timeline; DYNAMIC: the program starts one')
    group.add_argument('--timeline-mark-cycles', action='store_const', const=True, default=None,
                       help='with the beginnings of cycles')
    group.add_argument('--no-timeline-mark-cycles', dest='timeline_mark_cycles',
                       action='store_const', const=False, help=argparse.SUPPRESS)


def settings(options):
    """Variables of the ranks, without their prefixes, that the options set."""
    given = {variable: (getattr(options, name), convert)
             for variable, (name, convert) in _SETTINGS.items()}
    return {variable: str(convert(value)) for variable, (value, convert) in given.items()
            if value is not None}


def _positive(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f'{text} must be greater than 0')
    return value


def _finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f'{text} must be a finite number')
    return value


def _at_least_0(text):
    value = _finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f'{text} must not be less than 0')
    return value


def parse(arguments):
    """The parsed command line. Exits with status 2 and a message when it is malformed.

    `ignored` lists the given options that have no effect.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    options.ignored = getattr(options, 'ignored', [])
    if options.command[:1] == ['--']:
        options.command = options.command[1:]
    if options.version or options.check_build:
        return options
    if not options.command:
        parser.error('which command? (ruedarun -np 2 python train.py)')
    if not (options.num_proc or options.hosts or options.hostfile
            or options.host_discovery_script):
        parser.error('how many ranks? (-np N)')
    for pair in options.env:
        if not pair.split('=', 1)[0]:
            parser.error(f'--env {pair}: the name is empty')
    return options


def daemon_arguments(options):
    """What a private daemon is started with, from the options that concern it."""
    level = options.log_level or ('INFO' if options.verbose else 'WARNING')
    return ['--log-level', _LOG_LEVELS[level]]
