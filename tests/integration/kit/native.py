# SPDX-License-Identifier: Apache-2.0
"""The C ABI (client/c/rueda.h) by ctypes, as the tests need it. Any thread, as the ABI says."""

import ctypes

from kit import programs

OK, INVALID_ARGUMENT, ALREADY_EXISTS, MISMATCH, RANK_LOST, SHUT_DOWN, DAEMON_LOST = range(7)
NOT_INITIALIZED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, PERMISSION_DENIED = range(7, 11)
UNAVAILABLE, PROTOCOL_ERROR, INTERRUPTED, INTERNAL, UNIMPLEMENTED, STALLED = range(11, 17)

ALLREDUCE, ALLGATHER, BROADCAST, BARRIER = range(4)
AVERAGE, SUM, MIN, MAX, PRODUCT = 0, 1, 3, 4, 5

# Name: wire value, format of struct, bytes.
DTYPES = {
    'uint8': (0, 'B', 1), 'int8': (1, 'b', 1), 'uint16': (2, 'H', 2), 'int16': (3, 'h', 2),
    'int32': (4, 'i', 4), 'int64': (5, 'q', 8), 'float16': (6, 'e', 2), 'float32': (7, 'f', 4),
    'float64': (8, 'd', 8), 'bool': (9, '?', 1), 'bfloat16': (10, 'H', 2),
    'uint32': (11, 'I', 4), 'uint64': (12, 'Q', 8),
}

_InterruptedFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Options(ctypes.Structure):
    """rueda_options."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32),
        ('rank', ctypes.c_int32), ('size', ctypes.c_int32),
        ('local_rank', ctypes.c_int32), ('local_size', ctypes.c_int32),
        ('cross_rank', ctypes.c_int32), ('cross_size', ctypes.c_int32),
        ('socket', ctypes.c_char * 108), ('job', ctypes.c_char * 128),
        ('hostname', ctypes.c_char * 256),
        ('start_timeout_ms', ctypes.c_uint32), ('isolated', ctypes.c_uint32),
        ('interrupted', _InterruptedFunction), ('interrupted_context', ctypes.c_void_p),
    ]


class Op(ctypes.Structure):
    """rueda_op."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32),
        ('kind', ctypes.c_uint8), ('dtype', ctypes.c_uint8),
        ('reduce_op', ctypes.c_uint8), ('reserved', ctypes.c_uint8),
        ('name', ctypes.c_char_p), ('input', ctypes.c_void_p), ('output', ctypes.c_void_p),
        ('shape', ctypes.POINTER(ctypes.c_int64)), ('ndim', ctypes.c_uint32),
        ('root', ctypes.c_int32), ('prescale', ctypes.c_double), ('postscale', ctypes.c_double),
        ('scale_set', ctypes.c_uint32), ('splits_count', ctypes.c_uint32),
        ('splits', ctypes.c_void_p), ('output_bytes', ctypes.c_uint64),
        ('result', ctypes.c_void_p), ('received', ctypes.c_void_p),
        ('process_set', ctypes.c_uint32), ('priority', ctypes.c_int32),
    ]


