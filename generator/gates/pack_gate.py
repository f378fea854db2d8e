"""Every kernel of a pack through the numeric and the state gate on one GPU; what `hgemm-packs
verify` runs where there is one.

`python -m hgemm_packs.generator.gates.pack_gate PACK FACTS.json` also writes the verdicts down,
with the date and the versions of this machine.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from hgemm_packs import launcher, report
from hgemm_packs.errors import PackError
from hgemm_packs.generator.gates import batched, grouped, numeric, sizes
from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.sizes import Shape
from hgemm_packs.generator.gates.state import gate as state
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

FEW_CTAS: Final = 7  # of a persistent grid: a prime, so that no side of a problem is a multiple


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """Verdict on one kernel; `detail` is empty or says what failed."""

    name: str
    ok: bool
    max_rel_err: float
    shapes_tested: int
    detail: str


def check(
    entry: KernelEntry,
    kernel: Kernel,
    place: torch.device,
    sm_count: int,
    seed: int,
    planned: Sequence[Shape] = (),
    large: Sequence[Shape] = (),
) -> numeric.Numeric:
    """The numeric gate of what the kernel runs: groups, batches or products, with the problems
    that the size gate asks for. Raises NumericError."""
    within = _within_fewer(entry, kernel)
    if entry.is_grouped:
        launch, *less = (functools.partial(launcher.launch_grouped, x) for x in (kernel, *within))
        return grouped.check(entry, launch, place, seed, planned, large, less)
    arm, *fewer = (KernelArm(each, entry.epilogue) for each in (kernel, *within))
    if entry.is_batched:
        return batched.check(entry, arm, place, seed, planned, large, fewer)
    most = kernel.max_ctas
    return numeric.check(entry, arm, place, sm_count, seed, most, planned, large, fewer)


def _within_fewer(entry: KernelEntry, kernel: Kernel) -> list[Kernel]:
    """A kernel of a persistent grid as on a smaller device, and where others leave it little room.
    Of one whose CTAs wait for each other no grid is that small."""
    if not entry.grid.persistent or entry.cooperative:
        return []
    least = 2 * math.prod(entry.cluster)  # of CTAs that a launch places together
    counts = {max(ctas, least) for ctas in (kernel.max_ctas * 6 // 7, FEW_CTAS)}
    return [kernel.within(ctas) for ctas in sorted(counts) if ctas < kernel.max_ctas]


def verify_kernels(
    pack: Pack, device: int = 0, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[KernelVerdict]:
    """Run both gates on each kernel of `pack` on CUDA device `device`, with fresh seeds.

    A kernel is launched in each way that rows name it, also dependently, and counts what it does
    worst. `progress(done, total)` is called after each kernel. Wrong kernels are results, not
    exceptions.
    """
    sm_count = launcher.device_info(device).sm_count
    place = torch.device("cuda", device)
    ways = _ways(pack)
    results = []
    for entry in pack.manifest.kernels:
        verdicts = []
        try:
            for dependent in ways[entry.id]:
                kernel = launcher.load(device, entry, pack.image(entry), dependent)
                seed = secrets.randbits(48)
                verdicts.append(check(entry, kernel, place, sm_count, seed))
                state.check_kernel(entry, kernel, device, seed)
            worst = max(verdicts, key=lambda each: each.max_rel_err)
            results.append(
                KernelVerdict(entry.name, True, worst.max_rel_err, worst.shapes_tested, "")
            )
        except (numeric.NumericError, PackError, RuntimeError) as error:
            results.append(KernelVerdict(entry.name, False, float("nan"), 0, str(error)))
        progress(len(results), len(pack.manifest.kernels))
    return results


def verify_classes(pack: Pack, device: int = 0) -> list[str]:
    """Run problems that fill the card on one kernel of each class (`sizes.class_of`), groups and
    batches among them; what failed, as "kernel: why". Needs a card of 80 GB."""
    place = torch.device("cuda", device)
    first: dict[tuple[object, ...], KernelEntry] = {}
    for entry in pack.manifest.kernels:
        facts = {**sizes.fields_of(entry), "dtype": entry.dtype}
        first.setdefault(sizes.class_of({**facts, "name": entry.name}), entry)
    failed = []
    for entry in first.values():
        try:
            kernel = launcher.load(device, entry, pack.image(entry))
            check_large(entry, kernel, place, secrets.randbits(48))
        except (numeric.NumericError, PackError, RuntimeError) as error:
            failed.append(f"{entry.name}: {error}")
    return failed


def check_large(entry: KernelEntry, kernel: Kernel, place: torch.device, seed: int) -> None:
    """Problems that fill the card, of what the kernel runs. Raises NumericError."""
    if entry.is_grouped:
        launch = functools.partial(launcher.launch_grouped, kernel)
        grouped.check_large(grouped.GroupedChecker(entry, launch, place, seed))
        return
    arm = KernelArm(kernel, entry.epilogue)
    if entry.is_batched:
        batched.check_large(batched.BatchedChecker(entry, arm, place, seed))
        return
    sizes.check_large(Checker(entry, arm, place, seed, kernel.max_ctas))


def _ways(pack: Pack) -> dict[str, list[bool]]:
    """By kernel id, whether it is launched dependently: as rows name it, plainly if none does."""
    rows = pack.manifest.table
    plain, dependent = {row.kernel for row in rows}, {row.dependent for row in rows}
    named = ((False, plain), (True, dependent))
    return {
        entry.id: [dependent for dependent, ids in named if entry.id in ids] or [False]
        for entry in pack.manifest.kernels
    }


def write_facts(pack: Pack, out: Path, device: int = 0) -> int:
    """Verify `pack` and write the verdicts with date and versions to `out`; returns the failures.

    Only kernels that passed are listed under `numerics`: the others cannot enter a table.
    """
    results = verify_kernels(pack, device)
    failed = [result for result in results if not result.ok]
    too_large = verify_classes(pack, device)
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **report.runtime_versions(device),
        "device": str(launcher.device_info(device)),
        "numerics": [asdict(result) for result in results if result.ok],
        "failed": [asdict(result) for result in failed],
        "failed_large": too_large,
    }
    out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return len(failed) + len(too_large)


if __name__ == "__main__":
    sys.exit(1 if write_facts(Pack.open(sys.argv[1]), Path(sys.argv[2])) else 0)
