# SPDX-License-Identifier: Apache-2.0
"""Writes the Python wheel: sources, librueda.so, ruedad and ruedactl in one zip file.

Standard library only; the same inputs give the same bytes (fixed time stamps, sorted members).

The tag is `py3-none-linux_x86_64`: any Python 3, no ABI of Python's (ctypes), this machine's kind
of Linux. Not `manylinux_*`: such a tag promises that the binaries run on every distribution with
that glibc or a newer one; these are linked against Debian 12's glibc 2.36 and libstdc++ 12 and were
tried on Debian 12 only. pip installs a linux_x86_64 wheel from a file all the same; a public index
would refuse it.
"""

import argparse
import base64
import hashlib
import subprocess
import sys
import zipfile

NAME = "ruedad"
TAG = "py3-none-linux_x86_64"

# 1980-01-01, the earliest that a zip file can state.
TIME_STAMP = (1980, 1, 1, 0, 0, 0)

# Present on every Debian 12, so they need not be carried. Anything else that a binary asks the
# loader for would be missing on a user's machine.
SYSTEM_LIBRARIES = {
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6",
    "libgcc_s.so.1", "ld-linux-x86-64.so.2",
}

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Sums the tensors of training processes through one daemon per host
License: Apache-2.0
Requires-Python: >=3.8
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

The Python package `rueda`, its C library, the daemon `ruedad` and the tool `ruedactl`.
"""

ENTRY_POINTS = """\
[console_scripts]
ruedarun = rueda.run.launcher:main
ruedad = rueda.bin:ruedad
ruedactl = rueda.bin:ruedactl
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: rueda deploy/package
Root-Is-Purelib: false
Tag: {tag}
"""


def foreign_libraries(path):
    """Sorted names of shared libraries that the ELF file at `path` needs beyond the system's.

    Raises subprocess.CalledProcessError if readelf does not understand the file.
    """
    text = subprocess.run(["readelf", "-d", "-W", path], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout
    needed = {line.split("[", 1)[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line}
    return sorted(needed - SYSTEM_LIBRARIES)


def record_line(member, data):
    """One line of RECORD: path, digest without padding, size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d" % (member, digest, len(data))


def write_wheel(path, version, members):
    """Writes the wheel at `path`.

    `members` maps a path inside the wheel to (bytes, executable). Metadata is added here.
    """
    info = "%s-%s.dist-info" % (NAME, version)
    members = dict(members)
    texts = {"METADATA": METADATA.format(name=NAME, version=version),
             "entry_points.txt": ENTRY_POINTS, "WHEEL": WHEEL.format(tag=TAG)}
    for name, text in texts.items():
        members["%s/%s" % (info, name)] = (text.encode(), False)
    record = "%s/RECORD" % info
    lines = [record_line(member, members[member][0]) for member in sorted(members)]
    members[record] = ("\n".join(lines + [record + ",,"]).encode() + b"\n", False)
    # The specification recommends the metadata at the end of the file, RECORD last.
    order = sorted(members, key=lambda member: (member.startswith(info), member == record, member))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in order:
            data, executable = members[member]
            entry = zipfile.ZipInfo(member, TIME_STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the upper half of external_attr is a file mode.
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="write the rueda wheel")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--file", action="append", default=[], metavar="MEMBER=PATH",
                        help="a file, at this place in the wheel")
    parser.add_argument("--binary", action="append", default=[], metavar="MEMBER=PATH",
                        help="an ELF file: checked for libraries that a user may lack")
    parser.add_argument("--sources", default="", metavar="PREFIX",
                        help="folder that is left out of the paths of the sources")
    parser.add_argument("source", nargs="*")
    return parser.parse_args(arguments)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main(arguments):
    """Returns the exit status: 1 if a binary would not run on a plain Debian 12."""
    options = parse_arguments(arguments)
    members = {}
    for source in options.source:
        member = source[len(options.sources):] if source.startswith(options.sources) else source
        members[member.lstrip("/")] = (read(source), False)
    for pair in options.file:
        member, path = pair.split("=", 1)
        members[member] = (read(path), False)
    status = 0
    for pair in options.binary:
        member, path = pair.split("=", 1)
        foreign = foreign_libraries(path)
        if foreign:
            sys.stderr.write("%s needs %s, which the wheel does not carry\n"
                             % (path, ", ".join(foreign)))
            status = 1
        members[member] = (read(path), True)
    if status == 0:
        write_wheel(options.out, options.version, members)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
