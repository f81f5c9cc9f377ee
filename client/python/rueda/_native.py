# SPDX-License-Identifier: Apache-2.0
"""ctypes declarations of the C ABI (rueda.h). The only file of the package that knows C types.

Any thread. ctypes releases the interpreter lock during each call, so a thread that waits for other
ranks never keeps another Python thread from submitting.
"""

import ctypes
import mmap
import os
import weakref

from rueda import exceptions

ABI_VERSION = 3

_MAP_FIXED_NOREPLACE = 0x100000  # Of <sys/mman.h>; the module mmap has no name for it.

OK = 0
INVALID_ARGUMENT = 1
ALREADY_EXISTS = 2
SHUT_DOWN = 5
NOT_INITIALIZED = 7
UNAVAILABLE = 11
INTERRUPTED = 13

ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, ALLTOALL, REDUCESCATTER = range(6)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)

# Wire values of rueda_dtype by the name that torch and numpy use.
DTYPES = {
    'uint8': 0, 'int8': 1, 'uint16': 2, 'int16': 3, 'int32': 4, 'int64': 5, 'float16': 6,
    'float32': 7, 'float64': 8, 'bool': 9, 'bfloat16': 10, 'uint32': 11, 'uint64': 12,
    'float8_e4m3fn': 13, 'float8_e5m2': 14, 'complex64': 15, 'complex128': 16,
}

_FAILURES = {
    INVALID_ARGUMENT: ValueError,
    ALREADY_EXISTS: ValueError,
    3: exceptions.MismatchError,
    4: exceptions.RankLostError,
    SHUT_DOWN: exceptions.ShutDownError,
    6: exceptions.DaemonLostError,
    NOT_INITIALIZED: exceptions.NotInitializedError,
    8: exceptions.DeadlineExceededError,
    9: exceptions.ResourceExhaustedError,
    15: exceptions.UnimplementedError,
    16: exceptions.StalledError,
}

# Declared without the context argument, which C passes in a register that nobody reads: the
# callables below take none.
_InterruptedFunction = ctypes.CFUNCTYPE(ctypes.c_int)


class Options(ctypes.Structure):
    """rueda_options: how to join a job."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32),
        ('rank', ctypes.c_int32), ('size', ctypes.c_int32),
        ('local_rank', ctypes.c_int32), ('local_size', ctypes.c_int32),
        ('cross_rank', ctypes.c_int32), ('cross_size', ctypes.c_int32),
        ('socket', ctypes.c_char * 108),
        ('job', ctypes.c_char * 128),
        ('hostname', ctypes.c_char * 256),
        ('start_timeout_ms', ctypes.c_uint32),
        ('isolated', ctypes.c_uint32),
        ('interrupted', _InterruptedFunction),
        ('interrupted_context', ctypes.c_void_p),
        ('fusion_bytes', ctypes.c_int64), ('cycle_us', ctypes.c_int64),
        ('stall_warn_ms', ctypes.c_int64), ('stall_shutdown_ms', ctypes.c_int64),
        ('groups_apart', ctypes.c_int32), ('fusion_look_back', ctypes.c_int32),
        ('timeline', ctypes.c_char * 1024),
        ('timeline_mark_cycles', ctypes.c_int32), ('reserved', ctypes.c_uint32),
    ]


class Op(ctypes.Structure):
    """rueda_op: one collective operation. Whoever fills `shape` keeps that array alive."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32),
        ('kind', ctypes.c_uint8), ('dtype', ctypes.c_uint8),
        ('reduce_op', ctypes.c_uint8), ('reserved', ctypes.c_uint8),
        ('name', ctypes.c_char_p),
        ('input', ctypes.c_void_p), ('output', ctypes.c_void_p),
        ('shape', ctypes.c_void_p),
        ('ndim', ctypes.c_uint32), ('root', ctypes.c_int32),
        ('prescale', ctypes.c_double), ('postscale', ctypes.c_double),
        ('scale_set', ctypes.c_uint32), ('splits_count', ctypes.c_uint32),
        ('splits', ctypes.c_void_p),
        ('output_bytes', ctypes.c_uint64), ('result', ctypes.c_void_p),
        ('received', ctypes.c_void_p),
        ('process_set', ctypes.c_uint32), ('priority', ctypes.c_int32),
    ]


