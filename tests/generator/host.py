"""Kernels' own sources on a CPU, up to the kernel itself or with it: by a host compiler, with what
stands in `on_cpu` in place of PTX."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families import Genome, family

HERE = Path(__file__).parent / "on_cpu"
COMPILER = shutil.which("c++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")
#: Functions of PTX that `on_cpu` has in other words.
OTHERWISE = (
    *("smem_address", "pack2", "load_shared16", "store_shared16", "load_global16", "copy16"),
    *("store_global16", "store_if", "store_matrix4", "store_matrix4_transposed"),
    *("store_matrix2_transposed", "store_matrix1_transposed"),
    *("load_matrix4_transposed", "load_matrix2_transposed"),
    *("load_end", "quick_quotient", "cluster_rank"),
    *("named_sync", "proxy_fence", "store_box", "store_box_of", "store_commit", "store_wait_all"),
    "wait_for_reads",
    *("copy_some", "load_element", "store_shared4", "load_shared4", "load_shared2"),
    *("wait_for_upstream", "allow_dependents", "mma16816", "cluster_arrive", "cluster_wait"),
    *("barrier_init", "barrier_init_fence", "barrier_expect", "barrier_wait_cluster"),
    *("remote_address", "send8"),
)


def behind(text: str, at: int, brackets: str) -> int:
    """The place behind the bracket that closes the first one from `at` on; strings hold none."""
    depth, at = 0, text.index(brackets[0], at)
    while True:
        if text[at] == '"':
            at = text.index('"', at + 1)
        depth += (text[at] == brackets[0]) - (text[at] == brackets[1])
        at += 1
        if depth == 0:
            return at


def for_a_host(name: str, genome: Genome, whole: bool) -> str:
    """A kernel's source without PTX and what stands in `on_cpu`, and unless `whole` without the
    kernel itself."""
    text = re.sub(r"//[^\n]*", "", compiler.render(name, genome))
    if whole:
        declared = r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];"
        text = re.sub(declared, r"\1* const \2 = reinterpret_cast<\1*>(memory_of_cta());", text)
    else:
        text = text[: text.index('extern "C" __global__')]
    for each in OTHERWISE:
        defined = rf"(template <[^>]*>\s*)?__device__ __forceinline__ \w+ {each}\("
        while found := re.search(defined, text):
            end = behind(text, behind(text, found.end() - 1, "()"), "{}")
            text = text[: found.start()] + text[end:]
    while found := re.search(r"\basm( volatile)?\(", text):
        text = f"{text[: found.start()]}abort(){text[behind(text, found.end() - 1, '()') :]}"
    vector = text.index("struct alignas(16) Vec4")
    end = behind(text, vector, "{}") + 1
    parts = (text[:vector], text[vector:end], '#include "vectors.h"', text[end:])
    return "\n".join(('#include "cuda.h"', *parts))


OPTIONS = ("-std=c++20", "-O1", "-w", "-fpermissive", "-pthread")


@functools.cache
def precompiled(checks: str) -> tempfile.TemporaryDirectory[str]:
    """A folder with `cuda.h` as GCC reads it in a tenth of the time, which goes with this process;
    half of what a kernel takes to compile is that header. Other compilers pass it over."""
    folder = tempfile.TemporaryDirectory()
    made, header = f"{folder.name}/cuda.h.gch", str(HERE / "cuda.h")
    words = [str(COMPILER), *checks.split(), *OPTIONS, "-x", "c++-header", header, "-o", made]
    subprocess.run(words, check=True)
    return folder


def count_wrong(
    folder: Path,
    name: str,
    genome: Genome,
    behind_it: str,
    change: tuple[str, str] = ("", ""),
    checks: str = "",
    arguments: tuple[str, ...] = (),
    whole: bool = False,
) -> int:
    """What a program prints that has a family's source, changed in a place, and `behind_it` its own
    part, as a header of `on_cpu`: how much is wrong. With `whole` the kernel itself is there."""
    family(name).validate(genome)
    source = for_a_host(name, genome, whole)
    assert change[0] in source
    path, program = folder / f"{name}.cpp", folder / name
    path.write_text(f"{source.replace(*change)}\n{behind_it}\n", encoding="utf-8")
    options = [*checks.split(), *OPTIONS, f"-I{precompiled(checks).name}", f"-I{HERE}"]
    subprocess.run([str(COMPILER), *options, str(path), "-o", str(program)], check=True)
    done = subprocess.run(
        [str(program), *arguments], check=True, capture_output=True, text=True, timeout=300
    )
    return int(done.stdout)
