# SPDX-License-Identifier: Apache-2.0
"""Finds and starts the daemon. Main thread of a launcher, or the thread that calls init().

A private daemon serves one launcher or one lone process: it listens on an abstract socket with a
random name, leaves no file behind, and ends when the lifeline pipe has closed and its last client
has gone.
"""

import os
import secrets
import socket
import subprocess

SYSTEM_SOCKET = '/run/rueda/rueda.sock'


def program_path(name):
    """Path of a bundled program, e.g. 'ruedactl'. RUEDA_DAEMON overrides that of 'ruedad'.

    Raises FileNotFoundError with what to do when it is missing.
    """
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bin', name)
    path = (os.environ.get('RUEDA_DAEMON') if name == 'ruedad' else None) or bundled
    if not os.access(path, os.X_OK):
        advice = ' or set RUEDA_DAEMON' if name == 'ruedad' else ''
        raise FileNotFoundError(f'{path} is missing; install the rueda wheel{advice}')
    return path


def system_socket_exists():
    """Whether a daemon of this host was installed as a service."""
    return os.path.exists(SYSTEM_SOCKET)


def unique_name(prefix):
    """A name that no other process chooses, e.g. 'rueda-5f0c2a9b3d1e4f67'."""
    return f'{prefix}-{secrets.token_hex(8)}'


class PrivateDaemon:
    """A daemon of our own, started at construction.

    Attributes: `socket` for RUEDA_SOCKET; `process`, the Popen object, or None if detached.
    `detached`: the daemon is not a child of this process, so that it never becomes a zombie here
    or appears in the caller's os.wait(). `arguments` follow those that make it private.
    Raises FileNotFoundError or OSError when it cannot start.
    """

    def __init__(self, detached, arguments=('--log-level', 'warning')):
        self.socket = '@' + unique_name('rueda')
        # Both ends are closed on exec; a forked child calls close().
        read_end, self._lifeline = os.pipe()
        command = [program_path('ruedad'), '--private', '--socket', self.socket,
                   '--lifeline-fd', str(read_end), *arguments]
        try:
            self.process = self._spawn(command, read_end, detached)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(read_end)

    @staticmethod
    def _spawn(command, read_end, detached):
        # A new session keeps the terminal's Ctrl-C away from the daemon.
        options = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[read_end],
                       start_new_session=True)
        if not detached:
            return subprocess.Popen(command, **options)
        subprocess.run(['/bin/sh', '-c', '"$@" &', 'sh'] + command, check=True, **options)
        return None

    def listens(self):
        """Whether clients can connect. Does not block."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect('\0' + self.socket[1:])
            except ConnectionRefusedError:
                return False
            except BlockingIOError:  # Its queue is full, so it has one.
                pass
            return True

    def close(self):
        """Closes the lifeline: the daemon ends after its last client. May be called again."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