class GatheredStruct(ctypes.Structure):
    """rueda_gathered."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32), ('ranks', ctypes.c_uint32),
        ('data', ctypes.c_void_p), ('bytes', ctypes.c_uint64),
        ('first_dims', ctypes.POINTER(ctypes.c_int64)),
    ]


_P = ctypes.c_void_p
_SIGNATURES = {
    'rueda_last_error': (ctypes.c_char_p, []),
    'rueda_code_name': (ctypes.c_char_p, [ctypes.c_int32]),
    'rueda_open': (ctypes.c_int32, [ctypes.POINTER(Options), ctypes.POINTER(_P)]),
    'rueda_close': (None, [_P]),
    'rueda_health': (ctypes.c_int32, [_P]),
    'rueda_add_process_set': (ctypes.c_int32, [_P, ctypes.POINTER(ctypes.c_int32),
                                               ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32)]),
    'rueda_alloc': (ctypes.c_int32, [_P, ctypes.c_uint64, ctypes.POINTER(_P)]),
    'rueda_free': (ctypes.c_int32, [_P, _P]),
    'rueda_owns': (ctypes.c_int32, [_P, _P, ctypes.c_uint64]),
    'rueda_run': (ctypes.c_int32, [_P, ctypes.POINTER(Op)]),
    'rueda_submit': (ctypes.c_int32, [_P, ctypes.POINTER(Op), ctypes.c_uint32,
                                      ctypes.POINTER(ctypes.c_uint64)]),
    'rueda_poll': (ctypes.c_int32, [_P, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32)]),
    'rueda_wait': (ctypes.c_int32, [_P, ctypes.c_uint64, ctypes.c_uint32]),
    'rueda_gather_result': (ctypes.c_int32, [_P, ctypes.c_uint64,
                                             ctypes.POINTER(GatheredStruct)]),
    'rueda_release': (ctypes.c_int32, [_P, ctypes.c_uint64]),
}

_loaded = None


def library():
    """The loaded library with declared signatures."""
    global _loaded
    if _loaded is None:
        loaded = ctypes.CDLL(programs.library())
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        _loaded = loaded
    return _loaded


class Failure(Exception):
    """A call answered `code`; `text` is rueda_last_error()."""

    def __init__(self, code):
        self.code = code
        self.name = library().rueda_code_name(code).decode()
        self.text = (library().rueda_last_error() or b'').decode('utf-8', 'replace')
        super().__init__(f'{self.name}: {self.text}')


def check(code):
    """Raises Failure unless `code` is OK."""
    if code != OK:
        raise Failure(code)


class Buffer:
    """`count` elements of `dtype` at `address`; `owner` keeps the memory alive."""

    def __init__(self, address, count, dtype, owner=None):
        self.address, self.count, self.dtype, self._owner = address, count, dtype, owner
        _, self._format, self._width = DTYPES[dtype]
        self.bytes = count * self._width

    @classmethod
    def foreign(cls, count, dtype='float32'):
        """Memory of this process that peers cannot reach."""
        memory = (ctypes.c_char * max(1, count * DTYPES[dtype][2]))()
        return cls(ctypes.addressof(memory), count, dtype, memory)

    def view(self, start=0, count=None):
        """A writable memoryview of `count` elements from `start` on."""
        count = self.count - start if count is None else count
        memory = (ctypes.c_char * (count * self._width)).from_address(
            self.address + start * self._width)
        return memoryview(memory).cast('B').cast(self._format)

    def fill(self, value):
        """Sets every element. Doubles the filled part, so that large buffers take copies only."""
        if self.count == 0:
            return self
        self.view(0, 1)[0] = value
        done = self._width
        while done < self.bytes:
            step = min(done, self.bytes - done, 1 << 20)
            ctypes.memmove(self.address + done, self.address, step)
            done += step
        return self

    def holds(self, value):
        """True if every element equals `value`."""
        if self.count == 0:
            return True
        if self.view(0, 1)[0] != value:
            return False
        return self.bytes == self._width or _libc.memcmp(
            self.address, self.address + self._width, self.bytes - self._width) == 0


def make_op(kind, name, buffer=None, output=None, shape=None, op=SUM, root=0, scale=None,
            process_set=0):
    """An Op over `buffer`; `output` None: in place. `scale`: (prescale, postscale).

    The op refers to `name`, the shape and the buffers by address: keep op.kept alive with it.
    """
    made = Op(struct_size=ctypes.sizeof(Op), kind=kind, reduce_op=op, root=root,
              process_set=process_set)
    encoded = name.encode() if isinstance(name, str) else name
    made.name = encoded
    kept = [encoded, buffer, output]
    if buffer is not None:
        dims = [buffer.count] if shape is None else list(shape)
        array = (ctypes.c_int64 * max(1, len(dims)))(*dims)
        kept.append(array)
        made.dtype = DTYPES[buffer.dtype][0]
        made.input = buffer.address
        made.output = None if kind == ALLGATHER else (output or buffer).address
        made.shape = ctypes.cast(array, ctypes.POINTER(ctypes.c_int64))
        made.ndim = len(dims)
    if scale is not None:
        made.prescale, made.postscale = scale
        made.scale_set = 1
    made.kept = kept
    return made


class Session:
    """One open session. Raises Failure from every call that does not answer OK."""

    def __init__(self, socket, job='job', rank=0, size=1, isolated=False, start_ms=20000,
                 hostname='testhost', interrupted=None):
        options = Options(struct_size=ctypes.sizeof(Options), rank=rank, size=size,
                          local_rank=rank, local_size=size, cross_size=1,
                          socket=socket.encode(), job=job.encode(), hostname=hostname.encode(),
                          start_timeout_ms=start_ms, isolated=int(isolated))
        if interrupted is not None:
            options.interrupted = _InterruptedFunction(lambda _: int(interrupted()))
        self._kept = options
        self.rank, self.size = rank, size
        pointer = ctypes.c_void_p()
        self.library = self._lib = library()
        self.pointer = None
        check(self._lib.rueda_open(ctypes.byref(options), ctypes.byref(pointer)))
        self.pointer = pointer

    def close(self):
        """Ends the session; may be called again."""
        if self.pointer is not None:
            self._lib.rueda_close(self.pointer)
            self.pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def health(self):
        """Raises the failure that ended the session."""
        check(self._lib.rueda_health(self.pointer))

    def add_process_set(self, members):
        """The number of a new process set; all ranks call it."""
        array = (ctypes.c_int32 * len(members))(*members)
        number = ctypes.c_uint32()
        check(self._lib.rueda_add_process_set(self.pointer, array, len(members),
                                              ctypes.byref(number)))
        return number.value

    def alloc(self, count, dtype='float32'):
        """A Buffer in the arena."""
        pointer = ctypes.c_void_p()
        check(self._lib.rueda_alloc(self.pointer, max(1, count * DTYPES[dtype][2]),
                                    ctypes.byref(pointer)))
        return Buffer(pointer.value, count, dtype)

    def free(self, buffer):
        """Gives a Buffer of alloc back."""
        check(self._lib.rueda_free(self.pointer, buffer.address))

    def run(self, op):
        """Runs one Op."""
        check(self._lib.rueda_run(self.pointer, ctypes.byref(op)))

    def allreduce(self, name, buffer, **options):
        """A blocking allreduce of a Buffer, in place unless output is given."""
        self.run(make_op(ALLREDUCE, name, buffer, **options))

    def broadcast(self, name, buffer, root=0, **options):
        """A blocking broadcast."""
        self.run(make_op(BROADCAST, name, buffer, root=root, **options))

    def barrier(self, name='barrier'):
        """A blocking barrier."""
        self.run(make_op(BARRIER, name))

    def submit(self, *ops):
        """Starts ops, more than one as a group; returns their handles, one alone for one op."""
        array = (Op * len(ops))(*ops)
        handles = (ctypes.c_uint64 * len(ops))()
        check(self._lib.rueda_submit(self.pointer, array, len(ops), handles))
        return handles[0] if len(ops) == 1 else list(handles)

    def poll(self, handle):
        """True when the operation has an outcome."""
        done = ctypes.c_int32()
        check(self._lib.rueda_poll(self.pointer, handle, ctypes.byref(done)))
        return done.value != 0

    def wait(self, handle, timeout_ms=0):
        """Waits for the outcome."""
        check(self._lib.rueda_wait(self.pointer, handle, timeout_ms))

    def gather(self, name, buffer, shape=None):
        """A whole allgather; returns (bytes of all rows, rows of each rank)."""
        handle = self.submit(make_op(ALLGATHER, name, buffer, shape=shape))
        self.wait(handle)
        result = self.gathered(handle)
        data = ctypes.string_at(result.data, result.bytes) if result.bytes else b''
        rows = result.first_dims[:result.ranks]
        self.release(handle)
        return data, rows

    def gathered(self, handle):
        """The GatheredStruct of a finished allgather, valid until release()."""
        result = GatheredStruct(struct_size=ctypes.sizeof(GatheredStruct))
        check(self._lib.rueda_gather_result(self.pointer, handle, ctypes.byref(result)))
        return result

    def release(self, handle):
        """Forgets a finished allgather."""
        check(self._lib.rueda_release(self.pointer, handle))


def failure_of(call, *arguments, **options):
    """Runs `call`; returns (code, text), (0, '') on success."""
    try:
        call(*arguments, **options)
    except Failure as failure:
        return failure.code, failure.text
    return OK, ''
