# SPDX-License-Identifier: Apache-2.0
"""A Python rank's end of a gang; the counterpart of bench_gang.h. One thread of each rank."""
import ctypes
import gc
import mmap
import os
import sys
import time
from collections import namedtuple

Command = namedtuple("Command", "kind bytes iterations")

LINE = 64                  # Bytes of one rank in the shared file.
YIELD_AFTER = 2000         # Looks before a waiting rank yields.
BARRIER_LIMIT_S = 60
BACK_TO_BACK_BYTES = 4096  # No barrier between smaller calls; as in bench_gang.cc.
START_DELAY_NS = 20_000    # Python takes some microseconds to see rank 0's word.


class RankGang:
    """Commands in, replies out, and a barrier over shared memory."""

    def __init__(self, folder, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self._reply = os.open(os.path.join(folder, "reply"), os.O_WRONLY)
        with open(os.path.join(folder, "lines"), "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        self._arrived = [ctypes.c_uint64.from_buffer(self._memory, LINE * r) for r in range(ranks)]
        self._values = [ctypes.c_double.from_buffer(self._memory, LINE * r + 8)
                        for r in range(ranks)]
        self._start = ctypes.c_uint64.from_buffer(self._memory, 16)
        self._last_start = 0
        self._sequence = 0
        self._crowded = ranks > (os.cpu_count() or 1)
        with open(os.path.join(folder, f"pid.{rank}"), "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        self._commands = open(os.path.join(folder, f"command.{rank}"), encoding="ascii")

    def barrier(self):
        """Returns when all ranks are here; ends the process after a minute."""
        self._sequence += 1
        wanted = self._sequence
        self._arrived[self.rank].value = wanted  # An aligned word: seen whole by the others.
        for other in self._arrived:
            looks, deadline = 0, 0.0
            while other.value < wanted:
                looks += 1
                if looks < YIELD_AFTER and not self._crowded:
                    continue
                os.sched_yield()
                deadline = deadline or time.monotonic() + BARRIER_LIMIT_S
                if time.monotonic() > deadline:
                    self.fail("a rank did not come to the barrier")

    def start_together(self):
        """A barrier that lets all ranks go at one moment, as Gang::startTogether does."""
        self.barrier()
        if self._crowded:
            return
        if self.rank == 0:
            self._start.value = time.perf_counter_ns() + START_DELAY_NS
        while self._start.value == self._last_start:
            pass
        self._last_start = self._start.value
        while time.perf_counter_ns() < self._last_start:
            pass

    def exchange(self, value):
        """One float from every rank, in rank order."""
        self._values[self.rank].value = value
        self.barrier()
        values = [word.value for word in self._values]
        self.barrier()
        return values

    def commands(self):
        """Yields commands until the driver leaves; says that this rank is ready first."""
        self.barrier()
        if self.rank == 0:
            self.reply("ready")
        for line in self._commands:
            kind, nbytes, iterations = line.split()
            self.barrier()
            yield Command(kind, int(nbytes), int(iterations))

    def reply(self, line):
        """One line to the driver."""
        os.write(self._reply, (line + "\n").encode())

    def fail(self, why):
        """Tells the driver why and ends the process."""
        print(f"rank {self.rank}: {why}", file=sys.stderr, flush=True)
        self.reply(f"error rank {self.rank}: {str(why).splitlines()[0][:1024]}")
        os._exit(1)

    def measure(self, command, tensors, call):
        """Times `call` as the C++ ranks do: rewrite, meet, call; checks the sums at both ends.

        `tensors` are torch tensors that `call` sums in place. Rank 0 answers the driver.
        """
        expected = self.ranks * (self.ranks + 1) / 2

        def fill():
            for tensor in tensors:
                tensor.fill_(self.rank + 1)

        self.time_calls(
            command, fill, call,
            lambda _: all(bool((tensor == expected).all()) for tensor in tensors),
            meet=sum(tensor.numel() for tensor in tensors) * 4 > BACK_TO_BACK_BYTES)

    def time_calls(self, command, prepare, call, check, meet):
        """Times `call()` after `prepare()`, which may be None. Rank 0 answers the driver.

        `check(result)` says of the first and the last result whether it is right. `meet`: ranks
        start each call together.
        """
        warm_ups = max(1, command.iterations // 10)
        microseconds = []
        gc.collect()
        for i in range(-warm_ups, command.iterations):
            if prepare is not None:
                prepare()
            if meet:
                self.start_together()
            begin = time.perf_counter_ns()
            result = call()
            end = time.perf_counter_ns()
            if i >= 0:
                microseconds.append((end - begin) / 1e3)
            if i in (-warm_ups, command.iterations - 1):
                if not check(result):
                    self.fail(f"{command.kind}: wrong result")
                self.barrier()
        if self.rank == 0:
            self.reply(answer(microseconds))


def answer(microseconds):
    """The reply line of a list of times."""
    ordered = sorted(microseconds)
    count = len(ordered)
    p50, p99 = (ordered[min(count - 1, int(share * count))] for share in (0.5, 0.99))
    return f"ok {p50:.4f} {p99:.4f} {sum(ordered) / count:.4f} {count}"


def resnet50_shapes():
    """Shapes of ResNet-50's 161 gradients (25 557 032 floats) in forward order."""
    shapes = []

    def add_convolution(out, into, width):
        shapes.extend([(out, into, width, width), (out,), (out,)])

    add_convolution(64, 3, 7)
    into = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            add_convolution(width, into, 1)
            add_convolution(width, width, 3)
            add_convolution(4 * width, width, 1)
            if block == 0:
                add_convolution(4 * width, into, 1)
            into = 4 * width
    return shapes + [(1000, 2048), (1000,)]
