# SPDX-License-Identifier: Apache-2.0
"""The checks: each takes a Tree and yields findings, (path, line, message)."""

import ast
import os
import re
import shutil
import subprocess

import cpp
import layout

_CPP = (".cc", ".h", ".cu")
_MARKED = _CPP + (".py", ".bzl", ".proto", ".sh", ".lds", ".BUILD")
_MARKED_NAMES = {"BUILD", "WORKSPACE"}
_UNMARKED = {".ci/run"}  # Two lines by agreement with those who start it.
_MARK = "SPDX-License-Identifier: Apache-2.0"

# Assembled so that this file does not contain what it looks for.
_UNFINISHED = re.compile(r"\b(FIX" r"ME|X" r"XX|HA" r"CK)\b")
_LATER = re.compile(r"\bTO" r"DO\b(?!: .{20,})")
_MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:home|root|Users|work|mnt)/\w")


class Tree:
    """The files of a repository: path relative to the root -> text. Binary files are left out."""

    def __init__(self, texts, executables=()):
        self.texts = dict(texts)
        self.executables = set(executables)

    @classmethod
    def of_checkout(cls, root):
        """The tracked and the new files of the git checkout at `root`, less what git ignores."""
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, stdout=subprocess.PIPE).stdout.decode()
        texts, executables = {}, []
        for path in sorted(set(listed.split("\0"))):
            full = os.path.join(root, path)
            if not path or not os.path.isfile(full):
                continue
            try:
                with open(full, encoding="utf-8") as file:
                    texts[path] = file.read()
            except UnicodeDecodeError:
                continue
            if os.access(full, os.X_OK):
                executables.append(path)
        return cls(texts, executables)

    def cpp_files(self):
        return [(path, text) for path, text in self.texts.items() if path.endswith(_CPP)]

    def python_files(self):
        return [(path, text) for path, text in self.texts.items()
                if path.endswith(".py") or re.match(r"#!.*\bpython", text)]


def _is_test(path):
    return path.startswith("tests/")


def _row(path):
    """The key of layout.INCLUDES that applies to `path`: the longest that starts it, or None."""
    keys = [key for key in layout.INCLUDES if path.startswith(key)]
    return max(keys, key=len) if keys else None


def include_direction(tree):
    """Each include of a file of ours is one that the table of folders allows."""
    for path, text in tree.cpp_files():
        key = _row(path)
        if key is None:
            yield path, 1, "no row in tests/lint/layout.py says what this folder may include"
            continue
        allowed = layout.INCLUDES[key] + ([key] if key.endswith("/") else [])
        for line, included, system in cpp.includes(text):
            root = included.split("/", 1)[0]
            if system or root not in ("shm", "client", "daemon", "proto", "tests"):
                if not system and not (path in layout.PUBLIC_HEADERS
                                       and "client/c/" + included in layout.PUBLIC_HEADERS):
                    yield path, line, '"%s" is not a path from the root' % included
                continue
            if not any(included.startswith(entry) for entry in allowed):
                yield path, line, '%s may not include "%s"' % (key, included)


def library_use(tree):
    """Foreign headers appear only in the files that adapt their library."""
    for path, text in tree.cpp_files():
        if _is_test(path):
            continue
        for line, included, _ in cpp.includes(text):
            for name, (pattern, places) in layout.LIBRARIES.items():
                if re.search(pattern, included) and not path.startswith(tuple(places)):
                    yield path, line, "%s (%s) is not for this file" % (name, included)


def environment_use(tree):
    """The environment is read in two files only."""
    places = "the environment is read in %s only" % " and ".join(layout.GETENV_FILES)
    for path, text in tree.cpp_files():
        if _is_test(path) or path in layout.GETENV_FILES:
            continue
        code = cpp.strip(text)
        for match in re.finditer(r"\b(secure_)?getenv\s*\(|\benviron\b", code):
            yield path, _line(code, match.start()), places


def _line(text, position):
    return text.count("\n", 0, position) + 1


