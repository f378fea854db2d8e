"""Genome -> source -> NVRTC -> cubin, with what the compiler says about it, and a cache keyed by
all that decides it.

`build` compiles many genomes in parallel processes. No GPU and no CUDA toolkit are needed: NVRTC
comes as a pinned wheel, and the kernels include no CUDA header. The cubin depends on the sources,
the genome, the flags and the NVRTC version alone, not on paths or time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from hgemm_packs.generator.compile import cubin
from hgemm_packs.generator.compile.cache import cache_dir, ptx_dir, write_atomically
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.families import computed, family
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.families.free.places import sources_dir
from hgemm_packs.pack.manifest import GeneratorInfo

ARCH = "sm_90a"
MIN_DRIVER = 13000  # cubins of CUDA 13 need a driver of CUDA 13
NVRTC_PIN = "13.0.88"
OPTIONS: dict[str, Any] = {
    "std": "c++17",
    "device_as_default_execution_space": True,
    "diag_suppress": 177,  # a constant that one variant of a family does not use
    "ptxas_options": ["-v", "--warn-on-spills"],
}
#: As the manifest records them.
FLAGS = tuple(f"{name}={value}" for name, value in OPTIONS.items())
# ptxas words for wgmma serialised or fenced by the compiler: correct but slow, so refused.
# Symbols end in hexadecimal digits, so that a code is a whole word in capitals.
_SERIALISED = re.compile(r"wgmma.*serializ|\bC75(08|10|11|15|17|19)\b|setmaxnreg.*ignored")
_USAGE = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class BuildError(RuntimeError):
    """The compiler refused a kernel, or its result spills or serialises; the message carries the
    compiler's words."""


@dataclass(frozen=True, slots=True)
class Built:
    """One compiled kernel: every manifest field but offset and size, and the cubin."""

    entry_fields: dict[str, Any]
    cubin: bytes


def expand_includes(text: str) -> str:
    """The text with our own headers put in place of their includes, each once, so that one string
    decides the kernel. Other includes stay."""
    seen: set[Path] = set()

    def expand(text: str) -> str:
        lines = []
        for line in text.splitlines():
            match = re.fullmatch(r'#include "(\w[\w/.]+)"', line)
            path = sources_dir() / match[1] if match and ".." not in match[1] else None
            if path is None or not path.is_file():
                lines.append("" if line == "#pragma once" else line)
            elif path not in seen:
                seen.add(path)
                lines.append(expand(path.read_text(encoding="utf-8")))
        return "\n".join(lines)

    return expand(text)


@cache
def expand_source(stem: str) -> str:
    """`expand_includes` of a source of ours."""
    return expand_includes((sources_dir() / stem).read_text(encoding="utf-8"))


def render(family_name: str, genome: Genome) -> str:
    """Full source text of one kernel: its macros, then the family's source."""
    f = family(family_name)
    f.validate(genome)
    macros = {**f.macros(genome), **computed.macros(genome)}
    macros["HGP_SYMBOL"] = f.kernel_name(genome)
    text = "".join(f"#define {name} {value}\n" for name, value in sorted(macros.items()))
    return text + expand_source(f.stem(genome))


def check_nvrtc() -> None:
    """Raise BuildError unless the installed NVRTC wheel is the pinned one."""
    found = importlib.metadata.version("nvidia-cuda-nvrtc")
    if Version(found) != Version(NVRTC_PIN):
        raise BuildError(f"kernel ids need nvidia-cuda-nvrtc=={NVRTC_PIN}, found {found}")


def compile_source(source: str, symbol: str) -> tuple[bytes, int]:
    """Compile one kernel; returns the cubin and its registers a thread.

    Raises BuildError with the compiler's log for an error, a spill or a serialised wgmma.
    """
    cubin, regs, _ = _compile(source, symbol)
    return cubin, regs


def _compile(source: str, symbol: str) -> tuple[bytes, int, str]:
    """`compile_source`, with the PTX that ptxas made the cubin of."""
    from cuda.bindings import nvrtc
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    try:
        # Where there is a driver, NVRTC keeps what it compiled and says nothing the second time.
        options = ProgramOptions(name="kernel.cu", arch=ARCH, no_cache=True, **OPTIONS)
        program = Program(source, "c++", options)
        cubin = bytes(program.compile("cubin", logs=log).code)
        _, size = nvrtc.nvrtcGetPTXSize(program.handle)
        ptx = bytes(size)
        nvrtc.nvrtcGetPTX(program.handle, ptx)
    except Exception as error:  # NVRTC's error classes are private to cuda.core
        # NVRTC ends its log with a NUL.
        words = f"{error}\n{log.getvalue()}".replace("\0", "").rstrip()
        raise BuildError(f"{symbol}: compilation failed\n{words}") from error
    words = log.getvalue().replace("\0", "").rstrip()
    usage, spills = _USAGE.search(words), _SPILLS.search(words)
    if usage is None or spills is None:
        raise BuildError(f"{symbol}: the compiler reported no registers and spills\n{words}")
    if any(int(x) for x in spills.groups()):
        raise BuildError(f"{symbol}: spills or uses a stack frame\n{words}")
    if _SERIALISED.search(words):
        raise BuildError(f"{symbol}: wgmma was serialised\n{words}")
    return cubin, int(usage[1]), ptx.rstrip(b"\0").decode()


