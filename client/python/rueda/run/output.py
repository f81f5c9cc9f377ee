# SPDX-License-Identifier: Apache-2.0
"""Carries the output of ranks to the launcher's own streams and to files, line by line.

One thread: the launcher's event loop calls pump() for each readable pipe.
"""

import os
import re
import select
import time

_CHUNK = 1 << 16
# A line that grows beyond this is passed on in pieces, so that memory stays bounded.
_LONGEST_LINE = 1 << 20
_LINE_END = re.compile(rb'\r\n|\n|\r')
# PIPE_BUF: a pipe that is ready takes as much without waiting, and in one piece.
_WRITE = 4096


class LineTagger:
    """Puts a tag, e.g. `[rank]<stream>:`, in front of each line.

    A line ends with \\n, \\r\\n or \\r. An unfinished line is held back until it ends, so that
    lines of ranks never mix; at the end of the stream it goes out as it is, without a newline
    added. Work is linear in the bytes fed, however small the pieces.
    """

    def __init__(self, tag, timestamp):
        self._tag = tag.encode()
        self._timestamp = timestamp
        self._rest = bytearray()
        self._return = False  # A \r came last, which may yet become \r\n; not in `_rest`.
        self._inside = False  # The first piece of a very long line has gone out.

    def feed(self, data):
        """The tagged form of the lines that `data` completes."""
        if self._return:
            data = b'\r' + data
        self._return = data.endswith(b'\r')
        if self._return:
            data = data[:-1]
        output, end = [], 0
        for match in _LINE_END.finditer(data):
            output += [self._prefix(), bytes(self._rest), data[end:match.end()]]
            self._rest.clear()
            self._inside = False
            end = match.end()
        self._rest += data[end:]
        if len(self._rest) > _LONGEST_LINE:
            output += [self._prefix(), bytes(self._rest)]
            self._rest.clear()
            self._inside = True
        return b''.join(output)

    def finish(self):
        """The tagged form of what is left at the end of the stream."""
        rest = bytes(self._rest) + (b'\r' if self._return else b'')
        self._rest.clear()
        self._return = False
        return self._prefix() + rest if rest else b''

    def _prefix(self):
        if self._inside:
            return b''
        return (time.strftime('%a %b %d %H:%M:%S %Y').encode() if self._timestamp else b'') + \
            self._tag


class Outlet:
    """One of the launcher's own streams. Never waits: it keeps what its reader has not yet taken.

    While `blocked`, nothing more should be put: what is kept is bounded by that alone.
    """

    def __init__(self, descriptor, name):
        self.descriptor = descriptor
        self._name = name
        self._kept = b''
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    @property
    def blocked(self):
        """Whether something waits for the reader; flush() when the descriptor is ready."""
        return bool(self._kept)

    def put(self, data):
        """Writes `data`, or keeps it. BrokenPipeError when the reader has gone, even if empty."""
        self._kept += data
        self.flush()

    def flush(self):
        """Writes what goes without waiting, where possible whole lines.

        Raises BrokenPipeError, or OSError with a text that names the stream.
        """
        begin = 0
        try:
            while self._ready() and begin < len(self._kept):
                piece = self._kept[begin:begin + _WRITE]
                begin += os.write(self.descriptor, piece[:piece.rfind(b'\n') + 1] or piece)
        except BlockingIOError:
            pass  # Whoever started us has made it non-blocking.
        except BrokenPipeError:
            self._kept = b''
            raise
        except OSError as error:
            raise _cannot_write(self._name, error) from error
        self._kept = self._kept[begin:]

    def _ready(self):
        events = self._poll.poll(0)
        if events and events[0][1] & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        return bool(events)


def own_outlets():
    """The outlets (stdout, stderr) of this process: one for both where they are one file, so that
    their lines keep their order."""
    first = Outlet(1, 'stdout')
    return first, first if os.path.sameopenfile(1, 2) else Outlet(2, 'stderr')


def _cannot_write(what, error):
    return OSError(f'cannot write {what}: {error.strerror}')


class Stream:
    """One output pipe of a rank: where to read, and where everything goes.

    `outlet` is shared with other ranks. `tag` None: the output is passed on as it comes, else line
    by line with the tag, which may be empty. `path`: a file that gets the output as the rank wrote
    it, or None.
    """

    def __init__(self, read_end, outlet, tag, timestamp, path):
        self.read_end = read_end
        self.outlet = outlet
        self._tagger = LineTagger(tag, timestamp) if tag is not None else None
        self._file = open(path, 'wb', buffering=0) if path else None

    def pump(self):
        """Passes on what is there; False at the end of the stream.

        Raises BrokenPipeError, or OSError with a text that names what could not be written.
        """
        data = os.read(self.read_end, _CHUNK)
        if self._file is not None:
            self._write_file(data)
        text = data
        if self._tagger is not None:
            text = self._tagger.feed(data) if data else self._tagger.finish()
        # A line that is held back is put as nothing, so that a reader that left is noticed; at the
        # end of the stream that would be of no interest.
        if data or text:
            self.outlet.put(text)
        return bool(data)

    def _write_file(self, data):
        rest = memoryview(data)
        try:
            while rest:  # A disk that is nearly full takes a part.
                rest = rest[self._file.write(rest):]
        except OSError as error:
            raise _cannot_write(self._file.name, error) from error

    def close(self):
        """Closes the pipe and the file."""
        os.close(self.read_end)
        if self._file is not None:
            self._file.close()


def file_paths(directory, rank, size):
    """(stdout, stderr) files of a rank below `directory`, which are made: rank.0, or rank.00."""
    folder = os.path.join(directory, 'rank.' + str(rank).zfill(len(str(size - 1))))
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, 'stdout'), os.path.join(folder, 'stderr')
