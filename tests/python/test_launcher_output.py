# SPDX-License-Identifier: Apache-2.0
"""ruedarun: what becomes of the output of ranks."""

import os
import signal
import subprocess
import sys
import time

import pytest

from launching import RUN, alive, run, script, wait_for
from rueda.run import output

PRINT = '''
import os, sys
os.write(1, b'one\\ntwo ')
os.write(2, b'error\\n')
os.write(1, b'halves\\nno newline')
'''


def test_tagged_output():
    result = run('-np', '2', '--tag-output', *script(PRINT))
    for rank in (0, 1):
        for line in (f'[{rank}]<stdout>:one\n', f'[{rank}]<stdout>:two halves\n',
                     f'[{rank}]<stdout>:no newline'):
            assert line in result.stdout
        assert f'[{rank}]<stderr>:error\n' in result.stderr
    result = run('-np', '1', '--prefix-output-with-timestamp', *script(PRINT))
    assert result.stdout.splitlines()[0].endswith('[0]<stdout>:one')
    assert len(result.stdout.splitlines()[0]) > len('[0]<stdout>:one') + 10


def test_output_files(tmp_path):
    result = run('-np', '11', '--output-filename', str(tmp_path / 'logs'), *script(PRINT))
    assert sorted(os.listdir(tmp_path / 'logs')) == [f'rank.{rank:02}' for rank in range(11)]
    for rank in range(11):
        folder = tmp_path / 'logs' / f'rank.{rank:02}'
        assert (folder / 'stdout').read_text() == 'one\ntwo halves\nno newline'
        assert (folder / 'stderr').read_text() == 'error\n'
    assert result.stdout.count('two ') == 11


PIECES = '''
import os
rank = os.environ['RUEDA_RANK'].encode()
for turn in range(100):
    for piece in (b'rank', b' ', rank, b' of', b' 4', bytes([10])):
        os.write(1, piece)
        os.write(2, piece.upper())
'''


def test_lines_of_ranks_do_not_mix():
    # Ranks wrote to one descriptor, and print() without buffering made "01  ofof  44" of it.
    result = run('-np', '4', *script(PIECES))
    assert result.returncode == 0
    for text, form in ((result.stdout, 'rank %d of 4'), (result.stderr, 'RANK %d OF 4')):
        assert sorted(text.splitlines()) == sorted([form % rank for rank in range(4)] * 100)


def test_output_of_several_ranks_comes_out_whole():
    text = ('import os; rank = os.environ["RUEDA_RANK"].encode()\n'
            'os.write(1, b"a" * 20000 + bytes([10]) + rank)')
    result = run('-np', '2', *script(text))
    assert sorted(result.stdout.replace('a' * 20000 + '\n', '')) == ['0', '1']
    assert result.stdout.count('a') == 40000
    long = 3 << 20
    result = run('-np', '2', *script(f'import sys; sys.stdout.write("x" * {long})'))
    assert result.stdout == 'x' * 2 * long


def test_a_lone_rank_has_the_streams_of_the_launcher():
    with open(os.devnull, 'rb') as stream:
        code = 'import os; print(os.fstat(0).st_ino, os.readlink("/proc/self/fd/1"))'
        process = subprocess.Popen([*RUN, '-np', '1', *script(code)], stdin=stream,
                                   stdout=subprocess.PIPE, text=True)
        place = f'pipe:[{os.fstat(process.stdout.fileno()).st_ino}]'
        assert process.communicate(timeout=30)[0].split()[1] == place


@pytest.mark.parametrize('option', ['', '--tag-output'])
def test_a_reader_that_leaves_ends_the_job(option):
    text = 'import os\nwhile True: os.write(1, b"x" * 4096)'
    command = ' '.join([*RUN, f'-np 2 {option}', sys.executable, '-c', f"'{text}'"])
    result = subprocess.run(['bash', '-c', f'{command} | head -c 10000 | wc -c; '
                             'echo ${PIPESTATUS[0]}'], stdout=subprocess.PIPE, text=True,
                            timeout=30)
    assert result.stdout.split() == ['10000', str(128 + signal.SIGPIPE)]


