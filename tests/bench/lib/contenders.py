# SPDX-License-Identifier: Apache-2.0
"""How each contender is started, as one table. A contender is one program with fixed settings."""
import os
import socket
from collections import namedtuple

from lib.peers import HERE, REPOSITORY

# Temporaries of a call come from memory that stays mapped: no page faults inside the measurement.
TUNED_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
                "MALLOC_TOP_PAD_": str(256 << 20)}
ROOT_MAY_RUN = {name: "1" for name in (
    "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")}

# needs: installed and compiled pieces, and what the processor must have (lib/peers.py). slow: gets
# a third of the calls.
Contender = namedtuple("Contender", "name needs launch slow daemon")

Setting = namedtuple("Setting", "peers ranks folder socket job")


def _environment(**more):
    """The caller's environment without settings that would change what is measured."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("OMPI_", "I_MPI_", "RUEDA_", "HOROVOD_", "MALLOC_", "GLOO_"))}
    return {**kept, **more}


def _each_rank(setting, head, tail=()):
    """One command line a rank: HEAD FOLDER RANK RANKS TAIL."""
    return [list(head) + [setting.folder, str(rank), str(setting.ranks)] + [str(t) for t in tail]
            for rank in range(setting.ranks)]


def _prototype(setting):
    return _each_rank(setting, [setting.peers.program("bench_prototype")]), _environment()


def _limit(setting):
    return [[setting.peers.program("bench_memlimit"), setting.folder]], _environment()


def _move_limit(setting):
    return _each_rank(setting, [setting.peers.program("bench_movelimit")]), _environment()


def _openmpi(cma):
    def launch(setting):
        command = [os.path.join(setting.peers.openmpi, "bin", "mpirun"), "--mca", "btl", "sm,self",
                   "--mca", "pml", "ob1", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE",
                   # Its segments lie in the gang's folder and go with it, however the gang ends.
                   "--mca", "btl_sm_backing_directory", setting.folder]
        if not cma:
            command += ["--mca", "smsc", "^cma"]
        if setting.ranks > (os.cpu_count() or 1):
            command += ["--mca", "mpi_yield_when_idle", "1"]
        command += ["-np", str(setting.ranks), setting.peers.program("bench_mpi.openmpi"),
                    setting.folder]
        return [command], _environment(**TUNED_MALLOC, **ROOT_MAY_RUN)
    return launch


def _impi(shm):
    def launch(setting):
        more = {"I_MPI_SHM": shm} if shm else {}
        command = [os.path.join(setting.peers.impi, "bin", "mpiexec.hydra"),
                   "-n", str(setting.ranks), setting.peers.program("bench_mpi.impi"),
                   setting.folder]
        return [command], _environment(
            I_MPI_FABRICS="shm", I_MPI_PIN="0",
            LD_LIBRARY_PATH=os.path.join(setting.peers.impi, "lib"), **TUNED_MALLOC, **more)
    return launch


def _gloo(malloc):
    def launch(setting):
        return (_each_rank(setting, [setting.peers.program("bench_gloo")]),
                _environment(**malloc))
    return launch


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _python(script, setting, tail=()):
    return _each_rank(setting, [setting.peers.python, os.path.join(HERE, script)], tail)


def _torch(setting):
    return _python("bench_torch.py", setting, [_free_port()]), _environment()


def _torch_sparse(setting):
    return _python("bench_sparse.py", setting, ["torch", _free_port()]), _environment()


def _rueda(isolated=False, **variables):
    def launch(setting):
        tail = [setting.socket, setting.job] + (["isolated"] if isolated else [])
        return (_each_rank(setting, [setting.peers.program("bench_rueda")], tail),
                _environment(**variables))
    return launch


def _with_rank(argv, setting, rank):
    """The rank's place in the job travels in the environment, as a launcher would set it."""
    ranks = str(setting.ranks)
    places = {"RANK": rank, "SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_SIZE": ranks,
              "CROSS_RANK": 0, "CROSS_SIZE": 1, "SOCKET": setting.socket, "JOB": setting.job}
    return ["env"] + [f"RUEDA_{name}={value}" for name, value in places.items()] + argv


def _fast_blas(setting):
    return {"LD_LIBRARY_PATH": setting.peers.blas, "OPENBLAS_NUM_THREADS": "1"}


def _rueda_python(script, tail=()):
    def launch(setting):
        more = [setting.peers.digits if word == "DIGITS" else word for word in tail]
        argvs = [_with_rank(argv, setting, rank)
                 for rank, argv in enumerate(_python(script, setting, more))]
        environment = _environment(
            **_fast_blas(setting),
            PYTHONPATH=os.path.join(REPOSITORY, "client", "python"),
            RUEDA_LIBRARY=os.path.join(REPOSITORY, "bazel-bin", "client", "c", "librueda.so"))
        return argvs, environment
    return launch


def _alone(setting):
    return (_python("bench_train.py", setting, ["alone", setting.peers.digits]),
            _environment(**_fast_blas(setting)))


CONTENDERS = {c.name: c for c in (
    Contender("rueda", ["rueda"], _rueda(), False, True),
    Contender("rueda-in-order", ["rueda"], _rueda(RUEDA_FUSION_LOOK_BACK="1"), False, True),
    Contender("rueda-isolated", ["rueda"], _rueda(isolated=True), False, True),
    Contender("rueda-life", ["rueda"], _rueda(), False, True),
    Contender("rueda-torch", ["rueda", "torch"], _rueda_python("bench_rueda_torch.py"), False,
              True),
    Contender("rueda-train", ["rueda", "torch", "data", "blas"],
              _rueda_python("bench_train.py", ["rueda", "DIGITS"]), False, True),
    Contender("rueda-sparse", ["rueda", "torch"], _rueda_python("bench_sparse.py", ["rueda"]),
              False, True),
    Contender("torch-sparse", ["torch"], _torch_sparse, True, False),
    Contender("alone-train", ["torch", "data", "blas"], _alone, False, False),
    Contender("proto", ["proto"], _prototype, False, False),
    Contender("limit", ["limit"], _limit, False, False),
    Contender("move-limit", ["movelimit"], _move_limit, False, False),
    Contender("ompi-cma", ["ompi"], _openmpi(True), False, False),
    Contender("ompi-nocma", ["ompi"], _openmpi(False), False, False),
    Contender("impi", ["impi"], _impi(None), False, False),
    Contender("impi-avx512", ["impi", "avx512"], _impi("clx_avx512"), False, False),
    Contender("gloo", ["gloo"], _gloo({}), True, False),
    Contender("gloo-tuned", ["gloo"], _gloo(TUNED_MALLOC), True, False),
    Contender("torch-gloo", ["torch"], _torch, True, False),
)}
