# SPDX-License-Identifier: Apache-2.0
"""The rows as data: what is compared with what, at which size, and what is wanted of it."""
from collections import namedtuple
from fnmatch import fnmatchcase

# One way to do the work: a contender and what it is told to measure.
Way = namedtuple("Way", "contender kind")

# Wanted ratios (peer's time / ours): regression gate, least acceptable, aim. None: not set.
Target = namedtuple("Target", "gate least aim")

# A comparison. `workload` is a label of SIZES (perhaps with BUSY), "resnet" or a model; `metric` a
# field of Sample.
# `limit_us`: wanted instead is ours - peer <= limit_us. `limits`: ways that show what the machine
# allows; where a target asks for more, SHARE_ENOUGH of the fastest of them is enough.
Row = namedtuple("Row", "name ranks workload ours peers target metric limit_us limits",
                 defaults=((),))

SIZES = {"4B": 4, "1K": 1 << 10, "64K": 64 << 10, "1M": 1 << 20, "16M": 16 << 20, "64M": 64 << 20,
         "256M": 256 << 20}
RESNET_BYTES = 25557032 * 4
# What each rank gives to a collective that does not sum in place.
COLLECTIVE_SIZES = {"4K": 4 << 10, "1M": 1 << 20, "16M": 16 << 20, "64M": 64 << 20}
COLLECTIVES = ("allgather", "alltoall", "broadcast", "reducescatter")
# At the end of a workload: measured while as many other processes as there are cores compute.
BUSY = "+busy"
MODELS = {"cnn": 38050 * 4, "mlp": 85002 * 4, "mlp-wide": 4349962 * 4}  # Bytes of gradients.
# Models that compute next to nothing: a step is what the optimizer and its wrapper cost.
SYNTHETIC = {"resnet161": RESNET_BYTES, "small161": 161 * 64 * 4}
TABLES = {"100k-rows": 100_000 * 256, "1m-rows": 1_000_000 * 256}  # Of 64 float32 a row.

# Calls a round, full and quick; training: steps.
ITERATIONS = {"4B": (5000, 3000), "4K": (3000, 1500),
              "1K": (5000, 3000), "64K": (1000, 600), "1M": (200, 120),
              "16M": (16, 8), "64M": (7, 5), "256M": (3, 3), "resnet": (7, 3),
              "4B+busy": (2000, 600), "1M+busy": (100, 40), "cnn": (250, 120), "mlp": (1000, 400),
              "mlp-wide": (50, 25), "resnet161": (12, 6), "small161": (200, 100),
              "100k-rows": (150, 60), "1m-rows": (30, 12)}
QUICK_WORKLOADS = ("4B", "64K", "1M", "64M", "resnet", "4B+busy", "1M+busy", "cnn", "mlp",
                   "mlp-wide", "small161", "100k-rows")

NONE = Target(None, None, None)
MPI = ("ompi-cma", "ompi-nocma", "impi", "impi-avx512")

