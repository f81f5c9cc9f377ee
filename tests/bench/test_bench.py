# SPDX-License-Identifier: Apache-2.0
"""Tests of the benchmark's arithmetic and table; they measure nothing."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
from lib import measure, report, rows  # noqa: E402
from lib.contenders import CONTENDERS  # noqa: E402
from lib.gang import Sample  # noqa: E402
from lib.rank_gang import answer, resnet50_shapes  # noqa: E402
from lib.rows import Row, Target, Way  # noqa: E402

OURS, FAST, STEADY = Way("rueda", "sync"), Way("a", "sync"), Way("b", "sync")


def samples(*p50s):
    """Samples whose p99 is ten times their p50."""
    return [Sample(value, 10 * value, value, 5) for value in p50s]


def row(target=rows.NONE, metric="p50", limit_us=None):
    """A row of OURS against FAST and STEADY."""
    return Row("x-r2-4B", 2, "4B", OURS, [FAST, STEADY], target, metric, limit_us)


def test_verdict_is_the_highest_level_reached():
    target = Target(1.0, 2.0, 3.0)
    found = [report.verdict_of(v, target) for v in (0.9, 1.0, 1.9, 2.0, 3.5)]
    assert found == ["below-gate", "gate", "gate", "least", "aim"]


def test_verdict_skips_levels_that_are_not_set():
    assert report.verdict_of(0.84, Target(None, 0.85, None)) == "below-gate"
    assert report.verdict_of(0.86, Target(None, 0.85, None)) == "least"
    assert report.verdict_of(9.0, rows.NONE) == "info"


def test_peer_is_the_variant_with_the_lowest_median_not_the_luckiest_round():
    line = report.line_of(row(Target(1, 2, 3)), {
        OURS: samples(1, 1, 1), FAST: samples(0.5, 9, 9), STEADY: samples(2, 2, 2)})
    assert line.peer == "b/sync"
    assert (line.ratio, line.verdict) == ("2.000", "least")


def test_ratio_pairs_samples_of_one_round():
    ratio, spread = report.ratios_of([1, 2, 4], [2, 4, 12])
    assert (ratio, spread) == (2, 0.5)


def test_a_difference_row_compares_microseconds():
    found = {OURS: samples(12, 12, 12), FAST: samples(3, 3, 3)}
    assert report.line_of(row(limit_us=10), found).verdict == "least"
    assert report.line_of(row(limit_us=8), found).verdict == "below-gate"


def test_enough_of_the_limit_is_enough():
    limited = row(Target(None, 2.5, None))._replace(limits=(Way("l", "a"), Way("l", "b")))
    found = {OURS: samples(10, 10, 10), FAST: samples(20, 20, 20),
             Way("l", "a"): samples(8.5, 8.5, 8.6), Way("l", "b"): samples(9, 9, 1)}
    line = report.line_of(limited, found)
    assert (line.verdict, line.limit) == ("limit", "85%")
    found[Way("l", "a")] = samples(8, 8, 8)
    assert report.line_of(limited, found).verdict == "below-gate"
    found[FAST] = samples(25, 25, 25)
    assert report.line_of(limited, found).verdict == "least"


def test_missing_contenders_show_in_the_verdict():
    assert report.line_of(row(), {FAST: samples(1)}).verdict == "failed"
    assert report.line_of(row(), {OURS: samples(1)}).verdict == "no-peer"


def test_p99_rows_read_the_p99():
    line = report.line_of(row(metric="p99"), {OURS: samples(1), FAST: samples(3)})
    assert (line.ours_us, line.peer_us) == ("10.00", "30.00")


def test_every_row_has_a_name_of_its_own_and_known_contenders():
    table = rows.comparison_rows()
    assert len({entry.name for entry in table}) == len(table)
    for entry in table:
        ways = [entry.ours, *entry.peers, *entry.limits]
        assert {way.contender for way in ways} <= set(CONTENDERS)
        assert entry.workload in rows.ITERATIONS and rows.bytes_of(entry.workload) > 0


def test_levels_of_a_target_rise():
    for entry in rows.comparison_rows():
        levels = [level for level in entry.target if level is not None]
        assert levels == sorted(levels)


def test_globs_and_quick_choose_rows():
    table = rows.comparison_rows()
    assert [r.name for r in rows.select(table, ["shared-mpi-r2-4B"], False)] == ["shared-mpi-r2-4B"]
    assert all(r.name.startswith("resnet-") for r in rows.select(table, ["resnet-*"], True))
    assert not rows.select(table, ["*-256M"], True)


def test_a_cell_holds_each_way_once():
    cells = measure.cells_of(rows.select(rows.comparison_rows(), ["*-r2-64K"], False))
    assert len(cells) == 1
    ways = measure.ways_of(cells[0])
    assert len(ways) == len(set(ways))


def test_the_gradient_set_is_resnet50s():
    counts = []
    for shape in resnet50_shapes():
        count = 1
        for side in shape:
            count *= side
        counts.append(count)
    assert (len(counts), sum(counts) * 4) == (161, rows.RESNET_BYTES)


def test_answer_orders_its_times():
    assert answer([3.0, 1.0, 2.0]) == "ok 2.0000 3.0000 2.0000 3"


def test_numbers_have_no_exponent():
    assert [report.number(v) for v in (0.0001, 0.25, 3.14159, 271828.0)] == [
        "0.0001", "0.2500", "3.142", "271828"]
