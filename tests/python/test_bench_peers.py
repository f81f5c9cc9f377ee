# SPDX-License-Identifier: Apache-2.0
"""The benchmark leaves out the peers that this processor cannot run."""

import os
import sys

import pytest

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'bench')


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    from lib import measure, peers
    from lib.gang import GangError
    yield measure, peers, GangError
    for name in [name for name in sys.modules if name.split('.')[0] == 'lib']:
        del sys.modules[name]


def test_a_peer_with_avx512_is_left_out_where_there_is_none(bench, tmp_path, capfd):
    # It was started, and died of SIGILL with a crash report.
    measure, peers, error = bench
    found = peers.Peers(cache=str(tmp_path))
    found.cpuinfo = str(tmp_path / 'cpuinfo')
    for flags, problem in (('fpu avx2', True), ('fpu avx512f avx512bw', False)):
        found.problems.clear()
        (tmp_path / 'cpuinfo').write_text(f'processor\t: 0\nflags\t\t: {flags}\n')
        found.prepare({'avx512'})
        assert ('avx512' in found.problems) == problem
        assert ('no AVX-512' in capfd.readouterr().err) == problem
    assert measure.CONTENDERS['impi-avx512'].needs == ['impi', 'avx512']
    found.problems['avx512'] = 'this processor has no AVX-512'
    with pytest.raises(error, match='impi-avx512: this processor has no AVX-512'):
        measure.Bench(found, None, 1, True).gang('impi-avx512', 2)