# Speed of the shared-tensor path as a share of the prototype's.
AGAINST_PROTOTYPE = {"small": Target(0.40, 0.65, 1.0), "large": Target(0.70, 0.85, 1.0)}
AGAINST_MPI = {
    2: {"4B": Target(0.8, 1.2, 2.0), "64K": Target(1.5, 2.5, 3.3), "1M": Target(2.0, 3.3, 4.5),
        "16M": Target(2.5, 4.0, 5.5), "64M": Target(2.0, 3.0, 4.0)},
    4: {"4B": Target(0.5, 0.9, 1.3), "64K": Target(1.3, 2.3, 3.0), "1M": Target(2.0, 3.8, 5.0),
        "16M": Target(1.7, 2.7, 3.5), "64M": Target(2.0, 3.5, 4.5)},
}
AGAINST_GLOO = {2: Target(12, 18, 20), 4: Target(15, 25, 30)}
AGAINST_TUNED_GLOO = {2: Target(8, 14, 15), 4: NONE}
RESNET_AGAINST_MPI = {2: Target(2.0, 3.0, 3.6), 4: Target(2.5, 3.5, 4.2)}
RESNET_AGAINST_TORCH = {2: Target(15, 30, 40), 4: Target(25, 45, 55)}
# One by one may take 1.6, 1.25, 1.1 times the flat bucket.
RESNET_AGAINST_FLAT = Target(1 / 1.6, 1 / 1.25, 1 / 1.1)
SHARE_OF_LIMIT = {(2, "64M"): Target(0.65, 0.85, 0.95), (2, "1M"): Target(None, None, 0.60)}
PRIVATE_AGAINST_MPI = {"64M": Target(0.8, 1.1, 1.5)}
# At 1 MiB and more, and at 4 KiB.
COLLECTIVES_AGAINST_MPI = {"large": Target(None, 2.5, None), "small": Target(None, 1.0, None)}
SHARE_ENOUGH = 0.85
# The daemon's sum of 4 B may take 1.5 sleeping round trips; at 1 MiB it must beat MPI.
DAEMON_AGAINST_MPI = {(2, "1M"): Target(1.3, None, None)}
DAEMON_AGAINST_FUTEX = Target(1 / 1.5, None, None)
TRAINING = Target(None, 0.85, None)
PYTHON_LIMIT_US = 10.0
# A fifth of the time of gathering everything over loopback, which is what Horovod does.
SPARSE_AGAINST_GATHER = Target(None, 5.0, None)


def _row(name, ranks, workload, ours, peers, target=NONE, metric="p50", limit_us=None, limits=()):
    return Row(f"{name}-r{ranks}-{workload}", ranks, workload, Way(*ours),
               [Way(*peer) for peer in peers], target, metric, limit_us,
               tuple(Way(*limit) for limit in limits))


def _every(contenders, *kinds):
    return [(contender, kind) for contender in contenders for kind in kinds]


def _tensor_rows(ranks, size):
    """One tensor of one size over the C ABI."""
    small = SIZES[size] <= 4096
    prototype = [("proto", "slices")] + ([("proto", "inline")] if small else [])
    mpi = _every(MPI, "sync")
    shared = ("rueda", "shared-sync")
    rows = [
        _row("shared-proto", ranks, size, shared, prototype,
             AGAINST_PROTOTYPE["small" if small else "large"]),
        _row("shared-mpi", ranks, size, shared, mpi, AGAINST_MPI[ranks].get(size, NONE)),
        _row("shared-p99-mpi", ranks, size, shared, mpi, metric="p99"),
        _row("async-mpi", ranks, size, ("rueda", "shared-async"), mpi),
        _row("private-mpi", ranks, size, ("rueda", "private-sync"), mpi,
             PRIVATE_AGAINST_MPI.get(size, NONE)),
        _row("daemon-mpi", ranks, size, ("rueda-isolated", "shared-sync"), mpi,
             DAEMON_AGAINST_MPI.get((ranks, size), NONE)),
        _row("daemon-async-mpi", ranks, size, ("rueda-isolated", "shared-async"), mpi),
        # The yardstick against the peers: tells a slow machine from a slow product.
        _row("proto-mpi", ranks, size, prototype[-1], mpi),
    ]
    if not small:
        rows.append(_row("proto-limit", ranks, size, prototype[0], [("limit", f"sum{ranks}")]))
    if small:
        rows.append(_row("daemon-futex", ranks, size, ("rueda-isolated", "shared-sync"),
                         [("limit", "futex")], DAEMON_AGAINST_FUTEX if ranks == 2 else NONE))
    else:
        rows.append(_row("shared-limit", ranks, size, shared, [("limit", f"sum{ranks}")],
                         SHARE_OF_LIMIT.get((ranks, size), NONE)))
    if size == "64M":
        rows.append(_row("shared-gloo", ranks, size, shared, _every(["gloo"], "ring", "bcube"),
                         AGAINST_GLOO[ranks]))
        rows.append(_row("shared-gloo-tuned", ranks, size, shared,
                         _every(["gloo-tuned"], "ring", "bcube"), AGAINST_TUNED_GLOO[ranks]))
    return rows