def start(text, size=2):
    return subprocess.Popen([*RUN, '-np', str(size), *script(text)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, bufsize=0)


DOTS = '''
import os, time
os.write(1, b'%d\\n' % os.getpid())
while True:
    os.write(1, b'.')
    time.sleep(0.01)
'''


def test_a_reader_that_leaves_is_noticed_within_a_line():
    # It was noticed only when a line went out, so never with ranks that write dots.
    process = start(DOTS)
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.stdout.close()
    assert process.wait(20) == 128 + signal.SIGPIPE
    wait_for(lambda: not any(map(alive, pids)))
    process.stderr.close()


def test_the_end_of_a_stream_needs_no_reader():
    reader, descriptor = os.pipe()
    os.close(reader)
    outlet = output.Outlet(descriptor, 'stdout')
    for written, gone in ((b'', False), (b'.', True)):
        read_end, write_end = os.pipe()
        os.write(write_end, written)
        os.close(write_end)
        stream = output.Stream(read_end, outlet, '', False, None)
        if gone:
            with pytest.raises(BrokenPipeError):
                stream.pump()
        else:
            assert not stream.pump()
        stream.close()
    os.close(descriptor)


def test_signals_are_heard_while_the_reader_sleeps():
    text = 'import os\nprint(os.getpid())\nwhile True: print("x" * 1000)'
    process = start(text)
    pids = [int(process.stdout.readline())]
    # Nobody reads any more: soon the ranks stand still.
    wait_for(lambda: all(asleep_in_write(pid) for pid in pids))
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    wait_for(lambda: not any(map(alive, pids)))
    process.communicate()


def asleep_in_write(pid):
    with open(f'/proc/{pid}/syscall', encoding='ascii') as file:
        return file.read().split()[:2] == ['1', '0x1']  # write(1, ...)


def test_a_slow_reader_gets_everything():
    process = start('print("x" * 99 + chr(10), end="")\n' * 2000)
    time.sleep(2)  # More than the launcher reads on after the last rank without need.
    out, _ = process.communicate(timeout=30)
    assert len(out) == 2 * 2000 * 100 and process.returncode == 0


def test_a_reader_that_set_its_end_not_to_block_gets_everything():
    reader, descriptor = os.pipe()
    os.set_blocking(descriptor, False)
    text = 'print("x" * 99 + chr(10), end="")\n' * 2000
    process = subprocess.Popen([*RUN, '-np', '2', *script(text)], stdout=descriptor)
    os.close(descriptor)
    time.sleep(0.5)  # The pipe is full.
    with open(reader, 'rb') as stream:
        assert len(stream.read()) == 2 * 2000 * 100 and process.wait(20) == 0


def test_a_failure_ends_the_job_though_nobody_reads_the_errors(tmp_path):
    # Saying which rank failed waited for the reader, and the other ranks went on.
    reader, descriptor = os.pipe()
    os.set_blocking(descriptor, False)
    filled = 0
    while True:
        try:
            filled += os.write(descriptor, b'x' * 4096)
        except BlockingIOError:
            break
    os.set_blocking(descriptor, True)
    text = (f'import os, time\nrank = os.environ["RUEDA_RANK"]\nif rank == "1": os._exit(3)\n'
            f'open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))\ntime.sleep(60)')
    process = subprocess.Popen([*RUN, '-np', '2', *script(text)], stderr=descriptor)
    os.close(descriptor)
    wait_for((tmp_path / 'pid').exists)
    wait_for((tmp_path / 'pid').read_text)
    wait_for(lambda: not alive(int((tmp_path / 'pid').read_text())))
    with open(reader, 'rb') as stream:
        said = stream.read()[filled:].decode()
    assert process.wait(20) == 3
    assert 'failed first: exit code 3' in said, said


def test_ranks_have_time_to_end_when_their_output_cannot_be_written(tmp_path):
    # They were killed at once, in the middle of whatever they did.
    text = ('import os, signal, time\n'
            'rank = os.environ["RUEDA_RANK"]\n'
            'def end(*_):\n'
            '    open("ended." + rank, "w")\n'
            '    os._exit(0)\n'
            'signal.signal(signal.SIGTERM, end)\n'
            'open("ready." + rank, "w")\n'
            'while not os.path.exists("ready.1"): time.sleep(0.01)\n'
            'if rank == "0": print(1, flush=True)\n'
            'time.sleep(60)')
    with open('/dev/full', 'wb') as full:
        result = subprocess.run([*RUN, '-np', '2', *script(text)], stdout=full, text=True,
                                stderr=subprocess.PIPE, timeout=30, cwd=tmp_path)
    assert result.returncode == 126
    assert result.stderr == 'ruedarun: cannot write stdout: No space left on device\n'
    assert {'ended.0', 'ended.1'} < set(os.listdir(tmp_path))


def test_what_cannot_be_written_is_named(tmp_path):
    # All that was said was "[Errno 28] No space left on device".
    with open('/dev/full', 'wb') as full:
        result = subprocess.run([*RUN, '-np', '2', *script('print(1)')], stdout=full, text=True,
                                stderr=subprocess.PIPE, timeout=30)
    assert result.returncode == 126
    assert result.stderr == 'ruedarun: cannot write stdout: No space left on device\n'
    (tmp_path / 'rank.0').mkdir()
    (tmp_path / 'rank.0' / 'stderr').symlink_to('/dev/full')
    result = run('-np', '1', '--output-filename', str(tmp_path),
                 *script('import os; os.write(2, b"x")'))
    assert result.returncode == 126
    assert result.stderr == (f'ruedarun: cannot write {tmp_path}/rank.0/stderr: No space left on '
                             'device\n')


def tagged(*pieces):
    tagger = output.LineTagger('[0]<stdout>:', False)
    return b''.join([tagger.feed(piece) for piece in pieces] + [tagger.finish()])


def test_tags_at_each_line_however_it_arrives():
    assert tagged(b'') == b''
    assert tagged(b'a\n', b'b\n') == b'[0]<stdout>:a\n[0]<stdout>:b\n'
    assert tagged(b'a', b'b', b'\nc') == b'[0]<stdout>:ab\n[0]<stdout>:c'
    assert tagged(b'\n\n') == b'[0]<stdout>:\n[0]<stdout>:\n'
    assert tagged(b'1%\r2%', b'\r3%\n') == b'[0]<stdout>:1%\r[0]<stdout>:2%\r[0]<stdout>:3%\n'
    assert tagged(b'a\r', b'\nb\r\n') == b'[0]<stdout>:a\r\n[0]<stdout>:b\r\n'
    long = b'x' * (3 << 20)
    assert tagged(long[:2 << 20], long[2 << 20:], b'\n') == b'[0]<stdout>:' + long + b'\n'
    assert tagged(b'a\r\r', b'b\r') == b'[0]<stdout>:a\r[0]<stdout>:\r[0]<stdout>:b\r'


def test_tagging_takes_time_in_proportion():
    # Each piece searched all that was held back of its line: hours for one of 1 MiB.
    begin = time.process_time()
    assert tagged(*[b'x'] * 300000) == b'[0]<stdout>:' + b'x' * 300000
    assert time.process_time() - begin < 10


def test_memory_for_a_line_is_bounded():
    tagger = output.LineTagger('', False)
    sizes = [len(tagger.feed(b'x' * 65536)) for _ in range(64)]
    assert sum(sizes) + len(tagger.finish()) == 4 << 20
    assert max(sizes) <= (1 << 20) + 65536