class DtypeInfo(ctypes.Structure):
    """rueda_dtype_info: what can be done with a data type."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32), ('bytes', ctypes.c_uint32),
        ('reduce_ops', ctypes.c_uint32), ('reserved', ctypes.c_uint32),
        ('name', ctypes.c_char_p),
    ]


OP_BYTES = ctypes.sizeof(Op)
OPTIONS_BYTES = ctypes.sizeof(Options)
Int32 = ctypes.c_int32
Uint32 = ctypes.c_uint32
Pointer = ctypes.c_void_p


class Gathered(ctypes.Structure):
    """rueda_gathered: the result of an allgather, valid until it is released."""
    _fields_ = [
        ('struct_size', ctypes.c_uint32), ('ranks', ctypes.c_uint32),
        ('data', ctypes.c_void_p), ('bytes', ctypes.c_uint64),
        ('first_dims', ctypes.POINTER(ctypes.c_int64)),
    ]


GATHERED_BYTES = ctypes.sizeof(Gathered)

# Argument and result types of every function that the package calls. Pointers are plain integers
# (addresses), which ctypes converts several times faster than pointer objects.
_SIGNATURES = {
    'rueda_abi_version': (ctypes.c_uint32, []),
    'rueda_version': (ctypes.c_char_p, []),
    'rueda_last_error': (ctypes.c_char_p, []),
    'rueda_code_name': (ctypes.c_char_p, [ctypes.c_int32]),
    'rueda_describe_dtype': (ctypes.c_int32, [ctypes.c_uint32, ctypes.POINTER(DtypeInfo)]),
    'rueda_options_init': (ctypes.c_int32, [ctypes.POINTER(Options)]),
    'rueda_open': (ctypes.c_int32, [ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)]),
    'rueda_close': (None, [ctypes.c_void_p]),
    'rueda_health': (ctypes.c_int32, [ctypes.c_void_p]),
    'rueda_alloc': (ctypes.c_int32,
                    [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)]),
    'rueda_free': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_void_p]),
    'rueda_owns': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]),
    'rueda_run': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_void_p]),
    'rueda_submit': (ctypes.c_int32,
                     [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]),
    'rueda_poll': (ctypes.c_int32,
                   [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32)]),
    'rueda_wait': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]),
    'rueda_gather_result': (ctypes.c_int32,
                            [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Gathered)]),
    'rueda_release': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint64]),
    'rueda_add_process_set': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32,
                                               ctypes.POINTER(ctypes.c_uint32)]),
    'rueda_remove_process_set': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32]),
    'rueda_start_timeline': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32]),
    'rueda_stop_timeline': (ctypes.c_int32, [ctypes.c_void_p]),
    'rueda_join': (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32,
                                    ctypes.POINTER(ctypes.c_int32)]),
}

_library = None


def library_path():
    """Path of librueda.so: RUEDA_LIBRARY, else the copy inside the package."""
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib', 'librueda.so')
    return os.environ.get('RUEDA_LIBRARY') or bundled


def library():
    """The loaded library with declared signatures; loaded once per process.

    Raises StartError when it is missing, cannot be loaded, or speaks another ABI version.
    """
    global _library
    if _library is None:
        path = library_path()
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            raise exceptions.StartError(
                f'cannot load librueda.so from {path}: {error}; install the rueda wheel or set '
                'RUEDA_LIBRARY') from error
        version = loaded.rueda_abi_version()
        if version != ABI_VERSION:
            raise exceptions.StartError(
                f'{path} has ABI version {version}; this Python package needs {ABI_VERSION}')
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(loaded, name)
            except AttributeError as error:
                raise exceptions.StartError(f'{path} lacks {name}') from error
            function.restype = result
            function.argtypes = arguments
        _library = loaded
    return _library


def failure(code):
    """The exception for a code that the last call in this thread returned; never raises."""
    text = (library().rueda_last_error() or b'').decode('utf-8', 'replace')
    name = library().rueda_code_name(code).decode()
    if code == SHUT_DOWN:  # As scripts know it.
        text = f'Horovod has been shut down ({text})'
    return _FAILURES.get(code, exceptions.HorovodInternalError)(text or name)


def dtype_infos():
    """A DtypeInfo of the library for each data type, at the place of its wire value."""
    infos = []
    while True:
        info = DtypeInfo(struct_size=ctypes.sizeof(DtypeInfo))
        if library().rueda_describe_dtype(len(infos), ctypes.byref(info)) != OK:
            return infos
        infos.append(info)


def interrupted_callback(function):
    """A C callback for Options.interrupted. The caller keeps the returned object alive.

    `function()` must be a callable implemented in C that never raises (see _interrupts.py).
    """
    return _InterruptedFunction(function)


def op_array(count):
    """An array of `count` zeroed operations, and one of handles for them."""
    return (Op * count)(), (ctypes.c_uint64 * count)()


def int64_array(values):
    """A C array of int64; its address is valid while the object lives."""
    return (ctypes.c_int64 * len(values))(*values)


def int32_array(values):
    """As int64_array(), of int32."""
    return (ctypes.c_int32 * len(values))(*values)


def address_of(c_object):
    """Address of a ctypes object as an integer."""
    return ctypes.addressof(c_object)


def bytes_at(address, count):
    """A copy of `count` bytes of memory as a bytes object."""
    return ctypes.string_at(address, count)


def zero_memory(address, count):
    """Sets `count` bytes to zero."""
    ctypes.memset(address, 0, count)


class Span:
    """Pages of ordinary memory that stand for blocks of a closed session, until the last has gone.

    One thread at a time.
    """

    def __init__(self, start, end):
        self.start, self.end = start, end
        self._addresses = set()

    def holds(self, address):
        """Whether the block at `address` lies here."""
        return self.start <= address < self.end

    def add(self, address):
        """Counts a block."""
        self._addresses.add(address)

    def addresses(self):
        """Of the blocks that have not been forgotten."""
        return tuple(self._addresses)

    def forget(self, address):
        """The block is not used any more."""
        self._addresses.discard(address)
        if not self._addresses:
            ctypes.CDLL(None).munmap(ctypes.c_void_p(self.start),
                                     ctypes.c_size_t(self.end - self.start))


def restore_memory(pieces):
    """Puts ordinary memory where a closed session had some; returns it as a list of Span.

    `pieces` lists (address, bytes to put there). Places that are mapped, be it still or again, are
    left alone.
    """
    spans = []  # Of whole pages, merged: small pieces may share a page.
    for address, data in sorted(pieces):
        start = address - address % mmap.PAGESIZE
        end = -(-(address + len(data)) // mmap.PAGESIZE) * mmap.PAGESIZE
        if spans and start <= spans[-1].end:
            spans[-1].end = max(spans[-1].end, end)
        else:
            spans.append(Span(start, end))
    mapped = [span for span in spans if _map_at(span.start, span.end - span.start)]
    for address, data in pieces:
        for span in mapped:
            if span.holds(address):
                ctypes.memmove(address, data, len(data))
                span.add(address)
    return mapped


def _map_at(address, count):
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    return libc.mmap(address, count, mmap.PROT_READ | mmap.PROT_WRITE,
                     mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE, -1, 0) == address


def block_buffer(address, count, release):
    """A writable buffer object over [address, address + count).

    `release()` runs once, when the last Python object that uses the buffer has gone, or never if
    that is at interpreter exit. It must not raise.
    """
    buffer = (ctypes.c_ubyte * count).from_address(address)
    weakref.finalize(buffer, release).atexit = False
    return buffer