def file_size(tree):
    """Headers and sources stay below their limits."""
    for path, text in tree.cpp_files() + tree.python_files():
        limit = layout.HEADER_LINES if path.endswith(".h") else layout.SOURCE_LINES
        lines = text.count("\n")
        if lines > limit:
            yield path, lines, "%d lines; at most %d" % (lines, limit)


def function_size(tree):
    """Functions of C++ and Python stay below their limit."""
    for path, text in tree.cpp_files():
        for name, first, last in cpp.functions(text):
            if last - first + 1 > layout.FUNCTION_LINES:
                yield path, first, "%s has %d lines; at most %d" % (
                    name, last - first + 1, layout.FUNCTION_LINES)
    for path, text in tree.python_files():
        try:
            module = ast.parse(text)
        except SyntaxError as error:
            yield path, error.lineno or 1, "does not parse: %s" % error.msg
            continue
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > layout.FUNCTION_LINES:
                    yield path, node.lineno, "%s has %d lines; at most %d" % (
                        node.name, lines, layout.FUNCTION_LINES)


def line_width(tree):
    """No line of C++ or Python is wider than the format's columns."""
    for path, text in tree.cpp_files() + tree.python_files():
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > layout.COLUMNS:
                yield path, number, "%d columns; at most %d" % (len(line), layout.COLUMNS)


def license_mark(tree):
    """The first line (the second after #!) names the license."""
    for path, text in tree.texts.items():
        script = text.startswith("#!") and path not in _UNMARKED
        if path.endswith(_MARKED) or os.path.basename(path) in _MARKED_NAMES or script:
            lines = text.splitlines()
            if text.strip() and not any(_MARK in line for line in lines[script:script + 1]):
                yield path, 1 + script, "this line does not say %s" % _MARK


def header_guard(tree):
    """Headers of C++ say #pragma once; the C header has a guard instead."""
    for path, text in tree.cpp_files():
        if path.endswith(".h") and not re.search(r"^#pragma once$", text, re.MULTILINE):
            if not re.search(r"^#ifndef \w+_H_$", text, re.MULTILINE):
                yield path, 1, "no #pragma once"


def contract_page(tree):
    """Every constant and struct of the shared memory is described on the contract's page."""
    page = tree.texts.get(layout.CONTRACT_PAGE, "")
    for path in layout.CONTRACT_HEADERS:
        if path not in tree.texts:
            yield path, 1, "is missing"
            continue
        code = cpp.strip(tree.texts[path])
        for name, position in _contract_names(code):
            if not re.search(r"\b%s\b" % name, page):
                yield path, _line(code, position), \
                    "%s is not described in %s" % (name, layout.CONTRACT_PAGE)


def _contract_names(code):
    for pattern in (r"\bconstexpr\s+[\w:<>\s*]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)?[={]",
                    r"\b(?:struct|class)\s+(?:alignas\s*\([^)]*\)\s*)?(\w+)[^;{}()]*\{"):
        for match in re.finditer(pattern, code):
            yield match.group(1), match.start()


def forbidden_words(tree):
    """No unfinished work without its reason, and no path of one person's machine."""
    for path, text in tree.texts.items():
        if path == "LICENSE":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, message in (
                    (_UNFINISHED, "marks unfinished work"),
                    (_LATER, "says neither what is missing nor why it can wait"),
                    (_MACHINE_PATH, "names a path of one machine")):
                match = pattern.search(line)
                if match:
                    yield path, number, "%s %s" % (match.group(), message)


def clang_format(tree):
    """Formatted as .clang-format says. Checked only where clang-format 14 is installed."""
    program = shutil.which("clang-format-14")
    if program is None:
        return
    for path, text in tree.cpp_files():
        formatted = subprocess.run(
            [program, "--assume-filename=" + path], input=text.encode(), check=True,
            stdout=subprocess.PIPE).stdout.decode()
        if formatted != text:
            ours, theirs = text.splitlines(), formatted.splitlines()
            line = next((number for number, (a, b) in enumerate(zip(ours, theirs), 1) if a != b),
                        min(len(ours), len(theirs)))
            yield path, line, "clang-format-14 -i changes this file"


ALL = [include_direction, library_use, environment_use, file_size, function_size, line_width,
       license_mark, header_guard, contract_page, forbidden_words, clang_format]
