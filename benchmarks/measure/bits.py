"""The bits that each kernel of a pack gives: which kernels are alike, and whether M or a row's
place changes them.

    python -m benchmarks.measure.bits OUT.jsonl

needs one GPU and a pack on HGEMM_PACKS_PATH, and takes half a minute, less for a table of which
results/bits has most kernels: those are not measured again. A line is of one kernel and
one problem of MOST rows: `full` is a hash of C, and `rows_move` says whether other places of the
rows of A move the rows of C bit by bit; `m1`, `m16` ... whether the first rows alone give the same
rows, null where the kernel takes no such M. `python -m benchmarks.folders add bits OUT.jsonl` puts
it beside the older ones.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import folders
from hgemm_packs import launcher, select
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem

#: N and K.
SIZES = ((4096, 4096), (512, 512), (2048, 1024), (1024, 16384))
MOST, FEWER = 256, (1, 16, 64, 200)


def hash_of(c: torch.Tensor) -> str:
    return hashlib.sha256(c.contiguous().view(torch.uint8).cpu().numpy().tobytes()).hexdigest()[:12]


def stored(a: torch.Tensor, layout: str) -> torch.Tensor:
    """Rows of A, stored as the layout has them."""
    return a.t().contiguous().t() if layout[0] == "t" else a.contiguous()


def compare(entry: KernelEntry, image: memoryview, problem: Problem, one: Operands) -> Any:
    """The line of one kernel and problem."""
    line: dict[str, Any] = {"kernel": entry.name, "id": entry.id, "family": entry.family}
    line |= {name: getattr(problem, name) for name in ("layout", "dtype", "n", "k")}
    try:
        kernel = launcher.load(0, entry, image)
        launcher.launch(kernel, one.a, one.b, one.c)
        whole = one.c.clone()
        line["full"] = hash_of(whole)
        places = torch.randperm(MOST, generator=torch.Generator().manual_seed(1)).to(whole.device)
        launcher.launch(kernel, stored(one.a[places], problem.layout), one.b, one.c)
        line["rows_move"] = torch.equal(one.c, whole[places])
        for m in FEWER:
            line[f"m{m}"] = None
            if entry.admits(Problem(m, *problem.key[1:5])) is None:
                c = torch.empty_like(whole[:m])
                launcher.launch(kernel, stored(one.a[:m], problem.layout), one.b, c)
                line[f"m{m}"] = torch.equal(c, whole[:m])
    except (RuntimeError, ValueError) as error:
        line["error"] = str(error)[:200]
    return line


def lines() -> Iterator[Any]:
    known = {line.get("id") for line in read_records(folders.list_files("bits"))}
    sets = {}
    for problem in (
        Problem(MOST, n, k, layout, dtype)
        for layout in LAYOUTS
        for dtype in DTYPES
        for n, k in SIZES
    ):
        (sets[problem],) = operands(problem, 0, seed=5)
    for pack in select.find_packs().packs:
        for entry in pack.manifest.kernels:
            if entry.id in known:
                continue
            for problem, one in sets.items():
                if entry.admits(problem) is None:
                    yield compare(entry, pack.image(entry), problem, one)


def main(out: str) -> int:
    with Path(out).open("x", encoding="utf-8") as file:
        for line in lines():
            print(json.dumps(line), file=file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
