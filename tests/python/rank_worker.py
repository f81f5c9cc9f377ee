# SPDX-License-Identifier: Apache-2.0
"""One rank of rank_pool.RankPool: runs the bodies that it is sent until the connection ends."""

import importlib.util
import json
import os
import socket
import sys
import traceback

import torch

import rueda.torch as hvd

_modules = {}


def _module(path):
    if path not in _modules:
        name = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(name, path)
        _modules[path] = importlib.util.module_from_spec(spec)
        sys.modules[name] = _modules[path]
        spec.loader.exec_module(_modules[path])
    return _modules[path]


def _run(request):
    body = getattr(_module(request['file']), request['body'])
    try:
        hvd.init()
        result = body(*request['arguments'])
        if hvd.is_initialized():
            hvd.barrier()
        return {'result': result}
    except BaseException:
        return {'error': traceback.format_exc()}
    finally:
        hvd.shutdown()


def main(path):
    """Serves the pool that listens at `path`."""
    torch.set_num_threads(1)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(os.environ['RUEDA_RANK'].encode() + b'\n')
        for line in connection.makefile('rb'):
            connection.sendall(json.dumps(_run(json.loads(line))).encode() + b'\n')


if __name__ == '__main__':
    main(sys.argv[1])
