"""Sanitizer gate: kernels on small ragged problems under the tools of compute-sanitizer.

`sweep` gives verdicts on many kernels; `python -m hgemm_packs.generator.gates.sanitizer PACK
--tool memcheck racecheck -o RESULT.json` takes a pack. Both start the tool on this module itself,
which is then the program under test. Operands are made and results compared on the CPU, so that
nothing but our kernels runs on the GPU. compute-sanitizer comes with the CUDA toolkit.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates import batched, grouped
from hgemm_packs.generator.gates.checker import fit_shape, size
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.generator.gates.rounding import SIGNIFICAND_BITS
from hgemm_packs.measure.epilogue import finish
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import WITHOUT_ADDEND, columns_of

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

GATE = "sanitizer"
PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
#: What every kernel of a table has passed. What synccheck and initcheck say of named barriers and
#: bulk stores is known of the corpus's few family kernels only: `eval` and `redteam` ask them.
OF_TABLES = ("memcheck", "racecheck")
BOUND = {"f16": 3e-4, "bf16": 2.4e-3}  # relative error of rounding, with room for small sizes
TIMEOUT_S = 120.0
DEEP = 4096  # K of a kernel whose ring nobody knows
STANDARD_INPUT = "-"
POLL_S = 0.2  # between two looks whether to stop
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")

Shape = tuple[int, int, int]
#: A kernel, with problems (M, N, K) that it is to run beside its own.
Item = tuple[KernelEntry, bytes] | tuple[KernelEntry, bytes, Sequence[Shape]]


class SanitizerUnavailable(RuntimeError):
    """compute-sanitizer is not installed, or it cannot work on this machine."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What one tool said of the kernels it ran; `findings` is -1 when it did not come to an end."""

    tool: str
    kernels: int
    launches: int
    findings: int
    detail: str


