# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks: each finds what it is for, and leaves good code alone."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks  # noqa: E402
import cpp  # noqa: E402

MARK = "// SPDX-License-Identifier: Apache-2.0\n"


def found(check, texts, executables=()):
    """The findings of one check over files given as a dict."""
    return list(check(checks.Tree(texts, executables)))


class IncludeDirection(unittest.TestCase):
    def lines(self, path, *included):
        text = "".join('#include "%s"\n' % name for name in included)
        return [line for _, line, _ in found(checks.include_direction, {path: text})]

    def test_a_stage_may_include_flow_base_and_shm(self):
        self.assertEqual([], self.lines("daemon/fuse/planner.cc", "daemon/fuse/planner.h",
                                        "daemon/flow/decision.h", "daemon/base/log.h",
                                        "shm/layout.h"))

    def test_stages_never_include_each_other(self):
        self.assertEqual([2], self.lines("daemon/fuse/planner.cc", "daemon/fuse/planner.h",
                                         "daemon/submit/intake.h"))

    def test_only_the_engine_knows_two_stages(self):
        both = ("daemon/fuse/planner.h", "daemon/submit/intake.h")
        self.assertEqual([], self.lines("daemon/engine/engine.cc", *both))
        self.assertEqual([1, 2], self.lines("daemon/serve/status_service.cc", *both))

    def test_nobody_but_app_includes_the_engine(self):
        self.assertEqual([], self.lines("daemon/app.cc", "daemon/engine/engine.h"))
        self.assertEqual([1], self.lines("daemon/main.cc", "daemon/engine/engine.h"))
        self.assertEqual([1], self.lines("daemon/observe/timeline.cc", "daemon/engine/engine.h"))

    def test_the_contract_includes_nothing_of_the_repository(self):
        self.assertEqual([2], self.lines("shm/arena.cc", "shm/arena.h", "daemon/base/log.h"))

    def test_the_client_stays_free_of_the_daemon(self):
        self.assertEqual([1, 2], self.lines("client/cpp/client.cc", "daemon/config.h",
                                            "proto/status.pb.h"))

    def test_subfolders_have_their_folder_s_row(self):
        self.assertEqual([], self.lines("daemon/execute/cpu/pool.cc", "daemon/execute/lane.h"))
        self.assertEqual([1], self.lines("daemon/execute/cpu/pool.cc", "daemon/fuse/planner.h"))

    def test_the_grpc_file_of_a_stage_has_a_row_of_its_own(self):
        self.assertEqual([], self.lines("daemon/negotiate/grpc_peers.cc", "daemon/rpc/x.h",
                                        "daemon/negotiate/peers.h"))
        self.assertEqual([1], self.lines("daemon/negotiate/member.cc", "daemon/rpc/x.h"))

    def test_nothing_includes_tests(self):
        self.assertEqual([1], self.lines("daemon/app.cc", "tests/kit/fake_clock.h"))
        self.assertEqual([], self.lines("tests/submit/x_test.cc", "tests/kit/fake_clock.h"))

    def test_paths_are_from_the_root(self):
        self.assertEqual([1], self.lines("daemon/fuse/planner.cc", "planner.h"))

    def test_a_folder_without_a_row_is_named(self):
        self.assertEqual([1], self.lines("extras/a.cc"))

    def test_an_include_in_a_comment_is_none(self):
        text = '/*\n#include "daemon/base/log.h"\n*/\n#include "shm/fd.h"\n'
        self.assertEqual([], found(checks.include_direction, {"shm/a.cc": text}))


class Libraries(unittest.TestCase):
    def paths(self, text, *paths):
        return [path for path, _, _ in found(checks.library_use, {path: text for path in paths})]

    def test_grpc_and_generated_headers_stay_in_their_places(self):
        for text in ("#include <grpcpp/grpcpp.h>\n", '#include "proto/status.pb.h"\n'):
            self.assertEqual(["daemon/app.cc"], self.paths(
                text, "daemon/app.cc", "daemon/serve/x.cc", "daemon/rpc/x.h", "client/cli/x.cc",
                "daemon/negotiate/grpc_peers.cc", "tests/serve/x_test.cc"))

    def test_boost_is_for_one_file(self):
        text = "#include <boost/interprocess/mapped_region.hpp>\n"
        self.assertEqual(["shm/arena.cc"], self.paths(text, "shm/arena.cc", "shm/mapping.cc"))


