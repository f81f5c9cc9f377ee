# SPDX-License-Identifier: Apache-2.0
"""`python -m rueda.run.task CALL OUTCOME...` is one rank of run(): calls the function.

The arguments are files of the caller of run(): CALL says what to do; what came of it goes into the
OUTCOME of this rank, as a pickled dict.
"""

import os
import pickle
import runpy
import sys
import time
import traceback

from rueda.run import function

# As what the caller's script is run for its functions: not as __main__, so that it starts nothing.
_SCRIPT_NAME = '__rueda_main__'


def main(call_path, *outcome_paths):
    """Returns the exit status: 1 after an exception."""
    try:
        outcome = {'result': _result_of(call_path)}
    except (Exception, SystemExit):
        outcome = {'when': time.monotonic_ns(), 'traceback': traceback.format_exc()}
    with open(outcome_paths[int(os.environ['RUEDA_RANK'])], 'wb') as file:
        pickle.dump(outcome, file)
    return 0 if 'result' in outcome else 1


def _result_of(call_path):
    with open(call_path, 'rb') as file:
        call = pickle.load(file)
    sys.path += [entry for entry in call['path'] if entry not in sys.path]
    if call['script'] is not None:
        _take_functions_of(call['script'])
    func, args, kwargs = pickle.loads(call['data'])
    return function.dumps(func(*args, **kwargs))


def _take_functions_of(script):
    function.refuse_calls(f'{script} calls rueda.run() when it is imported: put the call behind '
                          "`if __name__ == '__main__'`, or install cloudpickle")
    names = runpy.run_path(script, run_name=_SCRIPT_NAME)
    function.refuse_calls(None)
    vars(sys.modules['__main__']).update(
        {name: value for name, value in names.items() if not name.startswith('__')})


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
