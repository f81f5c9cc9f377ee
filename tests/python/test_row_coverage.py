# SPDX-License-Identifier: Apache-2.0
"""Every row of the Horovod inventory in rows.py is named by a test that proves it."""

import ast
import glob
import os
import re

import rueda
from rows import PENDING, ROWS

_HERE = os.path.dirname(os.path.abspath(__file__))


def marks(text):
    """[(name of the test, row)] of the marks in a test file."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found += [(node.name, row) for mark in node.decorator_list for row in _rows(mark)]
    return found


def _rows(mark):
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != 'pytest.mark.row':
        return []
    return [ast.literal_eval(argument) for argument in mark.args]


def named_rows():
    """Row -> names of tests that name it."""
    named = {}
    for path in glob.glob(os.path.join(_HERE, 'test_*.py')):
        with open(path, encoding='utf-8') as file:
            for test, row in marks(file.read()):
                named.setdefault(row, []).append(f'{os.path.basename(path)}::{test}')
    return named


def test_marks_are_read():
    text = ("import pytest\n@pytest.mark.row('A', 'B')\n@pytest.mark.parametrize('x', [1])\n"
            "def test_one(x): pass\n@pytest.mark.other('C')\ndef test_two(): pass\n")
    assert marks(text) == [('test_one', 'A'), ('test_one', 'B')]


def test_every_row_has_a_test():
    print(*(f'pending {row}: {ROWS[row]} ({why})' for row, why in PENDING.items()), sep='\n')
    missing = {row: ROWS[row] for row in set(ROWS) - set(named_rows()) - set(PENDING)}
    assert not missing, missing


def test_the_package_does_not_speak_of_rows():
    for path in glob.glob(os.path.join(os.path.dirname(rueda.__file__), '**', '*.py'),
                          recursive=True):
        with open(path, encoding='utf-8') as file:
            assert not re.findall(r'\b[CTQE]\d\d\b', file.read()), path


def test_every_mark_is_a_row_and_on_a_test():
    for row, names in named_rows().items():
        assert row in ROWS, f'{names} name the unknown row {row}'
        assert all('::test_' in name for name in names), f'{names}: pytest does not collect it'


def test_what_is_pending_is_a_row_without_a_test():
    named = named_rows()
    assert not set(PENDING) - set(ROWS)
    proven = {row: named[row] for row in PENDING if row in named}
    assert not proven, f'no longer pending: {proven}'