class Environment(unittest.TestCase):
    def test_getenv_is_for_two_files(self):
        texts = {path: 'auto x = std::getenv("A");\n' for path in (
            "daemon/config.cc", "client/cpp/environment.cc", "daemon/app.cc", "client/c/rueda.cc",
            "tests/kit/temp_dir.h")}
        self.assertEqual(["daemon/app.cc", "client/c/rueda.cc"],
                         [path for path, _, _ in found(checks.environment_use, texts)])

    def test_the_word_in_a_comment_is_none(self):
        texts = {"daemon/app.cc": "// Never calls getenv().\n"}
        self.assertEqual([], found(checks.environment_use, texts))


class Sizes(unittest.TestCase):
    def test_files(self):
        texts = {"shm/a.h": "\n" * 150, "shm/b.h": "\n" * 151, "shm/c.cc": "\n" * 400,
                 "shm/d.cc": "\n" * 401, "client/python/rueda/e.py": "\n" * 401}
        self.assertEqual(["shm/b.h", "shm/d.cc", "client/python/rueda/e.py"],
                         [path for path, _, _ in found(checks.file_size, texts)])

    def test_functions_of_cpp(self):
        def body(lines):
            return "void f() {\n" + "  g();\n" * (lines - 2) + "}\n"
        self.assertEqual([], found(checks.function_size, {"shm/a.cc": body(70)}))
        self.assertEqual(1, len(found(checks.function_size, {"shm/a.cc": body(71)})))

    def test_functions_of_python(self):
        def body(lines):
            return "def f():\n" + "    g()\n" * (lines - 1)
        self.assertEqual([], found(checks.function_size, {"a.py": body(70)}))
        self.assertEqual(1, len(found(checks.function_size, {"a.py": body(71)})))

    def test_scripts_without_a_suffix_count(self):
        text = "#!/usr/bin/env python3\n" + "\n" * 400
        self.assertEqual(1, len(found(checks.file_size, {"tests/x/run": text})))

    def test_width(self):
        texts = {"shm/a.cc": "x" * 100 + "\n" + "x" * 101 + "\n"}
        self.assertEqual([("shm/a.cc", 2)],
                         [finding[:2] for finding in found(checks.line_width, texts)])


class Functions(unittest.TestCase):
    def names(self, text):
        return [name for name, _, _ in cpp.functions(text)]

    def test_lines_run_from_signature_to_closing_brace(self):
        text = "namespace a {\n\n// A comment.\nint f(int a,\n      int b) {\n  return a;\n}\n}\n"
        self.assertEqual([("f", 4, 7)], cpp.functions(text))

    def test_methods_constructors_and_templates(self):
        text = """
            class A : public B {
             public:
              explicit A(int x) : x_{x}, y_(1) { use(); }
              ~A() override {}
              int get() const noexcept { return x_; }
              template <typename T> auto map(T t) -> decltype(t) { return t; }
              enum class Kind : uint8_t { kOne, kTwo };
              bool operator==(const A& o) const { return x_ == o.x_; }
             private:
              std::vector<int> list_{1, 2, 3};
              int x_ = 0;
            };"""
        self.assertEqual(["A", "~A", "get", "map", "operator=="], self.names(text))

    def test_lambdas_belong_to_the_function_around_them(self):
        text = "void f() {\n  auto g = [](int a) { return a; };\n  if (g(1)) { h(); }\n}\nint z;\n"
        self.assertEqual([("f", 1, 4)], cpp.functions(text))

    def test_braces_in_literals_and_comments_do_not_count(self):
        text = 'void f() {\n  g("{", \'{\');  // {\n  /* { */ h(R"(})");\n  int a = 1\'000;\n}\n'
        self.assertEqual([("f", 1, 5)], cpp.functions(text))

    def test_macros_do_not_count(self):
        text = "#define M(x) \\\n  do { \\\n  } while (false)\nvoid f() {\n}\n"
        self.assertEqual([("f", 4, 5)], cpp.functions(text))

    def test_cases_of_tests_count(self):
        self.assertEqual(["TEST_CASE"], self.names('TEST_CASE("a {") {\n}\n'))

    def test_tables_are_not_functions(self):
        self.assertEqual([], self.names("constexpr int kTable[] = {f(1), 2};\n"))


