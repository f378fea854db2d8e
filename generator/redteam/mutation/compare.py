"""A mutant beside its honest kernel, bit by bit, on problems that no gate has.

Only mutants that have passed every gate come here. Sizes are drawn by logarithms, up to deep K, of
those that both take, and values as users have them. What differs here was missed by the gates; what
does not has only not been seen to differ, and counts as missed too unless an argument says why it
cannot (`report`). Runs on any device.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.gates.batched import TWO, WAYS, BatchedChecker
from hgemm_packs.generator.gates.checker import Checker, Launch, fit_shape, size, storage_bits
from hgemm_packs.generator.gates.grouped import GroupedChecker
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import DimRange, KernelEntry

PROBLEMS = 48
MOST_ELEMENTS = 1 << 25  # of A, B or C
DEEPEST = 1 << 17  # K, where the others are small
#: The name of a problem, and C with what lies round it as a kernel leaves them.
Drawn = tuple[str, Callable[[Launch], torch.Tensor]]
KINDS = ("normal", "outliers", "specials", "tiny", "zero blocks", "constant", "large")


def values(kind: str, rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Float32 values [rows, columns] of a kind."""
    place = generator.device
    x = torch.randn((rows, columns), generator=generator, device=place)
    if kind == "constant":
        return torch.full_like(x, 1.5)
    if kind == "tiny":
        return x * 2.0**-14
    if kind == "large":
        return x * 200.0
    some = torch.rand((rows, columns), generator=generator, device=place) < 0.01
    if kind == "outliers":
        return torch.where(some, x * 1e4, x)
    if kind == "specials":
        with_infinity = torch.where(some, math.inf, x)
        few = torch.rand((rows, columns), generator=generator, device=place) < 0.001
        return torch.where(few, math.nan, with_infinity)
    if kind == "zero blocks":
        return x * (torch.arange(columns, device=place) // 64 % 2)
    return x


def draw_sizes(record: KernelEntry, dice: random.Random, times: int = 1) -> tuple[int, int, int]:
    """M, N and K that a kernel admits, of which one may be large, for so many products."""
    deep = dice.random() < 0.25
    m, n = (round(2 ** dice.uniform(0, 9 if deep else 13)) for _ in range(2))
    k = round(2 ** dice.uniform(0, math.log2(DEEPEST) if deep else 12))
    m, n, k = size(record.m, m), size(record.n, n), size(record.k, k)
    while max(m * n, m * k, n * k) * times > MOST_ELEMENTS:
        smaller = size(record.m, m // 2), size(record.n, n // 2), size(record.k, k // 2)
        if smaller == (m, n, k):
            break
        m, n, k = smaller
    return m, n, k


def common(one: KernelEntry, other: KernelEntry) -> KernelEntry:
    """The first record with the sizes that both admit."""
    m, n, k = map(_both, (one.m, one.n, one.k), (other.m, other.n, other.k))
    return one._replace(m=m, n=n, k=k)


def _both(one: DimRange, other: DimRange) -> DimRange:
    step = math.lcm(one.multiple_of, other.multiple_of)
    return DimRange(max(one.min, other.min), min(one.max, other.max), step)


def _product(mutant: KernelEntry, run: Checker, kind: str, dice: random.Random) -> Drawn:
    m, n, k = draw_sizes(run.entry, dice)
    m, n = fit_shape(mutant, *run.shape(m, n), run.max_ctas)
    a, b = (values(kind, *sides, run.generator).to(run.dtype) for sides in ((m, k), (k, n)))
    stored = run.store(a, b)

    def bits_of(launch: Launch) -> torch.Tensor:
        bits, c = run.place(*stored)
        run.queue_by(launch, *stored, c)
        return bits

    return f"{kind} {m}x{n}x{k}", bits_of


def _batch(run: BatchedChecker, kind: str, dice: random.Random) -> Drawn:
    batches = max(TWO, round(2 ** dice.uniform(0, 7)))
    m, n, k = draw_sizes(run.entry, dice, batches)
    operands = run.draw(batches, m, n, k, (dice.choice(WAYS), dice.choice(WAYS)))
    for each in operands:  # what lies between the matrices stays
        drawn = values(kind, batches * each.shape[1], each.shape[2], run.checker.generator)
        each.copy_(drawn.view(each.shape))

    def bits_of(launch: Launch) -> torch.Tensor:
        place = run.place(batches * m, n)
        run.queue_by(launch, *operands, place)
        return place[0]

    return f"{kind}, {batches} products of {m}x{n}x{k}", bits_of


def _groups(run: GroupedChecker, kind: str, dice: random.Random) -> Drawn:
    groups = round(2 ** dice.uniform(0, 7))
    rows, n, k = draw_sizes(run.entry, dice, groups)
    tokens, weights = run.operands(rows, groups, n, k)
    tokens.copy_(values(kind, rows, k, run.checker.generator))
    weights.copy_(values(kind, groups * k, n, run.checker.generator).view(weights.shape))
    ends = sorted(dice.choices(range(rows + 1), k=groups))
    told = torch.tensor(ends, dtype=torch.int32, device=run.device)

    def bits_of(launch: Launch) -> torch.Tensor:
        bits, c = run.place(rows, n)
        launch(tokens, weights, told, c)
        return bits

    return f"{kind}, {groups} groups of {rows}x{n}x{k}", bits_of


def differences(
    records: tuple[KernelEntry, KernelEntry],
    honest: Launch,
    mutant: Launch,
    device: torch.device,
    seed: int,
    max_ctas: int | None = None,
    count: int = PROBLEMS,
) -> list[str]:
    """The problems on which C, or what lies round it, differs in a bit, or a launch was refused
    though both `records`, of the honest kernel and of the mutant, admit it."""
    record = common(*records)
    draw: Callable[[str, random.Random], Drawn]
    if record.is_grouped:
        draw = functools.partial(_groups, GroupedChecker(record, honest, device, seed))
    elif record.is_batched:
        draw = functools.partial(_batch, BatchedChecker(record, honest, device, seed))
    else:
        draw = functools.partial(
            _product, records[1], Checker(record, honest, device, seed, max_ctas)
        )
    dice, found = random.Random(seed), []
    for number in range(count):
        name, bits_of = draw(KINDS[number % len(KINDS)], dice)
        try:
            first, *others = (
                storage_bits(bits_of(launch)).clone() for launch in (honest, mutant, mutant)
            )
            why = "" if all(bool((each == first).all()) for each in others) else "bits differ"
        except (RuntimeError, ValueError) as error:
            why = str(error)[:200]
        if why:
            found.append(f"{name}: {why}")
    return found


def on_device(honest: CompiledKernel, mutant: CompiledKernel, index: int, seed: int) -> list[str]:
    """The same on a GPU."""
    records = entry(honest.fields, honest.cubin), entry(mutant.fields, mutant.cubin)
    loaded = [
        launcher.load(index, record, each.cubin)
        for record, each in zip(records, (honest, mutant), strict=True)
    ]
    arms: list[Launch] = [
        functools.partial(launcher.launch_grouped, kernel)
        if record.is_grouped
        else KernelArm(kernel, record.epilogue)
        for kernel, record in zip(loaded, records, strict=True)
    ]
    place = torch.device("cuda", index)
    most = min(each.max_ctas for each in loaded)
    return differences(records, arms[0], arms[1], place, seed, most)
