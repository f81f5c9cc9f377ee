# SPDX-License-Identifier: Apache-2.0
"""A ruedad under test, started and stopped as an operator or a launcher would. Thread of pytest."""

import json
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from kit import counters, programs, waiting

_START_SECONDS = 20
# Of the prefixes that ruedactl looks for when no socket is given.
_PREFIX = 'rueda-test-'


def abstract_name():
    """An abstract socket name that nobody else uses."""
    return '@' + _PREFIX + secrets.token_hex(8)


def status_address(address):
    """Where the daemon with that socket answers ruedactl."""
    if address.startswith('@'):
        return address + '.status'
    return os.path.join(os.path.dirname(address), 'status.sock')


def connect(address, kind=socket.SOCK_SEQPACKET):
    """A connected socket. Raises OSError."""
    client = socket.socket(socket.AF_UNIX, kind)
    try:
        client.connect('\0' + address[1:] if address.startswith('@') else address)
    except OSError:
        client.close()
        raise
    return client


class Daemon:
    """One ruedad, ready for clients when the constructor returns.

    `arguments` are its flags. `socket` None: a fresh abstract name. `lifeline`: start it as a
    private daemon with a lifeline pipe that this object holds. `uid`: run it as that user.
    `max_fds`: its limit of descriptors. `ready` False: do not wait for the socket.
    """

    def __init__(self, *arguments, socket=None, private=False, lifeline=False, uid=None,
                 max_fds=None, ready=True, environment=None, program=None):
        self.socket = socket or abstract_name()
        self.folder = tempfile.mkdtemp(prefix='rueda-test-log-')
        self.log_path = os.path.join(self.folder, 'log')
        self._lifeline = None
        self._is_private = private or lifeline
        command = [program or programs.daemon(), '--socket', self.socket]
        command += ['--private'] if private or lifeline else []
        passed = []
        if lifeline:
            read_end, self._lifeline = os.pipe()
            passed = [read_end]
            command += ['--lifeline-fd', str(read_end)]

        def limit():
            if max_fds is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max_fds, max_fds))

        with open(self.log_path, 'wb') as log:
            self.process = subprocess.Popen(
                [*command, *arguments], env={**programs.clean_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=passed,
                start_new_session=True, preexec_fn=limit, user=uid, group=uid,
                extra_groups=None if uid is None else [])
        for end in passed:
            os.close(end)
        self.pid = self.process.pid
        if ready:
            self.await_ready()

    def await_ready(self, seconds=_START_SECONDS):
        """Returns when it serves clients and ruedactl. Raises AssertionError with the log."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                connect(self.socket).close()
                connect(status_address(self.socket), socket.SOCK_STREAM).close()
                if self._is_private or self.log(' serves '):
                    return
                raise OSError('not all of it has started')
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    text = '\n'.join(self.log())
                    raise AssertionError(f'ruedad does not serve ({error}): {text}') from error
                time.sleep(0.002)  # The socket is not there yet; nothing tells when it is.

    def log(self, containing=''):
        """Lines of its log that contain a text."""
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return [line.rstrip('\n') for line in file if containing in line]

    def await_log(self, containing, seconds):
        """The first line with that text, waited for."""
        lines = waiting.until(lambda: self.log(containing), seconds,
                              lambda: f'{containing!r} in the log: {self.log()}')
        return lines[0]

    def ctl(self, command, *arguments, seconds=10):
        """`ruedactl COMMAND --json` as a parsed object, and its exit code."""
        done = programs.run_ctl(command, '--json', '--socket', self.socket, *arguments,
                                seconds=seconds)
        if not done.stdout:
            raise AssertionError(f'ruedactl {command}: {done.returncode} {done.stderr}')
        return json.loads(done.stdout), done.returncode

    def settled_holdings(self):
        """What it holds when idle, with the threads and descriptors that ruedactl's first call
        makes gRPC create."""
        self.ctl('status')
        before = counters.holdings(self.pid)
        while True:
            self.ctl('status')
            now = counters.holdings(self.pid)
            if now == before:
                return now
            before = now

    def is_alive(self):
        """Whether the process has not ended."""
        return self.process.poll() is None

    def signal(self, number):
        """Sends a signal; returns the moment before."""
        now = time.monotonic()
        self.process.send_signal(number)
        return now

    def close_lifeline(self):
        """What the end of its launcher does."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def wait(self, seconds):
        """Its exit code. Raises TooLate."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise waiting.TooLate(f'ruedad has not ended within {seconds} s: {self.log()[-5:]}') \
                from None

    def kill(self):
        """SIGKILL, and waits for the end; returns the moment before."""
        now = self.signal(signal.SIGKILL)
        self.process.wait()
        return now

    def stop(self):
        """Ends it, whatever state it is in, and removes its folder."""
        self.close_lifeline()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
