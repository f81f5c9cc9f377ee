# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/results.py, which adds up what tests/run ran."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import results  # noqa: E402


def numbers(count):
    return count.passed, count.failed, count.skipped


class Results(unittest.TestCase):
    def test_junit(self):
        text = ('<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10"/>'
                '</testsuites>')
        self.assertEqual((4, 3, 3), numbers(results.of_junit(text)))

    def test_catch2_counts_cases(self):
        log = "seed 1\nAll tests passed (12 assertions in 3 test cases)\n"
        self.assertEqual((3, 0, 0), numbers(results.of_catch2(log, True)))
        log = "test cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n"
        self.assertEqual((3, 2, 0), numbers(results.of_catch2(log, False)))

    def test_a_crash_without_summary_is_one_failure(self):
        self.assertEqual((0, 1, 0), numbers(results.of_catch2("Aborted\n", False)))

    def test_a_failure_that_says_all_passed_is_still_one(self):
        """A program that crashes on its way out has printed its summary before."""
        log = "All tests passed (12 assertions in 3 test cases)\n"
        self.assertEqual((0, 1, 0), numbers(results.of_catch2(log, False)))

    def test_bazel_events(self):
        def result(label, path):
            return {"id": {"testResult": {"label": label}}, "testResult": {"testActionOutput": [
                {"name": "test.log", "uri": "file://" + path}]}}

        def summary(label, status):
            return {"id": {"testSummary": {"label": label}},
                    "testSummary": {"overallStatus": status}}
        events = [result("//a", "/logs/a%20b"), summary("//a", "PASSED"),
                  summary("//b", "NO_STATUS"), {"id": {"progress": {}}}]
        logs = {"/logs/a b": "All tests passed (1 assertion in 1 test case)\n"}
        count = results.of_bazel([json.dumps(event) for event in events], logs.__getitem__)
        self.assertEqual((1, 1, 0), numbers(count))

    def test_lint(self):
        text = "a.cc:1: x [y]\nlint: 9 checks passed, 2 failed\n"
        self.assertEqual((9, 2, 0), numbers(results.of_checks(text)))
        self.assertEqual((0, 1, 0), numbers(results.of_checks("Traceback\n")))

    def test_rows_of_the_benchmark_count_as_measured_or_not(self):
        head = "row\tranks\tverdict\n"
        text = "notes\n" + head + "a\t2\tbelow-gate\nb\t2\tfailed\nc\t2\tno-peer\n# summary\n"
        self.assertEqual((1, 2, 0), numbers(results.of_rows(text)))
        self.assertEqual((0, 1, 0), numbers(results.of_rows(head)))
        self.assertEqual((0, 1, 0), numbers(results.of_rows("crash\n")))

    def test_the_last_line(self):
        self.assertEqual("1 passed, 0 failed", str(results.Count(passed=1)))
        self.assertEqual("1 passed, 2 failed, 3 skipped", str(results.Count(1, 2, 3)))


if __name__ == "__main__":
    unittest.main()