def _read_entry(path: Path) -> tuple[bytes, int] | None:
    """(cubin, registers) of a cache entry; None when there is none or its digest is not its own."""
    try:
        digest, _, payload = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        return None
    regs, _, cubin = payload.partition(b"\n")
    return cubin, int(regs)


def _write_entry(path: Path, cubin: bytes, regs: int) -> None:
    payload = b"%d\n" % regs + cubin
    write_atomically(path, hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def _key(source: str) -> str:
    """The name of what a source compiles to: all that decides it."""
    return hashlib.sha256("\0".join([source, ARCH, *FLAGS, NVRTC_PIN]).encode()).hexdigest()


def _compile_cached(source: str, symbol: str) -> tuple[bytes, int]:
    """`compile_source` behind the cache."""
    key = _key(source)
    path = cache_dir() / key[:2] / key
    found = _read_entry(path)
    if found is None:
        check_nvrtc()
        cubin, regs, ptx = _compile(source, symbol)
        _write_ptx(_ptx_path(source, hashlib.sha256(cubin).hexdigest()), ptx)
        _write_entry(path, cubin, regs)
        found = cubin, regs
    return found


def build_one(family_name: str, genome: Genome) -> Built:
    """Compile one genome (or take it from the cache). Raises InvalidGenome or BuildError."""
    return build_source(render(family_name, genome), family(family_name).fields(genome))


def build_source(source: str, fields: Mapping[str, Any]) -> Built:
    """Compile an expanded source, or take it from the cache; `fields` are those that need no build.
    Raises BuildError."""
    cubin, regs = _compile_cached(source, fields["symbol"])
    return Built({**fields, "id": hashlib.sha256(cubin).hexdigest(), "regs": regs}, cubin)


def ptx_of(source: str, built: Mapping[str, Any]) -> str:
    """The PTX that the cubin of a built kernel was made of, by one and the same compilation; from
    the cache where it is there. `built` are the kernel's fields, its `id` and `symbol` among them.

    Raises BuildError where the source does not compile to that cubin.
    """
    path = _ptx_path(source, str(built["id"]))
    try:
        digest, _, payload = path.read_bytes().partition(b"\n")
        if hashlib.sha256(payload).hexdigest().encode() == digest:
            return zlib.decompress(payload).decode()
    except FileNotFoundError:
        pass
    check_nvrtc()
    cubin, _, ptx = _compile(source, str(built["symbol"]))
    if hashlib.sha256(cubin).hexdigest() != built["id"]:
        raise BuildError(f"{built['symbol']}: its source compiles to another cubin")
    _write_ptx(path, ptx)
    return ptx


def _ptx_path(source: str, id_: str) -> Path:
    """Where the PTX is kept that this source and the kernel of that id have in common."""
    key = hashlib.sha256(f"{_key(source)}\0{id_}".encode()).hexdigest()
    return ptx_dir() / key[:2] / key


def _write_ptx(path: Path, ptx: str) -> None:
    payload = zlib.compress(ptx.encode(), 1)
    write_atomically(path, hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def _try_build(job: tuple[str, Genome]) -> Built | BuildError:
    try:
        return build_one(*job)
    except BuildError as error:
        return error


def as_kernel(one: Built) -> CompiledKernel:
    """A built kernel as devices and strategies take it. Facts: registers a thread, bytes of shared
    memory (static and dynamic), of local memory and of the cubin; counts of instructions are the
    binary gate's. Raises CubinError."""
    symbol = one.entry_fields["symbol"]
    entry = next(e for e in cubin.read_cubin(one.cubin).entries if e.name == symbol)
    facts = {
        "registers": float(entry.registers),
        "static_smem_bytes": float(entry.static_smem_bytes),
        "dynamic_smem_bytes": float(one.entry_fields["smem_bytes"]),
        "local_bytes": float(entry.frame_bytes),
        "cubin_bytes": float(len(one.cubin)),
    }
    return CompiledKernel(one.entry_fields, one.cubin, facts)


def build(
    jobs: Iterable[tuple[str, Genome]],
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Built | BuildError]:
    """Compile (family, genome) pairs in parallel processes, results in order; `progress(done,
    total)`."""
    queue = list(jobs)
    results: list[Built | BuildError] = []
    with ProcessPoolExecutor(max_workers=workers or os.cpu_count()) as pool:
        for result in pool.map(_try_build, queue):
            results.append(result)
            progress(len(results), len(queue))
    return results


#: What stands for a commit where there is none to name.
NO_COMMIT = "0" * 40


def generator_info() -> GeneratorInfo:
    """Version and commit of this checkout; an installed generator has no commit to name."""

    def git(*words: str) -> str:
        here = Path(__file__).resolve().parent
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    version = importlib.metadata.version("hgemm-packs")
    try:
        return GeneratorInfo(version, git("rev-parse", "HEAD"), bool(git("status", "--porcelain")))
    except (OSError, subprocess.CalledProcessError):
        return GeneratorInfo(version, NO_COMMIT, False)


def released_info() -> GeneratorInfo:
    """What a pack of a committed manifest says of the generator, wherever it is built: the version
    alone. Its kernels are those whose ids the manifest names, or it is not built."""
    return GeneratorInfo(importlib.metadata.version("hgemm-packs"), NO_COMMIT, False)