class Marks(unittest.TestCase):
    def test_the_license_line_is_first_or_follows_the_interpreter(self):
        texts = {"shm/a.h": MARK, "shm/b.h": "#pragma once\n" + MARK, "BUILD": "cc()\n",
                 "tests/run": "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\n",
                 "deploy/x": "#!/bin/bash\nset -e\n", "README.md": "# rueda\n",
                 "client/python/rueda/__init__.py": ""}
        self.assertEqual(["shm/b.h", "BUILD", "deploy/x"],
                         [path for path, _, _ in found(checks.license_mark, texts)])

    def test_headers_are_guarded(self):
        texts = {"shm/a.h": "#pragma once\n", "shm/b.h": "int f();\n",
                 "client/c/rueda.h": "#ifndef RUEDA_H_\n"}
        self.assertEqual(["shm/b.h"], [path for path, _, _ in found(checks.header_guard, texts)])


class Contract(unittest.TestCase):
    HEADERS = ("shm/layout.h", "shm/board.h", "shm/board_payload.h")

    def lines(self, path, header, page):
        """Where `header` has findings when it is at `path` and the other headers are empty."""
        texts = {**dict.fromkeys(self.HEADERS, ""), path: header, "shm/README.md": page}
        findings = found(checks.contract_page, texts)
        self.assertTrue(all(finding[0] == path for finding in findings))
        return [line for _, line, _ in findings]

    def test_each_constant_and_struct_is_on_the_page(self):
        header = ("constexpr uint32_t kMagic = 1;\ninline constexpr size_t kSlots = 4;\n"
                  "struct Entry {\n  uint32_t code;\n};\nstruct alignas(64) Cursor {\n};\n"
                  "struct Known;\n// struct Comment {\n")
        for path in self.HEADERS:
            self.assertEqual([2, 6], self.lines(path, header,
                                                "`kMagic` starts it; each `Entry` ...\n"))

    def test_a_name_inside_another_does_not_count(self):
        self.assertEqual([1], self.lines("shm/layout.h", "constexpr int kSlot = 1;\n", "kSlots\n"))

    def test_a_missing_header_is_a_finding(self):
        self.assertEqual(len(self.HEADERS), len(found(checks.contract_page, {})))


class Words(unittest.TestCase):
    def lines(self, *lines):
        return [line for _, line, _ in found(checks.forbidden_words, {"a.cc": "\n".join(lines)})]

    def test_unfinished_work_needs_its_reason(self):
        word = "TO" + "DO"
        self.assertEqual([1, 3], self.lines(
            "// %s" % word, "// %s: reuse the slots; rare until jobs exceed 64 ranks." % word,
            "// FIX" + "ME later"))

    def test_paths_of_a_machine(self):
        self.assertEqual([1], self.lines("// see /ho" + "me/somebody/x", "// see /usr/include/x"))


class ClangFormat(unittest.TestCase):
    @unittest.skipIf(checks.shutil.which("clang-format-14") is None, "no clang-format-14 here")
    def test_finds_the_first_line_that_changes(self):
        text = "int a;\nint   b;\n"
        self.assertEqual([2], [line for _, line, _ in found(checks.clang_format, {"a.cc": text})])


class Table(unittest.TestCase):
    def test_every_row_names_known_folders(self):
        """A misspelt row would allow nothing or never apply."""
        known = re.compile(r"^(shm|client|proto|daemon|tests)/|^$")
        for key, allowed in checks.layout.INCLUDES.items():
            for entry in [key] + allowed:
                self.assertRegex(entry, known)

    def test_every_check_has_a_test(self):
        with open(os.path.abspath(__file__), encoding="utf-8") as file:
            text = file.read()
        for check in checks.ALL:
            self.assertIn("checks.%s," % check.__name__, text)


if __name__ == "__main__":
    unittest.main()