def _python_rows(ranks, size):
    """rueda.torch against the C ABI under it, and against torch.distributed."""
    limit = PYTHON_LIMIT_US if size == "4B" else None
    rows = [_row(f"py-{way}-c", ranks, size, ("rueda-torch", way), [("rueda", way)],
                 limit_us=limit)
            for way in ("shared-sync", "shared-async", "private-sync", "private-async")]
    return rows + [_row(f"py-{way}-torchgloo", ranks, size, ("rueda-torch", way),
                        [("torch-gloo", "sync")]) for way in ("shared-sync", "private-sync")]


def _collective_rows(ranks, size):
    """Collectives that move rows, or scatter sums, in shared and in private memory."""
    small = size == "4K"
    target = COLLECTIVES_AGAINST_MPI["small" if small else "large"]
    rows = []
    for kind in COLLECTIVES:
        mpi = _every(MPI, kind)
        ways = [kind] if kind == "reducescatter" else [kind, kind + "-rep", kind + "-nt"]
        limits = [] if small else _every(["move-limit"], *ways)
        shared = ("rueda", f"shared-{kind}")
        rows += [_row(f"{kind}-mpi", ranks, size, shared, mpi, target, limits=limits),
                 _row(f"{kind}-private-mpi", ranks, size, ("rueda", f"private-{kind}"), mpi),
                 _row(f"{kind}-gloo", ranks, size, shared, _every(["gloo", "gloo-tuned"], kind))]
        if limits:
            rows.append(_row(f"{kind}-limit", ranks, size, shared, limits))
        if kind in ("allgather", "alltoall"):
            rows += [_row(f"{kind}-{way}-mpi", ranks, size, ("rueda", f"shared-{way}-{kind}"), mpi)
                     for way in ("owned", "async")]
    return rows


def _resnet_rows(ranks):
    """ResNet-50's 161 gradients, one by one."""
    mpi = _every(MPI, "resnet-async", "resnet-sync")
    torch = _every(["torch-gloo"], "resnet-async", "resnet-sync")
    prototype = [("proto", "resnet-async")]
    return [_row("resnet-" + name, ranks, "resnet", ours, peers, target)
            for name, ours, peers, target in (
                ("async-mpi", ("rueda", "resnet-async"), mpi, RESNET_AGAINST_MPI[ranks]),
                ("sync-mpi", ("rueda", "resnet-sync"), mpi, NONE),
                ("private-async-mpi", ("rueda", "private-resnet-async"), mpi, NONE),
                ("daemon-async-mpi", ("rueda-isolated", "resnet-async"), mpi, NONE),
                ("async-torchgloo", ("rueda", "resnet-async"), torch,
                 RESNET_AGAINST_TORCH[ranks]),
                ("async-flat", ("rueda", "resnet-async"), [("rueda", "resnet-flat")],
                 RESNET_AGAINST_FLAT),
                # float32 and float16 by turns: fused with look-ahead, or only what is adjacent.
                ("mixed-in-order", ("rueda", "resnet-mixed"),
                 [("rueda-in-order", "resnet-mixed")], NONE),
                ("async-proto", ("rueda", "resnet-async"), prototype, NONE),
                ("sync-proto", ("rueda", "resnet-sync"), [("proto", "resnet-sync")], NONE),
                ("py-shared-async-torchgloo", ("rueda-torch", "shared-resnet-async"), torch,
                 RESNET_AGAINST_TORCH[ranks]),
                ("py-shared-sync-torchgloo", ("rueda-torch", "shared-resnet-sync"), torch, NONE),
                ("py-private-async-torchgloo", ("rueda-torch", "private-resnet-async"), torch,
                 NONE),
                ("py-private-sync-torchgloo", ("rueda-torch", "private-resnet-sync"), torch, NONE),
                ("py-grouped-async", ("rueda-torch", "shared-resnet-grouped"),
                 [("rueda-torch", "shared-resnet-async")], NONE),
                ("py-grouped-sync", ("rueda-torch", "shared-resnet-grouped"),
                 [("rueda-torch", "shared-resnet-sync")], NONE),
                ("py-private-grouped-async", ("rueda-torch", "private-resnet-grouped"),
                 [("rueda-torch", "private-resnet-async")], NONE),
                ("proto-mpi", ("proto", "resnet-async"), mpi, NONE),
            )]


