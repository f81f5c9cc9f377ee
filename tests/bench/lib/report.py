# SPDX-License-Identifier: Apache-2.0
"""Statistics and printing: ratios over rounds, verdicts, the machine, the table."""
import datetime
import os
import platform
import statistics
import subprocess
from collections import namedtuple

from lib.peers import REPOSITORY
from lib.rows import SHARE_ENOUGH, bytes_of

HEADER = "row ranks bytes ours_us peer peer_us ratio spread limit target verdict".split()

# One printed row, everything as text.
Line = namedtuple("Line", HEADER)

BAD = ("below-gate", "failed")


def verdict_of(value, target):
    """The highest level that `value` reaches: aim, least, gate; below-gate under all of them."""
    if all(level is None for level in target):
        return "info"
    for name in ("aim", "least", "gate"):
        level = getattr(target, name)
        if level is not None and value >= level:
            return name
    return "below-gate"


def ratios_of(ours, peer):
    """Peer's time over ours, round by round, and their spread (max - min) / median."""
    ratios = [theirs / mine for mine, theirs in zip(ours, peer)]
    middle = statistics.median(ratios)
    return middle, (max(ratios) - min(ratios)) / middle


def line_of(row, samples):
    """The printed line of a row from the cell's {way: [Sample, ...]}.

    The peer is the way with the lowest median, so that a peer with many variants gets no bonus
    from the luck of single rounds. Samples of one round stand beside each other.
    """
    fixed = (row.name, str(row.ranks), str(bytes_of(row.workload)))
    target = target_text(row)
    if row.ours not in samples:
        return Line(*fixed, "-", "-", "-", "-", "-", "-", target, "failed")
    ours = [getattr(sample, row.metric) for sample in samples[row.ours]]
    peers = {way: [getattr(sample, row.metric) for sample in samples[way]]
             for way in row.peers if way in samples}
    ours_text = number(statistics.median(ours))
    if not peers:
        return Line(*fixed, ours_text, "-", "-", "-", "-", "-", target, "no-peer")
    best = _fastest(peers)
    ratio, spread = ratios_of(ours, peers[best])
    if row.limit_us is not None:
        over = statistics.median(mine - theirs for mine, theirs in zip(ours, peers[best]))
        verdict = "least" if over <= row.limit_us else "below-gate"
    else:
        verdict = verdict_of(ratio, row.target)
    share_text = "-"
    limits = {way: [getattr(sample, row.metric) for sample in samples[way]]
              for way in row.limits if way in samples}
    if limits:
        share, _ = ratios_of(ours, limits[_fastest(limits)])
        share_text = f"{share:.0%}"
        if verdict == "below-gate" and share >= SHARE_ENOUGH:
            verdict = "limit"
    return Line(*fixed, ours_text, f"{best.contender}/{best.kind}",
                number(statistics.median(peers[best])), f"{ratio:.3f}", f"{spread:.2f}", share_text,
                target, verdict)


def _fastest(times):
    """The way with the lowest median in {way: [time, ...]}."""
    return min(times, key=lambda way: statistics.median(times[way]))


def value_line(name, ranks, value, most=None):
    """A line without a peer: a value in the unit that ends its name, wanted at most `most`."""
    verdict = "info" if most is None else "least" if value <= most else "below-gate"
    return Line(name, str(ranks), "-", number(value), "-", "-", "-", "-", "-",
                "-" if most is None else f"<={most:g}", verdict)


def failed_line(name, ranks):
    """A line of something that could not be measured."""
    return Line(name, str(ranks), "-", "-", "-", "-", "-", "-", "-", "-", "failed")


def target_text(row):
    """gate/least/aim, or the allowed difference."""
    if row.limit_us is not None:
        return f"ours-peer<={row.limit_us:g}us"
    if all(level is None for level in row.target):
        return "-"
    return "/".join("-" if level is None else f"{level:.3g}" for level in row.target)


def number(value):
    """A figure with about four digits and no exponent."""
    for least, digits in ((1000, 0), (100, 1), (10, 2), (1, 3)):
        if abs(value) >= least:
            return f"{value:.{digits}f}"
    return f"{value:.4f}"


def machine_lines(peers, rounds, quick):
    """Comment lines that say where, when and what."""
    model, memory = "unknown processor", "?"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = f"{int(file.readline().split()[1]) / (1 << 20):.0f} GiB"
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [f"date: {stamp}",
            f"machine: {model}, {os.cpu_count()} cores, {memory}, Linux {platform.release()}",
            f"commit: {_commit()}; rounds: {rounds}{' (quick)' if quick else ''}",
            "peers: " + ", ".join(_versions(peers)),
            "ratio = peer / ours, median over rounds; spread = (max - min) / median of the ratio"]


def summary_lines(lines, failures):
    """Counts of the verdicts, what is below its gate, and what did not run."""
    count = {}
    for line in lines:
        count[line.verdict] = count.get(line.verdict, 0) + 1
    order = ("aim", "least", "gate", "limit", "below-gate", "failed", "no-peer", "info")
    text = ["summary: " + ", ".join(f"{count[v]} {v}" for v in order if v in count)]
    for line in lines:
        if line.verdict in BAD:
            text.append(f"{line.verdict}: {line.row} ratio {line.ratio} ours {line.ours_us} "
                        f"peer {line.peer_us} target {line.target}")
    for (contender, ranks), why in sorted(failures.items()):
        text.append(f"out: {contender} with {ranks} ranks: {why.splitlines()[0]}")
    return text


def write_markdown(path, lines, machine, summary):
    """The table with its header, for RESULTS.md."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Results of `tests/bench/run`\n\n")
        file.writelines(f"- {text}\n" for text in machine)
        file.write("\n| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER) + "\n")
        file.writelines("| " + " | ".join(line) + " |\n" for line in lines)
        file.write("\n")
        file.writelines(f"- {text}\n" for text in summary)


def _commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True)
    return done.stdout.strip() or "unknown"


def _versions(peers):
    """Names and versions of the installed peers."""
    found = []
    for folder, wanted in ((peers.openmpi, "openmpi-"), (peers.impi, "impi_rt-")):
        for root, folders, _ in os.walk(os.path.join(folder, "lib")):
            found += [name[:-len(".dist-info")] for name in folders
                      if name.startswith(wanted) and name.endswith(".dist-info")]
            if root.count(os.sep) - folder.count(os.sep) >= 3:
                folders[:] = []
    for package in ("libgloo0", "python3-torch"):
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", package],
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              universal_newlines=True)
        found += [done.stdout] if done.returncode == 0 else []
    return found or ["none"]
