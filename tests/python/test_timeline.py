# SPDX-License-Identifier: Apache-2.0
"""The timeline: what rank 0 writes about its operations, for chrome://tracing."""

import json
import os
import re
import signal
import time

import pytest

DYNAMIC = {'HOROVOD_TIMELINE': 'DYNAMIC'}
NEGOTIATED = ['B NEGOTIATE_{0}', 'X 0', 'X 1', 'E', 'B {0}']


def read(path):
    """The events of a trace; a ValueError if it is no JSON."""
    with open(path, encoding='utf-8') as file:
        return json.load(file)


def by_name(events):
    """{name of a process: its events}."""
    names = {event['pid']: event['args']['name'] for event in events
             if event.get('name') == 'process_name' and event['pid'] > 0}
    found = {name: [] for name in names.values()}
    for event in events:
        if event['ph'] != 'M' and 'pid' in event:
            found[names[event['pid']]].append(event)
    return found


def words(events):
    """['B NEGOTIATE_ALLREDUCE', 'X 0', ..., 'E']; ticks of the ranks in their order."""
    found, ticks = [], []
    for event in events:
        word = ' '.join([event['ph'], event['name']] if 'name' in event else [event['ph']])
        if event['ph'] == 'X':
            ticks.append(word)
            continue
        found += sorted(ticks) + [word]
        ticks = []
    return found


def check(events):
    """In each process time goes on and what begins ends."""
    for name, own in by_name(events).items():
        times = [event['ts'] for event in own]
        assert times == sorted(times), name
        depth = 0
        for event in own:
            depth += {'B': 1, 'E': -1}.get(event['ph'], 0)
            assert depth >= 0, name
        assert depth == 0, name


SWITCHED = '''
import json, os, sys, time
import pytest, torch
import rueda.torch as hvd
folder = sys.argv[1]
for call in (hvd.stop_timeline, lambda: hvd.start_timeline(folder + '/early')):
    with pytest.raises(ValueError, match='has not been initialized'):
        call()
hvd.init()
hvd.allreduce(torch.ones(3), name='before')
hvd.stop_timeline()
hvd.start_timeline(folder + '/a.json', mark_cycles=True)
hvd.start_timeline(folder + '/b.json')
hvd.allreduce(torch.ones(3, 4), name='test_allreduce')
if hvd.rank() == 0:
    time.sleep(0.1)
    with open(folder + '/a.json') as file:
        text = file.read()
    json.loads(text)
    for part in ('allreduce.test_allreduce', 'start_time_since_epoch_in_micros', 'CYCLE_START',
                 'NEGOTIATE_ALLREDUCE'):
        assert part in text, text
hvd.stop_timeline()
hvd.allreduce(torch.ones(3), name='between')
from pathlib import Path
hvd.start_timeline(Path(folder) / 'c.json')
hvd.allreduce(torch.ones(3), name='again')
hvd.stop_timeline()
if hvd.rank() == 0:
    for path in ('/nowhere/t', folder, '/dev/null'):
        with pytest.raises(ValueError, match='cannot write the timeline'):
            hvd.start_timeline(path)
with pytest.raises(ValueError, match='not a path'):
    hvd.start_timeline('a\\0b')
hvd.allreduce(torch.ones(3), name='after')
print('right')
'''


@pytest.mark.row('C06')
def test_start_and_stop(python, tmp_path):
    """R90 to R92: a new file for each start, read 0.1 s after an operation, valid all the while."""
    result = python(SWITCHED, str(tmp_path), launch=['-np', '2'], env=DYNAMIC)
    assert result.stdout.count('right') == 2, result.stderr
    log = [line for line in result.stderr.splitlines() if line.startswith('rueda: ')]
    assert len(log) == 2 and 'no timeline to stop' in log[0] and 'runs already' in log[1]
    assert not os.path.exists(tmp_path / 'b.json')
    first, last = read(tmp_path / 'a.json'), read(tmp_path / 'c.json')
    check(first)
    assert list(by_name(first)) == ['allreduce.test_allreduce']
    assert list(by_name(last)) == ['allreduce.again']
    assert not any(event['ph'] == 'i' for event in last)


