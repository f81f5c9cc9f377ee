# SPDX-License-Identifier: Apache-2.0
"""A client of our own making: it speaks the handshake with struct and socket, maps the control
segment and writes into it whatever a test likes. Thread of pytest, or a forked process.

Offsets and sizes are those of shm/README.md, written down here a second time on purpose.
"""

import array
import mmap
import os
import socket
import struct

from kit.daemon import connect

MAGIC = 0x52554544
HELLO, WELCOME, REFUSED, JOB_READY, ALLOC_SEGMENT, SEGMENT_GRANTED, SEGMENT_READY, PEER_SEGMENT, \
    GOODBYE, JOB_FAILED, FORMING_NOTICE = range(1, 12)
TAIL, SUBMIT, WAIT_DIRECT, WAIT_REQUEST, WAIT_END, RELEASE, FETCH, LEAVE_SET = range(1, 9)

HELLO_FORMAT = '=IHHHHiiiiII128s256sIqqqqii'
SEGMENT_FORMAT = '=IHHiIiIQ512s'
NOTICE_FORMAT = '=IHHii1024s'
HELLO_BYTES = struct.calcsize(HELLO_FORMAT)

RING_SLOTS = 2048
SLOT = 128
SUBMIT_TAIL, SUBMIT_HEAD, COMPLETE_TAIL, COMPLETE_HEAD = 0, 64, 128, 192
DAEMON_ASLEEP, COMPLETION_BLOCKED = 256, 320
SUBMISSIONS = 4096
COMPLETIONS = SUBMISSIONS + RING_SLOTS * SLOT
CONTROL_BYTES = COMPLETIONS + RING_SLOTS * SLOT
_MAX_PACKET = 4096


def hello(job=b'job', rank=0, size=1, local_rank=None, local_size=None, versions=(3, 3),
          magic=MAGIC, kind=HELLO, announced=HELLO_BYTES, start_ms=20000, isolated=0,
          host=b'hostile', knobs=(0, 0, 0, 0, 0, 0)):
    """A Hello packet; every field can be wrong. `job` of 128 bytes has no terminator."""
    return struct.pack(HELLO_FORMAT, magic, kind, announced, *versions, rank, size,
                       rank if local_rank is None else local_rank,
                       size if local_size is None else local_size, start_ms, isolated, job, host,
                       0, *knobs)


def segment_message(kind, number=0, size=0):
    """An AllocSegment or SegmentReady packet."""
    return struct.pack(SEGMENT_FORMAT, MAGIC, kind, struct.calcsize(SEGMENT_FORMAT), 0, number, 0,
                       0, size, b'')


def plain(kind):
    """A packet that is a header only, e.g. a goodbye."""
    return struct.pack('=IHH', MAGIC, kind, 8)


def submission(kind=SUBMIT, op=0, dtype=7, reduce_op=1, name=b'x', shape=(), flags=0, request=1,
               memory=(0, 0, 0, 0), fetch=0, scales=(1.0, 1.0), root=0, direct=0, group=(0, 0),
               name_bytes=None, ndim=None, process_set=0, priority=0, numbers=()):
    """The 128-byte slots of one submission.

    `memory`: in segment, out segment, in offset, out offset. `numbers` follow the shape.
    """
    tail = struct.pack(f'={len(shape) + len(numbers)}q', *shape, *numbers) + name
    in_segment, out_segment, in_offset, out_offset = memory
    first = struct.pack('=BBBBHBBQIIQQQddiIIIIi40s', kind, op, dtype, reduce_op,
                        len(name) if name_bytes is None else name_bytes,
                        len(shape) if ndim is None else ndim, flags, request, in_segment,
                        out_segment, in_offset, out_offset, fetch or len(numbers), *scales, root,
                        direct, *group, process_set, priority, tail[:40])
    slots = [first]
    for at in range(40, len(tail), 120):
        slots.append(struct.pack('=B7x120s', TAIL, tail[at:at + 120]))
    return slots


class Refused(Exception):
    """The daemon closed the connection; args are its code and text, (None, '') without reason."""


