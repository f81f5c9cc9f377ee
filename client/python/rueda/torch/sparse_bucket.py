# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients of an optimizer: the rows of tables that some rank has touched are summed.

Two steps, each one operation for all tables (of a dtype): the ranks mark the rows that they have
touched in one array of bytes and take its maximum; then each rank adds its rows, duplicates
together, into the union of the rows that were marked, and that compact block is reduced. Nothing
travels twice, and no rank sorts. Both arrays are memory that all ranks reach, used again at each
step.

One thread at a time: the one that runs backward and step().
"""

import numpy
import torch

from rueda import _native, _session
from rueda.exceptions import ResourceExhaustedError
from rueda.torch.sparse import coalesced

_ALIGNMENT = 64
_INDEX_BYTES = 8
# Marks of a table in the first bytes: what the gradient is on this rank.
_MISSING, _SPARSE, _DENSE = 0, 1, 2
_TORCH_2 = int(torch.__version__.split('.')[0]) >= 2


class _Table:
    """One parameter, rows along dim 0, and what is known of it during a step."""

    def __init__(self, slot):
        shape = slot.parameter.shape
        self.slot = slot
        self.rows = shape[0] if shape else 1
        self.width = slot.parameter.numel() // max(self.rows, 1)
        self.row_bytes = self.width * slot.parameter.element_size()
        self.flags = None    # One byte for each row.
        self.gradient = None
        self.touched = None  # The rows that some rank has touched, ascending.
        self.form = _MISSING
        self.block = None

    @property
    def count(self):
        """Rows of the block that is reduced. The same on all ranks."""
        return self.rows if self.whole else len(self.touched)

    @property
    def whole(self):
        """Whether sending all rows takes no more bytes than the touched ones with their indices."""
        touched = len(self.touched) * (self.row_bytes + _INDEX_BYTES)
        return touched >= self.rows * self.row_bytes and len(self.touched) > 0

    @property
    def bytes(self):
        """What the result takes on each rank."""
        return self.count * self.row_bytes + len(self.touched) * _INDEX_BYTES


class SparseBucket:
    """The parameters of one optimizer whose gradients are sparse on some rank.

    Afterwards each `.grad` is sparse and coalesced, with the rows that any rank has touched, on all
    ranks; or dense on all where it was dense on one. A rank without a gradient counts as zeros.
    With a compressor of the user's, rows are sent as they are.
    """

    early = False    # Needs two steps, which the thread that calls synchronize() takes.
    staged = True    # `.grad` stays a tensor of its own.
    launched = False

    def __init__(self, name, slots, settings):
        self.slots = slots
        self.due = len(slots)
        self._settings = settings
        self._name = _session.current().name('allreduce', name)
        self._tables = [_Table(slot) for slot in slots]
        self._lay_out()
        self._positions = torch.zeros(max(table.rows for table in self._tables), dtype=torch.int64)
        self._buffers = {}  # By dtype of what is sent.
        for slot in slots:
            slot.bucket, slot.view, slot.sparse = self, None, True

    def _lay_out(self):
        first = _aligned(len(self._tables), 1)
        starts = []
        for table in self._tables:
            starts.append(first)
            first += _aligned(table.rows, 1)
        self._marks = torch.frombuffer(_session.current().arena.allocate(first), dtype=torch.uint8)
        for table, start in zip(self._tables, starts):
            table.flags = self._marks[start:start + table.rows]

    def take(self, slot):
        """Nothing to do before reduce(): the gradient stays where it is."""

    @property
    def sent(self):
        """All values that this rank is about to send."""
        return [piece for _, piece in self.pieces()]

    def pieces(self):
        """(slot, tensor) for all values that this rank is about to send."""
        pairs = [(slot, slot.parameter.grad) for slot in self.slots]
        return [(slot, gradient._values() if gradient.is_sparse else gradient)
                for slot, gradient in pairs if gradient is not None]

    @torch.no_grad()
    def reduce(self):
        """Reduces all tables now. Blocking.

        ResourceExhaustedError on all ranks: the result for one parameter is over the limit; no
        value has been sent. HorovodInternalError: the reduction failed.
        """
        try:
            self._mark()
            self._check_limit()
            kinds = {}
            for table in self._tables:
                kinds.setdefault(table.slot.parameter.dtype, []).append(table)
            for dtype, tables in kinds.items():
                self._reduce_values(dtype, tables)
            for table in self._tables:
                table.slot.parameter.grad = _result(table)
        finally:
            for table in self._tables:
                table.gradient = table.touched = table.block = None

    def _mark(self):
        """Learns which rows any rank has touched."""
        forms = self._marks[:len(self._tables)]
        for index, table in enumerate(self._tables):
            table.gradient = gradient = self._own(table.slot.parameter.grad)
            if gradient is None:
                continue
            forms[index] = _SPARSE if gradient.is_sparse else _DENSE
            if gradient.is_sparse:
                table.flags.index_fill_(0, gradient._indices()[0], 1)
            else:
                table.flags.fill_(1)
        try:
            self._run('.rows', self._marks, _native.MAX)
            for table, form in zip(self._tables, forms.tolist()):
                table.form = form
                table.touched = _places(table.flags)
        finally:
            self._marks.zero_()

    def _check_limit(self):
        for table in self._tables:
            if table.bytes > self._settings.sparse_limit:
                raise ResourceExhaustedError(
                    f'the sparse gradient of {table.slot.name} takes {table.bytes} bytes '
                    f'({len(table.touched)} of {table.rows} rows were touched); the limit is '
                    f'{self._settings.sparse_limit}, see RUEDA_SPARSE_LIMIT_BYTES')

    def _reduce_values(self, dtype, tables):
        starts, total = [], 0
        for table in tables:
            starts.append(total)
            total += _aligned(table.count * table.width, tables[0].slot.parameter.element_size())
        if not total:
            for table in tables:
                table.block = torch.zeros((0, table.width), dtype=dtype)
            return
        staged = self._settings.staged_dtype if dtype.is_floating_point else None
        sent = self._buffer(staged or dtype, total)
        flat = sent if sent.dtype == dtype else torch.empty(total, dtype=dtype)
        flat.zero_()
        for table, start in zip(tables, starts):
            table.block = flat[start:start + table.count * table.width].view(
                table.count, table.width)
            self._add(table)
        if flat is not sent:
            sent.copy_(flat)
        self._run('.values.' + str(dtype)[6:], sent)
        if flat is not sent:
            flat.copy_(sent)

    def _add(self, table):
        """Adds the rows of this rank to the block of the table."""
        gradient = table.gradient
        if gradient is None:
            return
        if not gradient.is_sparse:
            table.block.copy_(gradient.reshape(table.block.shape))
            return
        places, values = gradient._indices()[0], gradient._values()
        if not table.whole:
            numbers = torch.arange(table.count)
            places = self._positions.scatter_(0, table.touched, numbers).gather(0, places)
        values = values.reshape(len(places), table.width)
        # 4,096 rows of 64 floats: 50 us by index_add_ and 130 by index_put_ in PyTorch 2, 110 and
        # 30 in 1.13.
        if _TORCH_2:
            table.block.index_add_(0, places, values)
        else:
            table.block.index_put_((places,), values, accumulate=True)

    def _run(self, suffix, tensor, op=None):
        address = tensor.data_ptr()
        _session.current().run(self._name + suffix, self._settings.kind(tensor, op), address,
                               address, tensor.shape)

    def _buffer(self, dtype, count):
        buffer = self._buffers.get(dtype)
        if buffer is None or len(buffer) < count:
            element = torch.empty((), dtype=dtype).element_size()
            self._buffers.pop(dtype, None)
            # A quarter more: the number of touched rows moves from step to step.
            memory = _session.current().arena.allocate((count + count // 4) * element)
            buffer = self._buffers[dtype] = torch.frombuffer(memory, dtype=dtype)
        return buffer[:count]

    def _own(self, gradient):
        """The gradient with one sparse dimension and outside of the buffers, or None."""
        if gradient is None:
            return None
        gradient = gradient.detach()
        if not gradient.is_sparse:
            return gradient.clone() if self._in_buffers(gradient) else gradient
        if gradient.sparse_dim() != 1:
            gradient = gradient.to_dense().to_sparse(1)
        if self._in_buffers(gradient._values()):  # The result of an earlier step, left there.
            return coalesced(gradient._indices()[0], gradient._values().clone(), gradient.shape)
        return gradient

    def _in_buffers(self, tensor):
        return any(buffer.data_ptr() <= tensor.data_ptr()
                   < buffer.data_ptr() + buffer.numel() * buffer.element_size()
                   for buffer in self._buffers.values())

    def release(self):
        """Moves the gradients into ordinary memory, before the buffers go away."""
        for slot in self.slots:
            if slot.parameter.grad is not None:
                slot.parameter.grad = self._own(slot.parameter.grad)
            slot.bucket = None


def _aligned(count, element_bytes):
    step = _ALIGNMENT // min(element_bytes, _ALIGNMENT)
    return -(-count // step) * step


def _places(flags):
    """The places of the bytes of `flags` that are not 0, ascending, as int64.

    Eight bytes at a time by numpy: 80 us for a million rows of which 8,000 are set, where
    torch.nonzero takes 700.
    """
    data = flags.numpy()
    end = len(data) // 8 * 8
    words = data[:end].view(numpy.int64)
    used = numpy.flatnonzero(words != 0)
    inside = numpy.flatnonzero(words[used].view(numpy.bool_))
    places = used[inside >> 3] * 8 + (inside & 7)
    rest = numpy.flatnonzero(data[end:]) + end
    return torch.from_numpy(numpy.concatenate((places, rest)) if len(rest) else places)


def _result(table):
    parameter = table.slot.parameter
    if table.form == _DENSE:
        return table.block.view(parameter.shape)
    rows = table.block
    if len(rows) != len(table.touched):
        rows = rows.index_select(0, table.touched)
    return coalesced(table.touched, rows.view(len(table.touched), *parameter.shape[1:]),
                     parameter.shape)
