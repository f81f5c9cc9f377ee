# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay up and run one test body after another, since starting PyTorch takes seconds.

A body is a function of a test module. Each rank calls init(), the body, and shutdown(). Used by the
fixture `ranks` in the thread of pytest.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_START_SECONDS = 60


class BodyFailed(AssertionError):
    """A body failed on some rank; the text has the tracebacks."""


class RankPool:
    """`size` ranks under one ruedarun. Replaced by a new one after a body that did not end."""

    def __init__(self, size):
        self.size = size
        self._launcher = None
        self._ranks = []

    def run(self, body, *arguments, seconds=60):
        """Runs `body(*arguments)` on all ranks; returns their results in rank order.

        `arguments` and results must be JSON. Raises BodyFailed with the traceback of each rank that
        failed or did not answer within `seconds`.
        """
        if self._launcher is None:
            self._start()
        request = json.dumps({'file': body.__code__.co_filename, 'body': body.__name__,
                              'arguments': arguments})
        deadline = time.monotonic() + seconds
        answers = []
        for rank in self._ranks:
            rank.sendall(request.encode() + b'\n')
        for number, rank in enumerate(self._ranks):
            rank.settimeout(max(0.05, deadline - time.monotonic()))
            try:
                answers.append(json.loads(_line(rank)))
            except (OSError, ValueError) as error:
                answers.append({'error': f'no answer: {error!r}'})
        failures = [f'rank {number}: {answer["error"]}' for number, answer in enumerate(answers)
                    if 'error' in answer]
        if any('no answer' in failure for failure in failures):
            self.close()
        if failures:
            raise BodyFailed('\n'.join(failures))
        return [answer['result'] for answer in answers]

    def _start(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'pool')
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen(self.size)
                listener.settimeout(_START_SECONDS)
                self._launcher = subprocess.Popen(
                    [sys.executable, '-m', 'rueda.run', '-np', str(self.size), '--private',
                     sys.executable, os.path.join(_HERE, 'rank_worker.py'), path])
                self._ranks = [None] * self.size
                for _ in range(self.size):
                    rank, _ = listener.accept()
                    self._ranks[int(_line(rank))] = rank

    def close(self):
        """Ends the ranks."""
        for rank in self._ranks:
            if rank is not None:
                rank.close()
        self._ranks = []
        if self._launcher is not None:
            self._launcher.terminate()
            self._launcher.wait(20)
            self._launcher = None


def _line(connection):
    data = b''
    while not data.endswith(b'\n'):
        piece = connection.recv(1 << 16)
        if not piece:
            raise OSError('the rank has gone')
        data += piece
    return data