class Client:
    """One raw connection."""

    def __init__(self, address):
        self.socket = connect(address)
        self.control = None
        self.board = None
        self.doorbell = None
        self._tail = 0
        self._completed = 0

    def send(self, data, fds=()):
        """Sends a packet with descriptors."""
        socket.send_fds(self.socket, [data], list(fds))

    def receive(self, seconds=10):
        """(type, data, descriptors) of the next packet. Raises Refused when the daemon closed."""
        self.socket.settimeout(seconds)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(_MAX_PACKET, socket.CMSG_SPACE(4 * 4))
        except ConnectionResetError:  # Comes once, before what the daemon sent last.
            data, ancillary, _, _ = self.socket.recvmsg(_MAX_PACKET, socket.CMSG_SPACE(4 * 4))
        if not data:
            raise Refused(None, '')
        fds = array.array('i')
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
        kind = struct.unpack_from('=H', data, 4)[0]
        if kind == REFUSED:
            _, _, _, code, _, text = struct.unpack(NOTICE_FORMAT, data)
            raise Refused(code, text.split(b'\0', 1)[0].decode('utf-8', 'replace'))
        return kind, data, list(fds)

    def refusal(self, seconds=10):
        """(code, text) with which the daemon closes; what comes before is thrown away."""
        while True:
            try:
                _, _, fds = self.receive(seconds)
            except Refused as refused:
                return refused.args
            except (BrokenPipeError, ConnectionResetError):
                return None, ''
            for fd in fds:
                os.close(fd)

    def join(self, **fields):
        """Greets, and maps what the welcome brings. Raises Refused."""
        self.send(hello(**fields))
        kind, _, fds = self.receive()
        assert kind == WELCOME and len(fds) == 3, (kind, fds)
        self.control = mmap.mmap(fds[0], CONTROL_BYTES)
        self.doorbell = fds[1]
        self.board = mmap.mmap(fds[2], os.fstat(fds[2]).st_size)
        os.close(fds[0])
        os.close(fds[2])
        return self

    def await_ready(self):
        """Until all ranks of the job are there."""
        while self.receive()[0] != JOB_READY:
            pass
        return self

    def segment(self, size):
        """A tensor segment of `size` bytes: (its number, a mapping of it)."""
        self.send(segment_message(ALLOC_SEGMENT, size=size))
        while True:
            kind, data, fds = self.receive()
            if kind == SEGMENT_GRANTED:
                break
            for fd in fds:
                os.close(fd)
        code, number = struct.unpack_from('=iI', data, 8)
        if code != 0:
            text = data[struct.calcsize('=IHHiIiIQ'):].split(b'\0', 1)[0].decode()
            raise Refused(code, text)
        mapping = mmap.mmap(fds[0], size)
        os.close(fds[0])
        self.send(segment_message(SEGMENT_READY, number))
        return number, mapping

    def word(self, offset):
        """A 32-bit word of the control segment."""
        return struct.unpack_from('=I', self.control, offset)[0]

    def set_word(self, offset, value):
        """Writes a 32-bit word of the control segment."""
        struct.pack_into('=I', self.control, offset, value & 0xffffffff)

    def space(self):
        """Free slots of the submission ring."""
        return RING_SLOTS - ((self._tail - self.word(SUBMIT_HEAD)) & 0xffffffff)

    def put(self, slots, ring=True):
        """Writes slots, publishes them and rings."""
        for slot in slots:
            at = SUBMISSIONS + (self._tail % RING_SLOTS) * SLOT
            self.control[at:at + SLOT] = slot
            self._tail = (self._tail + 1) & 0xffffffff
        self.set_word(SUBMIT_TAIL, self._tail)
        if ring:
            self.ring()

    def ring(self):
        """Writes the doorbell, whether the daemon sleeps or not."""
        os.write(self.doorbell, struct.pack('=Q', 1))

    def completions(self):
        """Request ids and codes of the outcomes since the last call; reads the ring."""
        found = []
        while self._completed != self.word(COMPLETE_TAIL):
            at = COMPLETIONS + (self._completed % RING_SLOTS) * SLOT
            kind, code, request = struct.unpack_from('=B3xiQ', self.control, at)
            if kind != TAIL:
                found.append((request, code))
            self._completed = (self._completed + 1) & 0xffffffff
        self.set_word(COMPLETE_HEAD, self._completed)
        return found

    def close(self):
        """Leaves without a goodbye."""
        self.socket.close()
        if self.doorbell is not None:
            os.close(self.doorbell)
            self.doorbell = None
        self.control = self.board = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
