"""Sanitizer gate: each kernel of a pack on small ragged problems under compute-sanitizer.

`python -m hgemm_packs.generator.gates.sanitizer PACK --tool memcheck racecheck -o RESULT.json`
starts the tool once per kernel batch on this module itself and collects the verdicts; without
`--tool` it is the program under test. Operands are made and results compared on the CPU, so that
nothing but our kernels runs on the GPU. compute-sanitizer comes with the CUDA toolkit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.manifest import KernelEntry, Range
from hgemm_packs.operands import DTYPES
from hgemm_packs.pack import Pack

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
BOUND = {"f16": 3e-4, "bf16": 2.4e-3}  # relative error of rounding, with room for small sizes
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one tool said of the kernels it ran."""

    tool: str
    kernels: int
    launches: int
    findings: int
    detail: str


def _round_up(size: int, rule: Range) -> int:
    return max(rule.min, -(-size // rule.multiple_of) * rule.multiple_of)


def problems(entry: KernelEntry) -> Iterator[tuple[int, int, int]]:
    """Ragged (M, N, K): one partial tile, and two tiles each way with the ring wrapping once."""
    tile_m, tile_n = entry.grid.tile_m, entry.grid.tile_n
    for m, n, k in (
        (tile_m - 3, tile_n - 8, 72),
        (tile_m + 5, tile_n + 8, ring_depth(entry) + 72),
    ):
        yield _round_up(m, entry.m), _round_up(n, entry.n), _round_up(k, entry.k)


def run_kernels(pack: Pack, first: int, count: int) -> int:
    """Launch `count` kernels from `first` on; returns launches. Raises when wrong."""
    launches = 0
    for entry in pack.manifest.kernels[first : first + count]:
        kernel = launcher.load(0, entry, pack.image(entry))
        generator = torch.Generator().manual_seed(launches)
        for m, n, k in problems(entry):
            dtype = DTYPES[entry.dtype]
            a = torch.randn(m, k, generator=generator).to(dtype)
            b = torch.randn(k, n, generator=generator).to(dtype)
            stored = b.t().contiguous().cuda().t() if entry.layout[1] == "t" else b.cuda()
            c = torch.full((m, n), float("nan"), dtype=dtype).cuda()
            launcher.launch(kernel, a.cuda(), stored, c)
            exact = a.double() @ b.double()
            error = float((c.cpu().double() - exact).norm() / exact.norm())
            if not error < BOUND[entry.dtype]:
                raise AssertionError(f"{entry.name} {m}x{n}x{k}: relative error {error:.1e}")
            launches += 1
    return launches


def check(pack_dir: Path, tool: str, first: int, count: int) -> Verdict:
    """Run one tool over some kernels of a pack in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        words = ["compute-sanitizer", "--tool", tool, "--log-file", log.name]
        # The launcher asks for one kernel parameter too many on purpose: an error tells the end.
        words += ["--report-api-errors", "no"] if tool == "memcheck" else []
        words += [sys.executable, "-m", "hgemm_packs.generator.gates.sanitizer", str(pack_dir)]
        words += ["--first", str(first), "--count", str(count)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        text = Path(log.name).read_text(encoding="utf-8", errors="replace")
    summary = _SUMMARY.search(text)
    ran = re.search(r"^launches (\d+)$", done.stdout, re.MULTILINE)
    if summary is None or ran is None or done.returncode != 0:
        detail = (text[:4000] + "\n" + done.stdout[-500:] + done.stderr[-1500:]).strip()
        return Verdict(tool, count, int(ran[1]) if ran else 0, -1, detail)
    findings = int(summary[2])
    return Verdict(tool, count, int(ran[1]), findings, text[:4000] if findings else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--tool", nargs="+", choices=TOOLS, default=[])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 20)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    pack = Pack.open(args.pack)
    if not args.tool:
        print("launches", run_kernels(pack, args.first, args.count), flush=True)
        return 0
    count = min(args.count, len(pack.manifest.kernels) - args.first)
    verdicts = [check(args.pack, tool, args.first, count) for tool in args.tool]
    for verdict in verdicts:
        print(f"{verdict.tool}: {verdict.findings} findings, {verdict.launches} launches")
        if verdict.findings:
            print(verdict.detail)
    if args.out is not None:
        args.out.write_text(json.dumps([asdict(v) for v in verdicts], indent=1) + "\n")
    return 0 if all(v.findings == 0 for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
