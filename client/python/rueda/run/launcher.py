# SPDX-License-Identifier: Apache-2.0
"""The program ruedarun: starts a daemon if none runs, then the ranks, and waits for them."""

import collections
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import time

import rueda
from rueda import _alias, _daemon
from rueda.run import arguments, environment, hosts, output, processes, supervisor

# `socket` is None where the daemon of the host is used.
Job = collections.namedtuple('Job', 'name size hostname socket start_timeout')

_USAGE_ERROR = 2
_CANNOT_RUN = 126
_NOT_FOUND = 127
# How long a private daemon may take until it listens. It takes 5 ms; the rest is for a host in
# trouble.
_START_SECONDS = 30


def main(argv=None):
    """Runs the command line `argv`; returns the exit status.

    0 when all ranks succeeded, else that of the rank that failed first, 128 + number for a signal;
    2 for a wrong command line or setting, 126 when the daemon cannot start or output cannot be
    written, 127 when the command is missing.
    """
    _open_standard_descriptors()
    options = arguments.parse(sys.argv[1:] if argv is None else argv)
    if options.version:
        print(rueda.__version__)
        return 0
    if options.check_build:
        print(_build_report())
        return 0
    if options.ignored:
        _say('INFO: accepted, without effect here: ' + ' '.join(options.ignored))
    try:
        hostname, size = hosts.resolve(options)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _say(str(error))
        return _USAGE_ERROR
    reason = _alias_refusal(options) if options.as_horovod else None
    if reason is not None:
        _say(reason)
        return _USAGE_ERROR
    program = options.command[0]
    if shutil.which(program) is None:
        _say(f'{program}: command not found')
        return _NOT_FOUND
    return _run(options, hostname, size)


def _open_standard_descriptors():
    # Else our pipes would get these numbers, and with them what is meant for a user.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number: this one.
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or open(1, 'w', closefd=False)
    sys.stderr = sys.stderr or open(2, 'w', closefd=False)


def _run(options, hostname, size):
    guard = processes.Guard()
    signals = supervisor.Signals()
    daemon = None
    try:
        if options.private or not _daemon.system_socket_exists():
            daemon = _daemon.PrivateDaemon(False, arguments.daemon_arguments(options))
        job = Job(_daemon.unique_name('run'), size, hostname, daemon.socket if daemon else None,
                  options.start_timeout)
        _detail(options, f'job {job.name}, daemon at {job.socket or _daemon.SYSTEM_SOCKET}')
        return _supervise(options, job, signals, guard, daemon)
    except OSError as error:
        _say(str(error))
        return _CANNOT_RUN
    finally:
        signals.close()
        guard.close()
        if daemon is not None:
            _end_daemon(daemon)


def _supervise(options, job, signals, guard, daemon):
    outlets = output.own_outlets()
    watcher = supervisor.Supervisor(signals, guard, daemon.process if daemon else None,
                                    options.grace_period, outlets[1], options.verbose)
    if daemon is not None and not _await(daemon, watcher):
        return _USAGE_ERROR if daemon.process.returncode == _USAGE_ERROR else _CANNOT_RUN
    base = _base_environment(options)
    for number in range(job.size):
        if not watcher.goes_on():
            break
        rank, streams = _start_rank(options, job, number, environment.of_rank(base, number, job),
                                    outlets)
        watcher.add(rank, streams)
        watcher.say(f'rank {number} is process {rank.pid}', detail=True)
    status = watcher.run()
    if options.verdict_file:
        with open(options.verdict_file, 'wb') as file:
            pickle.dump(watcher.verdict(), file)
    return status


def _base_environment(options):
    """What the environments of all ranks have in common, but for the job."""
    settings = list(options.env)
    if options.timeline_filename is not None:
        settings.append(f'RUEDA_TIMELINE={options.timeline_filename}')
    if options.timeline_mark_cycles is not None:
        settings.append(f'RUEDA_TIMELINE_MARK_CYCLES={options.timeline_mark_cycles}')
    base = environment.with_settings(os.environ, settings)
    return _alias.environment(base) if options.as_horovod else base


def _alias_refusal(options):
    """Why the ranks cannot have rueda as horovod, as far as it is seen from here; or None."""
    base, command = _base_environment(options), options.command
    if os.path.basename(command[0]).startswith('python'):
        return _alias.refusal_of_python(command[1:], base)
    return _alias.refusal(base, sys.path)


def _await(daemon, watcher):
    """Waits until the daemon listens; False when it ended instead, which both have said by then.

    True as well when the job is to end before it has begun.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not daemon.listens():
        if daemon.process.poll() is not None:
            watcher.goes_on()
            return False
        if time.monotonic() > deadline:
            raise OSError(f'the daemon does not listen after {_START_SECONDS} s')
        if not watcher.goes_on(0.001):
            break
    return True


def _start_rank(options, job, number, rank_environment, outlets):
    """Starts one rank; returns it and the streams that carry its output, if any.

    A lone rank writes to our own streams. Output of several is carried line by line: a rank writes
    a line in pieces (Python without buffering does), and those of two ranks would mix.
    """
    tagged = options.tag_output or options.timestamp
    # The terminal belongs to the launcher; a pipe or file goes to the first rank.
    stdin = None if number == 0 and not os.isatty(0) else subprocess.DEVNULL
    if job.size == 1 and not tagged and not options.output_filename:
        return processes.Rank(number, options.command, rank_environment, stdin, None, None), []
    paths = (None, None)
    if options.output_filename:
        paths = output.file_paths(options.output_filename, number, job.size)
    streams, write_ends = [], []
    for outlet, name, path in zip(outlets, ('stdout', 'stderr'), paths):
        read_end, write_end = os.pipe()
        tag = f'[{number}]<{name}>:' if tagged else '' if job.size > 1 else None
        streams.append(output.Stream(read_end, outlet, tag, options.timestamp, path))
        write_ends.append(write_end)
    rank = processes.Rank(number, options.command, rank_environment, stdin, *write_ends)
    for write_end in write_ends:
        os.close(write_end)
    return rank, streams


def _end_daemon(daemon):
    daemon.close()
    # It ends with its last client; a second is plenty, since all ranks have gone.
    try:
        daemon.process.wait(2)
    except subprocess.TimeoutExpired:
        daemon.process.kill()
        daemon.process.wait()


def _build_report():
    def mark(usable):
        return '[X]' if usable else '[ ]'

    torch = importlib.util.find_spec('torch') is not None
    return '\n'.join([
        f'rueda v{rueda.__version__}:', '',
        'Available Frameworks:', '    [ ] TensorFlow', f'    {mark(torch)} PyTorch',
        '    [ ] MXNet', '',
        'Available Controllers:', '    [ ] MPI', '    [X] Gloo', '',
        'Available Tensor Operations:', '    [ ] NCCL', '    [ ] DDL', '    [ ] CCL', '    [ ] MPI',
        '    [X] Gloo'])


def _detail(options, text):
    if options.verbose:
        _say(text)


def _say(text):
    try:
        os.write(2, f'ruedarun: {text}\n'.encode(errors='backslashreplace'))
    except OSError:
        pass  # Nobody listens; the job must be looked after all the same.


if __name__ == '__main__':
    sys.exit(main())
