# SPDX-License-Identifier: Apache-2.0
"""Carries the output of ranks to the launcher's own streams and to files, line by line.

One thread: the launcher's event loop calls pump() for each readable pipe.
"""

import os
import re
import time

_CHUNK = 1 << 16
# A line that grows beyond this is passed on in pieces, so that memory stays bounded.
_LONGEST_LINE = 1 << 20
# A \r at the end of what was read may yet become \r\n.
_LINE_END = re.compile(rb'\r\n|\n|\r(?!\n|\Z)')


class LineTagger:
    """Puts `[rank]<stream>:` in front of each line. A line ends with \\n, \\r\\n or \\r.

    An unfinished line is held back until it ends, so that lines of ranks never mix; at the end of
    the stream it goes out as it is, without a newline added.
    """

    def __init__(self, tag, timestamp):
        self._tag = tag.encode()
        self._timestamp = timestamp
        self._rest = b''
        self._inside = False  # The first piece of a very long line has gone out.

    def feed(self, data):
        """The tagged form of the lines that `data` completes."""
        data = self._rest + data
        output, end = [], 0
        for match in _LINE_END.finditer(data):
            output.append(self._prefix() + data[end:match.end()])
            self._inside = False
            end = match.end()
        self._rest = data[end:]
        if len(self._rest) > _LONGEST_LINE:
            output.append(self._prefix() + self._rest)
            self._inside, self._rest = True, b''
        return b''.join(output)

    def finish(self):
        """The tagged form of what is left at the end of the stream."""
        rest, self._rest = self._rest, b''
        return self._prefix() + rest if rest else b''

    def _prefix(self):
        if self._inside:
            return b''
        return (time.strftime('%a %b %d %H:%M:%S %Y').encode() if self._timestamp else b'') + \
            self._tag


class Stream:
    """One output pipe of a rank: where to read, and where everything goes.

    `target` is the descriptor of the launcher's own stream. `tag` None: lines are not marked.
    `path`: a file that gets the output as the rank wrote it, or None.
    """

    def __init__(self, read_end, target, tag, timestamp, path):
        self.read_end = read_end
        self._target = target
        self._tagger = LineTagger(tag, timestamp) if tag is not None else None
        self._file = open(path, 'wb', buffering=0) if path else None

    def pump(self):
        """Passes on what is there; False at the end of the stream. Raises BrokenPipeError."""
        data = os.read(self.read_end, _CHUNK)
        if self._file is not None:
            self._file.write(data)
        if self._tagger is None:
            _write_all(self._target, data)
        else:
            _write_all(self._target, self._tagger.feed(data) if data else self._tagger.finish())
        return bool(data)

    def close(self):
        """Closes the pipe and the file."""
        os.close(self.read_end)
        if self._file is not None:
            self._file.close()


def _write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


def file_paths(directory, rank, size):
    """(stdout, stderr) files of a rank below `directory`, which are made: rank.0, or rank.00."""
    folder = os.path.join(directory, 'rank.' + str(rank).zfill(len(str(size - 1))))
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, 'stdout'), os.path.join(folder, 'stderr')