def test_format(python, tmp_path):
    """R92 to R95: one event a line, keys in their order, a process for each name, and process 0."""
    before = time.time()
    assert python(SWITCHED, str(tmp_path), launch=['-np', '2'], env=DYNAMIC).returncode == 0
    text = (tmp_path / 'a.json').read_text()
    assert text.startswith('[\n') and text.endswith(']')
    for line in text.splitlines()[1:]:
        assert line.strip()[0] == '{' or line.strip()[0] == ',', line
    pairs = json.loads(text, object_pairs_hook=list)
    keys = [tuple(key for key, _ in event) for event in pairs]
    events = read(tmp_path / 'a.json')
    for event, own in zip(events, keys):
        wanted = {'M': ('name', 'ph', 'pid', 'args'), 'B': ('ph', 'name', 'ts', 'pid'),
                  'X': ('ph', 'name', 'ts', 'pid', 'dur'), 'i': ('ph', 'name', 'ts', 's'),
                  'E': ('ph', 'ts', 'pid', 'args') if 'args' in event else ('ph', 'ts', 'pid')}
        assert own == wanted[event['ph']]
    begin = events[0]['args']['start_time_since_epoch_in_micros'] / 1e6
    assert events[0]['pid'] == 0 and before < begin < time.time()
    assert [e['args'] for e in events if e.get('name') == 'process_sort_index'] == [
        {'sort_index': 1}]
    own = by_name(events)['allreduce.test_allreduce']
    assert words(own)[:5] == [word.format('ALLREDUCE') for word in NEGOTIATED]
    assert [event['args'] for event in own if 'args' in event] == [
        {'dtype': 'float32', 'shape': '[3, 4]'}]
    assert all(event['dur'] == 0 for event in own if event['ph'] == 'X')
    assert {event['s'] for event in events if event['ph'] == 'i'} == {'g'}


KINDS = '''
import torch
import rueda.torch as hvd
hvd.init(process_sets='dynamic')
ones = torch.ones(6)
hvd.allreduce(ones, name='sum')
hvd.allreduce(ones, name='adasum', op=hvd.Adasum)
hvd.synchronize(hvd.allreduce_async(ones, name='later'))
hvd.grouped_allreduce([ones, ones], name='group')
hvd.allgather(ones, name='gather')
hvd.synchronize(hvd.allgather_async(ones, name='later'))
hvd.broadcast(ones, 0, name='cast')
hvd.alltoall(ones, name='deal')
hvd.reducescatter(ones, name='scatter')
hvd.barrier()
both = hvd.add_process_set([0, 1])
if both.included():
    hvd.allreduce(ones, name='small', process_set=both)
try:
    hvd.allreduce(torch.ones(1 + hvd.rank()), name='differs')
except hvd.HorovodInternalError:
    pass
hvd.join()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(ones, name='pending', process_set=both)
hvd.barrier()
'''


@pytest.mark.row('C06')
def test_every_kind_from_the_start(python, tmp_path):
    """R90, R94 to R97: a path in HOROVOD_TIMELINE; names and order; failures end, too."""
    path = tmp_path / 'timeline.json'
    result = python(KINDS, launch=['-np', '3', '--timeline-filename', str(path),
                                   '--timeline-mark-cycles'])
    assert result.returncode == 0, result.stderr
    events = read(path)
    check(events)
    found = {name: words(own) for name, own in by_name(events).items()}

    def inside(name, ranks=3):
        own = found[name]
        assert own[1:1 + ranks] == [f'X {rank}' for rank in range(ranks)]
        assert own[1 + ranks] == 'E' and own[-1] == 'E'
        return [own[0][2:]] + [word[2:] for word in own[2 + ranks:] if word[0] == 'B']

    copied = 'MEMCPY_OUT_SHARED_BUFFER'
    assert inside('allreduce.sum') == ['NEGOTIATE_ALLREDUCE', 'ALLREDUCE', 'QUEUE',
                                       'SHM_ALLREDUCE', copied]
    assert inside('allreduce.adasum')[:4] == ['NEGOTIATE_ADASUM', 'ADASUM', 'QUEUE',
                                              'SHM_ADASUM_ALLREDUCE']
    assert inside('allreduce.later')[:4] == inside('allreduce.sum')[:4]
    assert inside('allgather.gather') == ['NEGOTIATE_ALLGATHER', 'ALLGATHER',
                                          'COPY_ALLGATHER_OUTPUT']
    assert inside('allgather.later') == inside('allgather.gather')
    assert inside('broadcast.cast')[:4] == ['NEGOTIATE_BROADCAST', 'BROADCAST', 'QUEUE',
                                            'SHM_BCAST']
    assert inside('alltoall.deal') == ['NEGOTIATE_ALLTOALL', 'ALLTOALL', 'SHM_ALLTOALL']
    assert inside('reducescatter.scatter')[:4] == ['NEGOTIATE_REDUCESCATTER', 'REDUCESCATTER',
                                                   'QUEUE', 'SHM_REDUCESCATTER']
    assert inside('.join') == ['NEGOTIATE_JOIN', 'JOIN']
    assert inside('allreduce.small of process set 1', 2)[0] == 'NEGOTIATE_ALLREDUCE'
    assert found['allreduce.differs'] == ['B NEGOTIATE_ALLREDUCE', 'X 0', 'X 1', 'X 2', 'E']
    assert found['allreduce.pending of process set 1'] == ['B NEGOTIATE_ALLREDUCE', 'X 0', 'E']
    assert sum('group' in name for name in found) == 2
    assert any('barrier' in name for name in found)
    errors = [e['args']['error'] for e in events if 'error' in e.get('args', {})]
    assert len(errors) == 2 and 'shape' in errors[0].lower(), errors