def findings(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """(kernel id, tool) -> findings, by the last lines of `generate sanitize`."""
    return {(line["id"], line["tool"]): line["findings"] for line in lines if "tool" in line}


def clean(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ids of the kernels in which each tool of OF_TABLES found nothing."""
    last = findings(lines)
    return {id_ for id_, _ in last if all(last.get((id_, tool)) == 0 for tool in OF_TABLES)}


def problems(
    entry: KernelEntry, max_ctas: int | None = None, more: Sequence[Shape] = ()
) -> Iterator[Shape]:
    """Ragged (M, N, K), each once: one partial tile; two tiles each way with the ring wrapping
    once; a tile with the ring wrapping twice, or deep where nobody knows the ring; and of a
    persistent kernel more than twice as many tiles as the `max_ctas` CTAs that run at once; and
    `more`.

    Fewer tiles where CTAs wait for each other and only `max_ctas` of them run.
    """
    tile_m, tile_n, ring = entry.grid.tile_m, entry.grid.tile_n, ring_depth(entry)
    odd = entry.n.multiple_of == entry.k.multiple_of == 1
    wanted = [
        (tile_m - 3, tile_n - 8 + odd, 72 - odd),
        (tile_m + 5, tile_n + 8 - odd, ring + 72 + odd),
        (tile_m - 1, tile_n, (3 * ring if entry.genome else DEEP) + 72),
    ]
    if entry.grid.persistent and not entry.cooperative and max_ctas is not None:
        side, rows = math.isqrt(2 * max_ctas) + 1, 2 * max_ctas + 1
        square, high = (side * tile_m - 3, side * tile_n - 8), (rows * tile_m - 3, tile_n)
        # A grid without tensor maps has a dimension of its own for N: only M comes round.
        wanted.append((*(square if entry.tma else high), 72 - odd))
    seen = set()
    for m, n, k in (*wanted, *more):
        m, n = fit_shape(entry, size(entry.m, m), size(entry.n, n), max_ctas)
        problem = m, n, size(entry.k, k)
        if problem not in seen:
            yield problem
        seen.add(problem)


def store_matrix(
    matrix: torch.Tensor, transposed: bool, device: str, align: int = 16
) -> torch.Tensor:
    """A CPU matrix as a kernel takes it that needs `align` bytes: rows as close as alignment lets
    them be, NaN between, and the last row at the end of an allocation. Addresses and strides are
    at no more bytes than that."""
    rows = matrix.t() if transposed else matrix
    count, inner = rows.shape
    step, shift = align // 2, align // 2 % 8
    pitch = -(-inner // step) * step
    if shift and pitch % (2 * step) == 0:
        pitch += step
    buffer = torch.full((shift + count * pitch,), math.nan, dtype=matrix.dtype)
    buffer[shift:].view(count, pitch)[:, :inner] = rows
    end = shift + count * pitch - (pitch - inner if shift else 0)
    view = buffer[:end].to(device).as_strided((count, inner), (pitch, 1), shift)
    return view.t() if transposed else view


def output(entry: KernelEntry, m: int, n: int, device: str) -> torch.Tensor:
    """C as it was allocated, so that initcheck sees a kernel that reads it.

    initcheck does not follow bulk stores and would report the copy of C back to the host, so a
    kernel that stores C through a tensor map gets NaN: what it reads or leaves out is a wrong
    value.
    """
    dtype = DTYPES[entry.out_dtype]
    if any(one.operand == "c" for one in entry.tma):
        return torch.full((m, n), math.nan, dtype=dtype).to(device)
    return torch.empty((m, n), dtype=dtype, device=device)


def run_kernels(items: Sequence[Item], device: str = "cuda") -> int:
    """Launch each kernel on its problems; returns launches. Raises AssertionError when wrong."""
    launches = 0
    for entry, cubin, *more in items:
        kernel = launcher.load(0, entry, cubin)
        generator = torch.Generator().manual_seed(launches)
        dtype = DTYPES[entry.dtype]
        for error in _run_many(entry, kernel, device, launches):
            if not error < BOUND[entry.dtype]:
                raise AssertionError(f"{entry.name}: relative error {error:.1e}")
            launches += 1
        if entry.is_grouped or entry.is_batched:
            continue
        for m, n, k in problems(entry, kernel.max_ctas, *more):
            a = torch.randn(m, k, generator=generator).to(dtype)
            b = torch.randn(k, n, generator=generator).to(dtype)
            c = output(entry, m, columns_of(n, entry.epilogue), device)
            stored_a = store_matrix(a, entry.layout[0] == "t", device, entry.align[0])
            stored_b = store_matrix(b, entry.layout[1] == "t", device, entry.align[1])
            addend = None
            if entry.epilogue not in WITHOUT_ADDEND:
                shape = (m, n) if entry.epilogue == "residual" else (n,)
                addend = torch.randn(shape, generator=generator).to(dtype)
            arm = KernelArm(kernel, entry.epilogue)
            arm(stored_a, stored_b, c, None if addend is None else addend.to(device))
            exact = finish(entry.epilogue, a.double() @ b.double(), addend)
            error = float((c.cpu().double() - exact).norm() / exact.norm())
            bound = BOUND[entry.dtype]
            if entry.epilogue == "gated_silu":  # few large values make up the most of it
                bound = 2.0 ** -SIGNIFICAND_BITS[entry.dtype]
            if not error < bound:
                raise AssertionError(f"{entry.name} {m}x{n}x{k}: relative error {error:.1e}")
            launches += 1
    return launches


def _run_many(entry: KernelEntry, kernel: Kernel, device: str, seed: int) -> Iterator[float]:
    """The errors of a kernel of groups or batches; none of another."""
    if entry.is_grouped:
        launch = functools.partial(launcher.launch_grouped, kernel)
        yield from grouped.run_small(entry, launch, device, seed)
    if entry.is_batched:
        yield from batched.run_small(entry, KernelArm(kernel, entry.epilogue), device, seed)


class ToolProcess:
    """A process under one tool, which imports what it needs before it is told of kernels: on the
    first GPU here or on the one that CUDA_VISIBLE_DEVICES calls `gpu`. It takes no GPU until then.

    Raises SanitizerUnavailable where the tool is missing.
    """

    def __init__(self, tool: str, gpu: str | None = None) -> None:
        if shutil.which(PROGRAM) is None:
            raise SanitizerUnavailable(f"no {PROGRAM} on the PATH")
        self.tool, self.gpu = tool, gpu
        self._scratch = tempfile.TemporaryDirectory()
        self._log = Path(self._scratch.name, "log")
        words = [PROGRAM, "--tool", tool, "--log-file", str(self._log)]
        # The launcher asks for one kernel parameter too many on purpose: an error tells the end.
        words += ["--report-api-errors", "no"] if tool == "memcheck" else []
        words += [sys.executable, "-m", "hgemm_packs.generator.gates.sanitizer", STANDARD_INPUT]
        # Each tensor an allocation of its own, whose end the tool knows; and many processes on few
        # cores, none of which shall start a thread for each.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def run(self, items: Sequence[Item], timeout_s: float, stop: threading.Event) -> ToolRun:
        """What the tool says of some kernels; the process ends by it. Raises SanitizerUnavailable
        where the tool cannot work, CancelledError once `stop` is set."""
        try:
            told = Path(self._scratch.name, "kernels")
            told.write_bytes(pickle.dumps(list(items)))
            done = self._run_to_end(os.fsencode(told), timeout_s, stop)
            if done is None:
                return ToolRun(self.tool, len(items), 0, -1, f"no end after {timeout_s:.0f} s")
            log = self._log
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        finally:
            self.close()
        return _outcome(self.tool, len(items), text, done)

    def _run_to_end(
        self, told: bytes, timeout_s: float, stop: threading.Event
    ) -> subprocess.CompletedProcess[str] | None:
        # What a pipe does not take at once, `communicate` forgets when it is called again.
        ends, left = time.monotonic() + timeout_s, [told]
        while not stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                said = self._process.communicate(left.pop() if left else None, timeout=POLL_S)
                out, err = (part.decode(errors="replace") for part in said)
                return subprocess.CompletedProcess([], self._process.returncode, out, err)
            if time.monotonic() >= ends:
                return None
        raise CancelledError

    def close(self) -> None:
        """Leave nothing of the process nor of what it started, the program under test first."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._scratch.cleanup()


def run_tool(
    items: Sequence[Item],
    tool: str,
    gpu: str | None = None,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> ToolRun:
    """One tool over some kernels, in a process of its own; TIMEOUT_S is its time if none is given.

    Raises SanitizerUnavailable where the tool cannot work at all, CancelledError once `stop` is
    set.
    """
    return ToolProcess(tool, gpu).run(items, timeout_s or TIMEOUT_S, stop or threading.Event())


def _outcome(tool: str, count: int, text: str, done: subprocess.CompletedProcess[str]) -> ToolRun:
    if "Device not supported" in text:
        raise SanitizerUnavailable(f"{PROGRAM} does not support the device here")
    summary = _SUMMARY.search(text)
    ran = re.search(r"^launches (\d+)$", done.stdout, re.MULTILINE)
    launches = int(ran[1]) if ran else 0
    if summary is not None and int(summary[2]):
        return ToolRun(tool, count, launches, int(summary[2]), text[:4000])
    if summary is None or ran is None or done.returncode != 0:
        detail = (text[:4000] + "\n" + done.stdout[-500:] + done.stderr[-1500:]).strip()
        return ToolRun(tool, count, launches, -1, detail)
    return ToolRun(tool, count, launches, 0, "")


def verdict(runs: Sequence[ToolRun]) -> Verdict:
    """The gate's verdict on a kernel by what each tool said of it."""
    bad = [run for run in runs if run.findings]
    evidence = {run.tool: run.findings for run in runs}
    detail = "; ".join(f"{run.tool}: {_first_finding(run)}" for run in bad)
    return Verdict(GATE, Status.SANITIZER if bad else Status.OK, detail, evidence)


def _first_finding(run: ToolRun) -> str:
    whole = run.detail.splitlines()
    lines = [line.lstrip("= ").strip() for line in whole]
    said = [line for line in lines if line and not line.startswith("COMPUTE-SANITIZER")]
    if run.findings < 0:  # a Python program that ended badly says why behind its indented frames
        frames = [i for i, line in enumerate(whole[:-1]) if line.startswith("  ")]
        said = lines[frames[-1] + 1 :] if frames else said
    return " / ".join(said[:3])[:400] or "no words"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", help="a pack, or - for what a `ToolProcess` is told")
    parser.add_argument("--tool", nargs="+", choices=TOOLS, default=[])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 20)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    if args.kernels == STANDARD_INPUT:
        items = pickle.loads(Path(sys.stdin.read()).read_bytes())
        print("launches", run_kernels(items), flush=True)
        return 0
    pack = Pack.open(Path(args.kernels))
    chosen = pack.manifest.kernels[args.first : args.first + args.count]
    items = [(entry, bytes(pack.image(entry))) for entry in chosen]
    runs = [run_tool(items, tool) for tool in args.tool]
    for run in runs:
        print(f"{run.tool}: {run.findings} findings, {run.launches} launches")
        if run.findings:
            print(run.detail)
    if args.out is not None:
        args.out.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    return 0 if all(run.findings == 0 for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
