# SPDX-License-Identifier: Apache-2.0
"""The rules of the tree as data: who includes whom, who uses which library, how long a file is.

A folder's row applies to it and to its subfolders, unless a longer path has a row of its own. Paths
are relative to the root of the repository.
"""

# Folder (or file, or "folder/prefix_") -> what its C++ files may include. Each entry is a file or,
# with a final slash, a folder. A folder's row allows the folder itself; other rows say it.
_DAEMON_COMMON = ["daemon/config.h", "daemon/flow/", "daemon/base/", "shm/"]
INCLUDES = {
    "shm/": [],
    "client/cpp/": ["shm/"],
    "client/c/": ["client/cpp/", "shm/"],
    "client/cli/": ["proto/", "daemon/rpc/", "shm/"],
    "daemon/": ["daemon/", "shm/"],  # main, app, config: the files at the top build everything.
    "daemon/main.cc": ["daemon/app.h", "daemon/config.h", "daemon/base/", "shm/"],
    "daemon/config.h": ["daemon/base/", "shm/"],
    "daemon/config.cc": ["daemon/config.h", "daemon/base/", "shm/"],
    "daemon/base/": ["shm/"],
    "daemon/flow/": ["daemon/base/", "shm/"],
    "daemon/submit/": _DAEMON_COMMON,
    "daemon/negotiate/": _DAEMON_COMMON,
    "daemon/negotiate/grpc_": _DAEMON_COMMON + ["daemon/negotiate/", "daemon/rpc/", "proto/"],
    "daemon/fuse/": _DAEMON_COMMON,
    "daemon/execute/": _DAEMON_COMMON,
    "daemon/complete/": _DAEMON_COMMON,
    "daemon/tune/": _DAEMON_COMMON,
    "daemon/membership/": _DAEMON_COMMON,
    "daemon/membership/grpc_": _DAEMON_COMMON + ["daemon/membership/", "daemon/rpc/", "proto/"],
    "daemon/observe/": _DAEMON_COMMON,
    "daemon/rpc/": ["daemon/base/", "shm/", "proto/"],
    "daemon/serve/": _DAEMON_COMMON + ["daemon/rpc/", "proto/"],
    "daemon/engine/": _DAEMON_COMMON + [
        "daemon/submit/", "daemon/negotiate/", "daemon/fuse/", "daemon/execute/",
        "daemon/complete/", "daemon/tune/", "daemon/membership/", "daemon/observe/"],
    "daemon/exec/": ["shm/"],
    "tests/": [""],  # Anything; and nothing has "tests/" in its row.
}

# A header of this pattern (regular expression on the included path) -> where it may be included,
# tests aside. An entry is a file or the start of a path.
LIBRARIES = {
    "gRPC and protobuf": (r"^(grpc|grpcpp|google/protobuf)/|\.pb\.h$", [
        "daemon/rpc/", "daemon/serve/", "client/cli/", "daemon/negotiate/grpc_",
        "daemon/membership/grpc_"]),
    "Boost": (r"^boost/", ["shm/mapping.cc"]),
    "Gloo": (r"^gloo/", ["daemon/execute/gloo/"]),
    "CUDA and NCCL": (r"^(cuda|nccl)", ["daemon/exec/"]),
    "spdlog": (r"^spdlog/", ["daemon/base/log.cc"]),
    "yaml-cpp": (r"^yaml-cpp/", ["daemon/config.cc"]),
    "Prometheus": (r"^prometheus/", ["daemon/base/metrics.", "daemon/observe/"]),
    "Catch2": (r"^catch2/", []),
}

# The only C++ files, tests aside, that read the environment.
GETENV_FILES = ["daemon/config.cc", "client/cpp/environment.cc"]

HEADER_LINES = 150
SOURCE_LINES = 400
FUNCTION_LINES = 70
COLUMNS = 100

# The public C headers are installed side by side, so they include each other by name.
PUBLIC_HEADERS = ("client/c/rueda.h", "client/c/rueda_types.h")

# The contract's headers and the page that must name each of their constants and structs.
CONTRACT_HEADERS = ("shm/layout.h", "shm/board.h", "shm/board_payload.h")
CONTRACT_PAGE = "shm/README.md"
