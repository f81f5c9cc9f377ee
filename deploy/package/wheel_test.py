# SPDX-License-Identifier: Apache-2.0
"""Tests of the wheel writer."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import wheel  # noqa: E402

MEMBERS = {"rueda/__init__.py": (b"x = 1\n", False), "rueda/bin/ruedad": (b"program", True)}


@pytest.fixture
def archive(tmp_path):
    path = str(tmp_path / "a.whl")
    wheel.write_wheel(path, "0.1.0", MEMBERS)
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_record_states_each_member_s_digest_and_size(archive):
    lines = archive.read("ruedad-0.1.0.dist-info/RECORD").decode().splitlines()
    rows = dict(line.split(",", 1) for line in lines)
    assert set(rows) == set(archive.namelist())
    for member, row in rows.items():
        if member.endswith("/RECORD"):
            assert row == ","
            continue
        data = archive.read(member)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert row == "sha256=%s,%d" % (digest, len(data))


def test_programs_keep_their_run_bit_and_sources_have_none(archive):
    modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert modes["rueda/bin/ruedad"] & 0o777 == 0o755
    assert modes["rueda/__init__.py"] & 0o777 == 0o644


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    files = [tmp_path / "a.whl", tmp_path / "b.whl"]
    orders = [list(MEMBERS), list(reversed(list(MEMBERS)))]
    for path, order in zip(files, orders):
        wheel.write_wheel(str(path), "0.1.0", {member: MEMBERS[member] for member in order})
    assert files[0].read_bytes() == files[1].read_bytes()


def test_scripts_point_at_functions_that_exist(archive):
    text = archive.read("ruedad-0.1.0.dist-info/entry_points.txt").decode()
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin_package.py")
    with open(package, encoding="utf-8") as file:
        source = file.read()
    for line in text.splitlines():
        if "rueda.bin:" in line:
            assert "def %s():" % line.rsplit(":", 1)[1] in source


def test_a_binary_with_a_library_of_its_own_is_refused(tmp_path, capsys):
    source = tmp_path / "a.c"
    source.write_text("int f(void) { return 0; }\n")
    library, program = tmp_path / "libforeign.so", tmp_path / "libuser.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", program, source, "-Wl,--no-as-needed",
                    "-L%s" % tmp_path, "-lforeign"], check=True)
    out = tmp_path / "a.whl"
    arguments = ["--version", "0.1.0", "--out", str(out)]
    assert wheel.main(arguments + ["--binary", "rueda/lib/x.so=%s" % library]) == 0
    out.unlink()
    assert wheel.main(arguments + ["--binary", "rueda/lib/x.so=%s" % program]) == 1
    assert "libforeign.so" in capsys.readouterr().err
    assert not out.exists()
