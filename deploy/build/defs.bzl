# SPDX-License-Identifier: Apache-2.0
"""The only ways to declare C++ code in this repository: one set of flags for all of it."""

# Frame pointers cost under 1 % and make `perf` and crash stacks readable in production.
# Hidden symbols keep librueda.so from meeting the symbols of a training framework.
RUEDA_COPTS = [
    "-std=c++17",
    "-O2",
    "-fno-omit-frame-pointer",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
] + select({
    "//:clang_build": ["-Wthread-safety"],
    "//conditions:default": [],
})

# Generated code is not ours to mend.
_GENERATED_COPTS = [
    "-std=c++17",
    "-O2",
    "-w",
]

def rueda_library(name, srcs = [], hdrs = [], deps = [], visibility = None, copts = [], **kwargs):
    """A library; always static, so that hidden symbols stay visible to its tests."""
    native.cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = RUEDA_COPTS + copts,
        linkstatic = True,
        visibility = visibility,
        deps = deps,
        **kwargs
    )

def rueda_binary(name, srcs = [], deps = [], visibility = None, copts = [], **kwargs):
    """A program; all of this repository's libraries are linked into it."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = RUEDA_COPTS + copts,
        linkstatic = True,
        visibility = visibility,
        deps = deps,
        **kwargs
    )

def rueda_shared(name, srcs = [], deps = [], exports = None, visibility = None, copts = []):
    """A shared library that exports exactly what the version script `exports` lists.

    Args:
      name: name of the target; the file is `<name>.so`.
      srcs: sources that define the exported symbols.
      deps: libraries to link in.
      exports: label of the linker version script.
      visibility: as usual.
      copts: further compiler flags.
    """
    native.cc_binary(
        name = name + ".so",
        srcs = srcs,
        additional_linker_inputs = [exports] if exports else [],
        copts = RUEDA_COPTS + copts,
        linkopts = (["-Wl,--version-script=$(location %s)" % exports] if exports else []) + [
            "-Wl,-soname,%s.so" % name,
            "-Wl,--exclude-libs,ALL",
        ] + select({
            # A sanitizer's runtime is in the program, so its symbols are undefined here.
            "//:clang_build": [],
            "//conditions:default": ["-Wl,-z,defs"],
        }),
        linkshared = True,
        linkstatic = True,
        visibility = visibility,
        deps = deps,
    )
    native.filegroup(
        name = name,
        srcs = [name + ".so"],
        visibility = visibility,
    )

def rueda_test(
        name,
        srcs = None,
        deps = [],
        data = [],
        size = "small",
        tags = [],
        copts = [],
        **kwargs):
    """One Catch2 test program for one source file, `<name>.cc` unless srcs says otherwise."""
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = RUEDA_COPTS + copts,
        data = data + ["//tests:tsan.supp"],
        linkstatic = True,
        tags = tags,
        deps = deps + [
            "//tests:main",
            "@system//:catch2",
        ],
        **kwargs
    )

def rueda_proto(name, src = None, deps = [], grpc = True, visibility = None):
    """C++ messages (and gRPC stubs) of one .proto file, included as "<package>/<file>.pb.h".

    Args:
      name: name of the library.
      src: the .proto file, `<name>.proto` when None. It imports others by path from the root.
      deps: other rueda_proto targets whose files it imports.
      grpc: whether the file has services: adds `<file>.grpc.pb.h`.
      visibility: as usual.
    """
    src = src or name + ".proto"
    base = src[:-len(".proto")]
    kinds = [".pb", ".grpc.pb"] if grpc else [".pb"]
    outs = [base + kind + end for kind in kinds for end in [".h", ".cc"]]
    command = "protoc -I. --cpp_out=$(GENDIR)"
    if grpc:
        command += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.filegroup(
        name = name + "_files",
        srcs = [src] + [dep + "_files" for dep in deps],
        visibility = visibility,
    )
    native.genrule(
        name = name + "_generate",
        srcs = [src] + [dep + "_files" for dep in deps],
        outs = outs,
        cmd = command + " $(location %s)" % src,
    )
    native.cc_library(
        name = name,
        srcs = [out for out in outs if out.endswith(".cc")],
        hdrs = [out for out in outs if out.endswith(".h")],
        copts = _GENERATED_COPTS,
        linkstatic = True,
        visibility = visibility,
        deps = deps + ["@system//:grpc" if grpc else "@system//:protobuf"],
    )
