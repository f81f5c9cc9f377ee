# SPDX-License-Identifier: Apache-2.0
"""Adds up the results that tests/run left in a folder and prints one line for each and the sum.

    python3 tests/results.py FOLDER

Files it knows: `*.junit.xml` (pytest), `*.bazel.json` (Bazel's build events), `*.checks` (last line
of tests/lint/run and tests/fuzz/run), `*.rows` (table of tests/bench/run), `*.broken` (a suite that
ended without results: one failure). Exits with 1 if a test failed or none passed.
"""

import json
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

# Last lines of Catch2's console reporter.
_ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.MULTILINE)
_SOME_FAILED = re.compile(r"^test cases:\s*(\d+) \|(.*)$", re.MULTILINE)


class Count:
    """Tests that passed, failed and were skipped."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        text = "%d passed, %d failed" % (self.passed, self.failed)
        return text + (", %d skipped" % self.skipped if self.skipped else "")


def of_junit(text):
    """Counts of a JUnit file; an error in collection or tear-down is a failure."""
    count = Count()
    for suite in ElementTree.fromstring(text).iter("testsuite"):
        total = int(suite.get("tests", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        # A test may both pass and fail in its tear-down; it is not counted as passed then.
        count.add(Count(max(0, total - failed - skipped), failed, skipped))
    return count


def of_catch2(log, passed):
    """Counts of one test program from its log; one in all if the log has no summary."""
    match = _ALL_PASSED.search(log)
    if passed:
        return Count(passed=int(match.group(1)) if match else 1)
    match = _SOME_FAILED.search(log)
    if not match:
        return Count(failed=1)  # Crashed, timed out or was not built.
    failed = re.search(r"(\d+) failed", match.group(2))
    failed = int(failed.group(1)) if failed else 1
    return Count(max(0, int(match.group(1)) - failed), failed)


def of_bazel(lines, read_log):
    """Counts of Bazel's build events, one JSON object a line.

    `read_log` maps the path of a log to its text. A target that was not built counts as a failure.
    """
    logs, count = {}, Count()
    for line in lines:
        event = json.loads(line)
        identity = event.get("id", {})
        if "testResult" in identity:
            for output in event.get("testResult", {}).get("testActionOutput", []):
                if output.get("name") == "test.log":
                    logs[identity["testResult"]["label"]] = output.get("uri", "")
        elif "testSummary" in identity:
            label = identity["testSummary"]["label"]
            passed = event["testSummary"].get("overallStatus") in ("PASSED", "FLAKY")
            path = urllib.parse.unquote(urllib.parse.urlparse(logs.get(label, "")).path)
            count.add(of_catch2(read_log(path) if path else "", passed))
    return count


def of_checks(text):
    """Counts of the line that tests/lint/run and tests/fuzz/run end with."""
    match = re.search(r"^\w+: (\d+) checks passed, (\d+) failed$", text, re.MULTILINE)
    return Count(int(match.group(1)), int(match.group(2))) if match else Count(failed=1)


def of_rows(text):
    """Counts of the benchmark's rows: one that was measured passed, whatever its speed."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("row\t")]
    if not heads:
        return Count(failed=1)
    rows = [line.split("\t") for line in lines[heads[0] + 1:] if "\t" in line]
    width = len(lines[heads[0]].split("\t"))
    failed = [row for row in rows if len(row) != width or row[-1] in ("failed", "no-peer")]
    return Count(len(rows) - len(failed), len(failed)) if rows else Count(failed=1)


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def of_file(path):
    """Counts of one file of the folder, by its ending."""
    if path.endswith(".junit.xml"):
        return of_junit(_read(path))
    if path.endswith(".bazel.json"):
        return of_bazel(_read(path).splitlines(), _read)
    if path.endswith(".checks"):
        return of_checks(_read(path))
    if path.endswith(".rows"):
        return of_rows(_read(path))
    return Count(failed=1)


def main(folder):
    total = Count()
    for name in sorted(os.listdir(folder)):
        count = of_file(os.path.join(folder, name))
        print("%-28s %s" % (name, count))
        total.add(count)
    print(total)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