def _busy_rows(ranks, size):
    """One tensor where data loaders or other jobs keep the cores busy.

    The mean: what waits for a slice of the processor does so in few calls, for milliseconds.
    """
    mpi = _every(MPI, "sync")
    return [_row("shared-mpi", ranks, size + BUSY, ("rueda", "shared-sync"), mpi, metric="mean"),
            _row("async-mpi", ranks, size + BUSY, ("rueda", "shared-async"), mpi, metric="mean")]


def _sparse_rows(ranks, table):
    """The gradient of an embedding, 4,096 rows touched; `text`: ids repeat as words do."""
    rows = []
    for text in ("", "-text"):
        ours, call = ("rueda-sparse", "optimizer" + text), ("rueda-sparse", "call" + text)
        gather = [("torch-sparse", "gather" + text)]
        own = [("rueda-sparse", "gather" + text)]
        rows += [_row(f"sparse{text}-gather", ranks, table, ours, gather, SPARSE_AGAINST_GATHER),
                 _row(f"sparse{text}-own-gather", ranks, table, ours, own),
                 _row(f"sparse{text}-call-gather", ranks, table, call, gather),
                 _row(f"sparse{text}-call-own-gather", ranks, table, call, own)]
    ours = ("rueda-sparse", "optimizer")
    return rows + [_row("sparse-dense", ranks, table, ours, [("rueda-sparse", "dense")]),
                   _row("sparse-dense-torchgloo", ranks, table, ours, [("torch-sparse", "dense")])]


def comparison_rows():
    """Every row that compares two ways, in the order of measurement."""
    rows = []
    for ranks in (2, 4):
        for size in SIZES:
            rows += _tensor_rows(ranks, size)
            if size in ("4B", "1M", "64M"):
                rows += _python_rows(ranks, size)
        for size in COLLECTIVE_SIZES:
            rows += _collective_rows(ranks, size)
        rows += _resnet_rows(ranks)
        rows.append(_row("mixed-in-order", ranks, "small161", ("rueda", "small161-mixed"),
                         [("rueda-in-order", "small161-mixed")]))
        rows += _busy_rows(ranks, "4B") + _busy_rows(ranks, "1M")
        if ranks == 2:
            rows += [_row("train", 2, model, ("rueda-train", model), [("alone-train", model)],
                          TRAINING) for model in MODELS]
            rows += [_row("step", 2, model, ("rueda-train", model), [("alone-train", model)])
                     for model in SYNTHETIC]
            rows += [row for table in TABLES for row in _sparse_rows(2, table)]
    return rows


def bytes_of(workload):
    """Payload in bytes of a workload's label."""
    if workload == "resnet":
        return RESNET_BYTES
    workload = workload.removesuffix(BUSY)
    return {**SIZES, **COLLECTIVE_SIZES, **MODELS, **SYNTHETIC, **TABLES}[workload]


def select(rows, globs, quick):
    """The rows that the globs name (all without globs); with `quick`, fewer sizes of them."""
    chosen = [row for row in rows
              if not globs or any(fnmatchcase(row.name, glob) for glob in globs)]
    return [row for row in chosen if not quick or row.workload in QUICK_WORKLOADS]
