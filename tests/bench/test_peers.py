# SPDX-License-Identifier: Apache-2.0
"""The benchmark leaves out the peers that this processor cannot run."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
from lib import measure, peers  # noqa: E402
from lib.gang import GangError  # noqa: E402


def test_a_peer_with_avx512_is_left_out_where_there_is_none(tmp_path, capfd):
    """Once it was started, and died of SIGILL with a crash report."""
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
    with pytest.raises(GangError, match='impi-avx512: this processor has no AVX-512'):
        measure.Bench(found, None, 1, True).gang('impi-avx512', 2)
