# SPDX-License-Identifier: Apache-2.0
"""Installs the peers and compiles the benchmark programs, into a cache outside the tree.

Everything is kept between runs: an environment by its pins, a program by its sources and flags.
"""
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
DEBIAN_PYTHON = "/usr/bin/python3"  # Sees Debian's torch.

OPENMPI_PINS = ["openmpi>=5.0,<5.1"]
IMPI_PINS = ["impi-rt>=2021.18,<2022", "impi-devel>=2021.18,<2022"]
DATA_PINS = ["scikit-learn"]  # Only its data file is used, so nothing it depends on is needed.

FLAGS = ["-std=c++17", "-O3", "-march=native", "-Wall", "-Wextra", "-pthread"]
DEBIAN_PACKAGES = {"/usr/include/gloo/allreduce.h": "libgloo-dev",
                   "/usr/lib/python3/dist-packages/torch": "python3-torch"}


def say(text):
    """Progress for the person who waits; results alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


class Peers:
    """Paths of what is installed; `problems` names what could not be, by peer."""

    def __init__(self, python=DEBIAN_PYTHON, cache=None):
        """`python`: the interpreter whose torch is used."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.cache = cache or os.path.join(base, "rueda", "bench")
        self.bin = os.path.join(self.cache, "bin")
        self.logs = os.path.join(self.cache, "logs")
        for folder in (self.bin, self.logs):
            os.makedirs(folder, exist_ok=True)
        self.openmpi = os.path.join(self.cache, "openmpi")
        self.impi = os.path.join(self.cache, "impi")
        self.digits = os.path.join(self.cache, "data", "sklearn", "datasets", "data",
                                   "digits.csv.gz")
        self.blas = os.path.join(self.cache, "openblas", "usr", "lib", "x86_64-linux-gnu",
                                 "openblas-pthread")
        self.python = python
        self.cpuinfo = "/proc/cpuinfo"
        self.problems = {}

    def program(self, name):
        """Path of a compiled program."""
        return os.path.join(self.bin, name)

    def prepare(self, names):
        """Installs and compiles what these contenders need; notes failures in `problems`.

        `names` are among proto, limit, movelimit, ompi, impi, avx512, gloo, torch, rueda, data,
        blas.
        """
        steps = {"proto": self._prototype, "limit": self._limit,
                 "movelimit": self._movelimit, "ompi": self._openmpi,
                 "impi": self._impi, "avx512": self._avx512, "gloo": self._gloo,
                 "torch": self._torch, "rueda": self._rueda, "data": self._data,
                 "blas": self._blas}
        for name in sorted(names):
            try:
                steps[name]()
            except (subprocess.CalledProcessError, OSError) as error:
                self.problems[name] = _reason(error)
                say(f"bench: no {name}: {self.problems[name]}")

    def _prototype(self):
        self._compile("bench_prototype", "g++", ["bench_prototype.cc"], [])

    def _limit(self):
        self._compile("bench_memlimit", "g++", ["bench_memlimit.cc"], [])

    def _movelimit(self):
        self._compile("bench_movelimit", "g++", ["bench_movelimit.cc"], [])

    def _openmpi(self):
        self._environment(self.openmpi, OPENMPI_PINS)
        self._compile("bench_mpi.openmpi", os.path.join(self.openmpi, "bin", "mpicxx"),
                      ["bench_mpi.cc"], [])

    def _impi(self):
        self._environment(self.impi, IMPI_PINS)
        library = os.path.join(self.impi, "lib")
        self._compile("bench_mpi.impi", "g++", ["bench_mpi.cc"],
                      ["-I" + os.path.join(self.impi, "include"), "-L" + library, "-lmpi",
                       "-Wl,-rpath," + library, "-ldl", "-lrt"])

    def _avx512(self):
        """Nothing to install; without these instructions a program that uses them dies."""
        with open(self.cpuinfo, encoding="utf-8") as file:
            if "avx512f" not in file.read().split():
                raise OSError("this processor has no AVX-512 (avx512f in /proc/cpuinfo)")

    def _gloo(self):
        _debian("/usr/include/gloo/allreduce.h")
        self._compile("bench_gloo", "g++", ["bench_gloo.cc"], ["-lgloo"])

    def _torch(self):
        if self.python == DEBIAN_PYTHON:
            _debian("/usr/lib/python3/dist-packages/torch")
        _run([self.python, "-c", "import torch"])

    def _blas(self):
        """Debian's torch multiplies with whatever BLAS there is; the plain one is 15 times too slow
        to be a yardstick for training, so OpenBLAS is unpacked beside the system's.
        """
        if self.python != DEBIAN_PYTHON or os.path.exists(self.blas):
            return
        say("bench: fetching OpenBLAS")
        folder = os.path.join(self.cache, "openblas")
        os.makedirs(folder, exist_ok=True)
        _run(["apt-get", "download", "-q", "libopenblas0-pthread"], cwd=folder)
        for name in os.listdir(folder):
            if name.endswith(".deb"):
                _run(["dpkg", "-x", name, "."], cwd=folder)

    def _rueda(self):
        library = os.path.join(REPOSITORY, "bazel-bin", "client", "c")
        self._compile("bench_rueda", "g++", ["bench_rueda.cc"],
                      ["-L" + library, "-lrueda", "-Wl,-rpath," + library])

    def _data(self):
        if not os.path.exists(self.digits):
            say("bench: fetching the digits data")
            _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade",
                  "--target", os.path.join(self.cache, "data")] + DATA_PINS)

    def _environment(self, folder, pins):
        """A virtual environment with `pins`, made anew when they change."""
        mark = os.path.join(folder, "pins")
        wanted = "\n".join(pins)
        if os.path.exists(mark):
            with open(mark, encoding="ascii") as file:
                if file.read() == wanted:
                    return
        say(f"bench: installing {' '.join(pins)}")
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", folder])
        _run([os.path.join(folder, "bin", "pip"), "install", "-q"] + pins)
        with open(mark, "w", encoding="ascii") as file:
            file.write(wanted)

    def _compile(self, name, compiler, sources, extra):
        """Compiles with the gang's code, unless sources, headers and flags are as last time."""
        command = [compiler] + FLAGS + ["-I" + REPOSITORY, "-o", self.program(name)]
        command += [os.path.join(HERE, s) for s in sources + ["bench_gang.cc"]] + extra
        headers = [os.path.join(HERE, f) for f in sorted(os.listdir(HERE)) if f.endswith(".h")]
        headers += [os.path.join(REPOSITORY, "client", "c", f)
                    for f in ("rueda.h", "rueda_types.h")]
        key = hashlib.sha256(" ".join(command).encode())
        for path in [c for c in command if c.endswith(".cc")] + headers:
            with open(path, "rb") as file:
                key.update(file.read())
        mark = self.program(name) + ".key"
        if os.path.exists(mark) and os.path.exists(self.program(name)):
            with open(mark, encoding="ascii") as file:
                if file.read() == key.hexdigest():
                    return
        say(f"bench: compiling {name}")
        _run(command)
        with open(mark, "w", encoding="ascii") as file:
            file.write(key.hexdigest())


def build_product(jobs):
    """Builds ruedad and librueda with optimisation. Raises CalledProcessError."""
    say("bench: building ruedad and librueda")
    _run(["bazel", "build", "-c", "opt", f"--jobs={jobs}", "//:librueda",
          "//:ruedad"], cwd=REPOSITORY)


def _debian(path):
    """Installs the Debian package that brings `path`, when it is missing and we may."""
    if os.path.exists(path):
        return
    package = DEBIAN_PACKAGES[path]
    if os.geteuid() != 0:
        raise OSError(f"install {package} first: apt-get install --no-install-recommends {package}")
    say(f"bench: installing {package}")
    _run(["apt-get", "install", "-y", "-q", "--no-install-recommends", package])


def _run(command, cwd=None):
    subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   universal_newlines=True)


def _reason(error):
    """The last lines of a failed command, or the error itself."""
    output = getattr(error, "output", None)
    return " | ".join(output.strip().splitlines()[-4:]) if output else str(error)
