"""First use of a kernel against torch (HGEMM_PACKS_SELFTEST=1), and the quarantine on disk.

Called by `dispatch` after loading a kernel, and by `select` for what earlier processes found out.
A kernel that failed stays out until a person removes its file; nothing here ever lets one back in.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import PackError
from .pack.identity import identity
from .pack.receipts import read_own, write_whole
from .pack.strict_json import read_json, record, text
from .problem import WITHOUT_ADDEND, columns_of
from .settings import LOGGER, settings

if TYPE_CHECKING:
    import torch

    from ._C import Kernel
    from .pack.manifest import KernelEntry
    from .problem import GroupedProblem, Problem

#: Rounding of the result to its type: half a unit in the last place, relative.
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}
#: Sums of K products of normal numbers, in any order and truncated, differ by less than K of this.
SUMMATION = 2.0**-20
#: Rows that are compared at once, so that the float32 copies of a large problem find room.
ROWS = 4096

MAX_RECORD_BYTES = 4096
_FILE = re.compile(r"([0-9a-f]{64})\.json")
_RECORD = record(lambda reason: reason, reason=text(r"[ -~]{1,500}"))


class SelfTestError(RuntimeError):
    """A kernel's result is not that of torch."""


def prove(kernel: Kernel, entry: KernelEntry, problem: Problem, place: torch.device) -> None:
    """Run a kernel just loaded on one random case of `problem` and compare every value with what
    torch makes of its float32 product. The case is the same in every process.

    Raises SelfTestError when a value differs by more than rounding and order of summation explain,
    after writing that down for later processes; RuntimeError when the case cannot be run.
    """
    import torch

    from .launcher import launch
    from .measure.epilogue import finish, spread_gated
    from .measure.operands import addend_of, operands

    if problem.batches > 1:
        return _prove_batch(kernel, entry, problem, place)
    with torch.no_grad():
        (case,) = operands(problem, place, seed=int(entry.id[:12], 16))
        addend = None
        if problem.epilogue not in WITHOUT_ADDEND:
            addend = addend_of(problem.epilogue, case.c)
        launch(kernel, case.a, case.b, case.c, addend=addend)
        wrong, worst = 0, 0.0
        right = case.b.float()
        for start in range(0, problem.m, ROWS):
            rows = slice(start, start + ROWS)
            sums = case.a[rows].float() @ right
            added = addend[rows] if addend is not None and addend.ndim == 2 else addend
            expected = finish(problem.epilogue, sums, added)
            error = (case.c[rows].float() - expected).abs_()
            off: torch.Tensor | float = problem.k * SUMMATION
            if problem.epilogue == "gated_silu":
                off = spread_gated(sums, off)
            allowed = expected.abs_().mul_(2 * ROUNDING[problem.out_dtype])
            allowed += off
            more, off_by = _count(error, allowed)
            wrong, worst = wrong + more, max(worst, off_by)
    values = problem.m * columns_of(problem.n, problem.epilogue)
    _conclude(entry, problem, wrong, values, worst)


def _prove_batch(kernel: Kernel, entry: KernelEntry, problem: Problem, place: torch.device) -> None:
    """The same of a batched kernel: the first products of the batch, as many as `ROWS` have."""
    import torch

    from .launcher import launch
    from .measure.batches import batch

    few = replace(problem, batches=max(2, min(problem.batches, ROWS // max(1, problem.m))))
    source = torch.Generator(place).manual_seed(int(entry.id[:12], 16))
    with torch.no_grad():
        case = batch(few, source)
        addend = None
        expected = case.a.float() @ case.b.float()
        if problem.epilogue == "residual":
            addend = torch.randn(case.c.shape, generator=source, device=place).to(case.c.dtype)
            expected += addend.float()
        launch(kernel, case.a, case.b, case.c, addend=addend)
        error = (case.c.float() - expected).abs_()
        allowed = expected.abs_().mul_(2 * ROUNDING[problem.out_dtype])
        wrong, worst = _count(error, allowed.add_(problem.k * SUMMATION))
    _conclude(entry, problem, wrong, error.numel(), worst)


def _count(error: torch.Tensor, allowed: torch.Tensor) -> tuple[int, float]:
    """How many values are further off than allowed, and by how much the worst is."""
    wrong = int((~(error <= allowed)).sum())  # negated, for NaN compares as false
    return wrong, float(error.nan_to_num_(float("inf")).max())


def _conclude(
    entry: KernelEntry, problem: Problem | GroupedProblem, wrong: int, values: int, worst: float
) -> None:
    """Keep a kernel out that has a wrong value. Raises SelfTestError."""
    if wrong:
        reason = f"self-test on {problem}: {wrong} of {values} values differ, by up to {worst:.3g}"
        keep_out(settings().cache, entry, reason)
        raise SelfTestError(reason)


def prove_grouped(
    kernel: Kernel, entry: KernelEntry, problem: GroupedProblem, place: torch.device
) -> None:
    """The same of a grouped kernel, on a few groups of the problem's weight: one tile of rows and a
    part, none, and one. Raises as `prove` does."""
    import torch

    from .launcher import launch_grouped
    from .measure.operands import DTYPES

    rows, dtype = entry.grid.tile_m + 3, DTYPES[problem.dtype]
    source = torch.Generator(place).manual_seed(int(entry.id[:12], 16))

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=source, dtype=dtype, device=place)

    with torch.no_grad():
        tokens, n, k = draw(rows + 1, problem.k), problem.n, problem.k
        weights = draw(3, k, n) if problem.layout == "nn" else draw(3, n, k).mT
        ends = torch.tensor([rows, rows, rows + 1], dtype=torch.int32, device=place)
        out = torch.full((rows + 1, n), torch.nan, dtype=dtype, device=place)
        launch_grouped(kernel, tokens, weights, ends, out)
        expected = tokens.float() @ weights[0].float()
        expected[rows:] = tokens[rows:].float() @ weights[2].float()
        error = (out.float() - expected).abs_()
        allowed = expected.abs_().mul_(2 * ROUNDING[problem.dtype]).add_(k * SUMMATION)
        wrong, worst = _count(error, allowed)
    _conclude(entry, problem, wrong, error.numel(), worst)


def read_quarantine(root: Path | None) -> dict[str, str]:
    """Identity -> reason, as earlier processes left them in v1/quarantine below the cache `root`;
    earlier versions left ids of cubins. A record that is damaged, or that another user can have
    written, is not read and keeps its kernel out all the same."""
    known: dict[str, str] = {}
    if root is None:
        return known
    try:
        for path in sorted((root / "v1" / "quarantine").iterdir()):
            named = _FILE.fullmatch(path.name)
            if named:
                known[named[1]] = _reason(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing ever failed here
    except OSError as error:
        LOGGER.warning("the record of failed kernels cannot be read: %s", error)
    return known


def keep_out(root: Path | None, kernel: KernelEntry, reason: str) -> None:
    """Remember for later processes that this kernel failed. Where nothing can be written only this
    process knows, and says so."""
    data = json.dumps({"reason": reason}).encode() + b"\n"
    try:
        if root is None:
            raise OSError("there is no cache")
        write_whole(root / "v1" / "quarantine" / f"{identity(kernel)}.json", data)
    except OSError as error:
        LOGGER.warning(
            "kernel %s failed, and the failure cannot be recorded: %s", kernel.name, error
        )


def _reason(path: Path) -> str:
    try:
        reason: str = _RECORD(read_json(read_own(path, MAX_RECORD_BYTES, "bad_record")))
    except (OSError, PackError) as error:
        return f"{path} says so, unread: {error}"
    return reason