ENDLESS = '''
import time
import torch
import rueda.torch as hvd
hvd.init()
step = 0
while True:
    handles = [hvd.allreduce_async_(torch.ones(1), name=f'{step % 50}.{n}') for n in range(20)]
    for handle in handles:
        hvd.synchronize(handle)
    step += 1
    time.sleep(0.002)  # Some ten thousand events a second.
    if step == 20:
        print('running', flush=True)
'''


def test_a_killed_rank_leaves_valid_json(python, start_python, tmp_path):
    """R92: at any moment."""
    path = tmp_path / 'timeline.json'
    for pause in (0, 0.003, 0.05):
        job = start_python(ENDLESS, launch=['-np', '2', '--verbose'],
                           env={'HOROVOD_TIMELINE': str(path)})
        assert job.stdout.readline() == 'running\n'
        time.sleep(pause)
        pid = next(line for line in job.stderr if 'rank 0 is process' in line).split()[-1]
        os.kill(int(pid), signal.SIGKILL)
        job.wait(30)
        assert len(by_name(read(path))) > 20


QUIET = '''
import pytest, sys, torch
import rueda.torch as hvd
hvd.init()
for call in (hvd.stop_timeline, lambda: hvd.start_timeline(sys.argv[1])):
    with pytest.raises(ValueError, match='not enabled'):
        call()
hvd.allreduce(torch.ones(1))
print('right')
'''


@pytest.mark.row('C06')
def test_it_must_be_enabled_at_init(python, tmp_path):
    result = python(QUIET, str(tmp_path / 't'), launch=['-np', '2'])
    assert result.stdout.count('right') == 2, result.stderr
    assert not os.path.exists(tmp_path / 't')


def test_a_path_that_cannot_be_written_is_one_line(python):
    result = python('import torch\nimport rueda.torch as hvd\nhvd.init()\n'
                    'print(hvd.allreduce(torch.ones(1)).item())\n', launch=['-np', '2'],
                    env={'HOROVOD_TIMELINE': '/nowhere/t.json'})
    assert result.returncode == 0 and result.stdout == '1.0\n1.0\n'
    assert result.stderr == ("rueda: cannot write the timeline '/nowhere/t.json': No such file or "
                             'directory; the job runs without one\n')


SPLIT = '''
import os, pathlib, sys, time
import torch
import rueda.torch as hvd
half = int(os.environ['HOROVOD_RANK']) // 2
folder = pathlib.Path(sys.argv[1])

def await_file(name):
    while not (folder / name).exists():
        time.sleep(0.01)

def init_and_sum(first):
    if first == 0:
        hvd.init(comm=[2 * half, 2 * half + 1])
    for i in range(first, first + 300):  # More than the file has room for at first.
        hvd.allreduce(torch.ones(1), name=f'half {half} {i}')

if half:
    await_file('first')
init_and_sum(0)
(folder / ('second' if half else 'first')).touch()
if not half:
    await_file('second')
    init_and_sum(300)
'''


def test_two_worlds_do_not_write_one_file(python, tmp_path):
    """Rank 0 of the second one used to empty it, and then both wrote to the same places."""
    path = tmp_path / 'timeline.json'
    result = python(SPLIT, str(tmp_path), launch=['-np', '4'], env={'HOROVOD_TIMELINE': str(path)})
    assert result.returncode == 0, result.stderr
    assert re.fullmatch("rueda: cannot write the timeline '.*': another session writes it; "
                        'the job runs without one\n', result.stderr)
    assert {name for name in by_name(read(path)) if 'half' in name} == {
        f'allreduce.half 0 {i}' for i in range(600)}


def test_a_lone_process_has_one(python, tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(('RUEDA_', 'HOROVOD_')) and name not in ('RUEDA_LIBRARY',
                                                                    'RUEDA_DAEMON'):
            monkeypatch.delenv(name)
    path = tmp_path / 't.json'
    result = python('import torch\nimport rueda.torch as hvd\nhvd.init()\n'
                    'hvd.allreduce(torch.ones(2), name="x")\nhvd.allgather(torch.ones(2))\n'
                    'hvd.barrier()\n', env={'HOROVOD_TIMELINE': str(path)})
    assert result.returncode == 0, result.stderr
    events = read(path)
    check(events)
    assert words(by_name(events)['allreduce.x'])[:4] == ['B NEGOTIATE_ALLREDUCE', 'X 0', 'E',
                                                         'B ALLREDUCE']
