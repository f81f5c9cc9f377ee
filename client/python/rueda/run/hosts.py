# SPDX-License-Identifier: Apache-2.0
"""Which host, and how many ranks on it. ValueError carries a text for the user.

Ranks run on this host only; naming another one is an error, not a silent fallback.
"""

import re
import socket
import subprocess

_HOST = re.compile(r'^([A-Za-z0-9_.-]+):([0-9]+)$')
# kMaxRanks of shm/layout.h: a daemon takes no more of one job.
_MOST_RANKS = 64
_LOCAL_NAMES = ('localhost', 'localhost.localdomain')


def resolve(options):
    """(host name as given, number of ranks) for the options of the command line."""
    host, size = _wanted(options)
    if size > _MOST_RANKS:
        raise ValueError(f'{size} ranks wanted; a job has at most {_MOST_RANKS} on one host')
    return host, size


def _wanted(options):
    slots = _listed(options)
    if slots is None:
        return 'localhost', options.num_proc
    names = list(dict.fromkeys(name for name, _ in slots))
    for name in names:
        if not is_local(name):
            raise ValueError(f'{name} is another host: ruedarun starts ranks on this host only; '
                             'use -H localhost:N')
    if len(names) > 1:
        raise ValueError(f'{", ".join(names)} all mean this host: name it once, with all slots')
    total = sum(count for _, count in slots)
    wanted = options.num_proc or total
    if wanted > total:
        raise ValueError(f'not enough slots: {wanted} ranks wanted, {total} slots on {names[0]}')
    return names[0], wanted


def _listed(options):
    if options.hosts:
        return parse_hosts(options.hosts)
    if options.hostfile:
        with open(options.hostfile, encoding='utf-8') as file:
            return parse_hostfile(file.read())
    if options.host_discovery_script:
        text = subprocess.run([options.host_discovery_script], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=60).stdout
        return parse_hosts(','.join(text.split()))
    return None


def parse_hosts(text):
    """[(name, slots)] of `name:slots,name:slots`."""
    slots = []
    for item in text.split(','):
        match = _HOST.match(item.strip())
        if not match:
            raise ValueError(f'Invalid host input {item.strip()!r}: expected name:slots, e.g. '
                             'localhost:2')
        slots.append((match.group(1), int(match.group(2))))
    return slots


def parse_hostfile(text):
    """[(name, slots)] of lines `name slots=N`; empty lines and comments are skipped."""
    slots = []
    for line in text.splitlines():
        words = line.split('#', 1)[0].split()
        if not words:
            continue
        match = re.match(r'^slots=([0-9]+)$', words[1]) if len(words) == 2 else None
        if not match:
            raise ValueError(f'Invalid host input {line.strip()!r}: expected "name slots=N"')
        slots.append((words[0], int(match.group(1))))
    if not slots:
        raise ValueError('the host file names no host')
    return slots


def is_local(name):
    """Whether the name or address means this host."""
    if name in _LOCAL_NAMES or name in (socket.gethostname(), socket.getfqdn()):
        return True
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(name, None)}
    except OSError:
        return False
    return any(_is_own(address) for address in addresses)


def _is_own(address):
    # An address can be bound exactly if it belongs to an interface of this host.
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
        return True
    except OSError:
        return False
