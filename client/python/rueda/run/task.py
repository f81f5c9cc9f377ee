# SPDX-License-Identifier: Apache-2.0
"""`python -m rueda.run.task FOLDER` is one rank of run(): calls the function and keeps its result.

FOLDER belongs to the caller of run(): the file `call` says what to do; `result.<rank>` or
`error.<rank>` says what came of it.
"""

import json
import os
import pickle
import runpy
import sys
import time
import traceback

from rueda.run import function

# As what the caller's script is run for its functions: not as __main__, so that it starts nothing.
_SCRIPT_NAME = '__rueda_main__'


def main(folder):
    """Returns the exit status: 1 after an exception."""
    rank = os.environ['RUEDA_RANK']
    try:
        with open(os.path.join(folder, 'call'), 'rb') as file:
            call = pickle.load(file)
        sys.path += [entry for entry in call['path'] if entry not in sys.path]
        if call['script'] is not None:
            _take_functions_of(call['script'])
        func, args, kwargs = pickle.loads(call['data'])
        data = function.dumps(func(*args, **kwargs))
    except (Exception, SystemExit):
        error = {'when': time.monotonic_ns(), 'traceback': traceback.format_exc()}
        with open(os.path.join(folder, f'error.{rank}'), 'w', encoding='utf-8') as file:
            json.dump(error, file)
        return 1
    with open(os.path.join(folder, f'result.{rank}'), 'wb') as file:
        file.write(data)
    return 0


def _take_functions_of(script):
    function.refuse_calls(f'{script} calls rueda.run() when it is imported: put the call behind '
                          "`if __name__ == '__main__'`, or install cloudpickle")
    names = runpy.run_path(script, run_name=_SCRIPT_NAME)
    function.refuse_calls(None)
    vars(sys.modules['__main__']).update(
        {name: value for name, value in names.items() if not name.startswith('__')})


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
