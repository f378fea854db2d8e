"""A mutant beside its honest kernel, bit by bit, on problems that no gate has.

Only mutants that have passed every gate come here. Sizes are drawn by logarithms, up to deep K,
and values as users have them. What differs here was missed by the gates; what does not has only
not been seen to differ, and counts as missed too unless an argument says why it cannot (`report`).
Runs on any device.
"""

from __future__ import annotations

import math
import random

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.gates.checker import Checker, Launch, size, storage_bits
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import KernelEntry

PROBLEMS = 48
MOST_ELEMENTS = 1 << 25  # of A, B or C
DEEPEST = 1 << 17  # K, where the others are small
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


def draw_sizes(record: KernelEntry, dice: random.Random) -> tuple[int, int, int]:
    """M, N and K that a kernel admits, of which one may be large."""
    deep = dice.random() < 0.25
    m, n = (round(2 ** dice.uniform(0, 9 if deep else 13)) for _ in range(2))
    k = round(2 ** dice.uniform(0, math.log2(DEEPEST) if deep else 12))
    m, n, k = size(record.m, m), size(record.n, n), size(record.k, k)
    while max(m * n, m * k, n * k) > MOST_ELEMENTS:
        smaller = size(record.m, m // 2), size(record.n, n // 2), size(record.k, k // 2)
        if smaller == (m, n, k):
            break
        m, n, k = smaller
    return m, n, k


def differences(
    record: KernelEntry,
    honest: Launch,
    mutant: Launch,
    device: torch.device,
    seed: int,
    max_ctas: int | None = None,
    count: int = PROBLEMS,
) -> list[str]:
    """The problems on which C, or what lies round it, differs in a bit, or a launch was refused.
    `record` is the honest kernel's."""
    run, dice = Checker(record, honest, device, seed, max_ctas), random.Random(seed)
    found = []
    for number in range(count):
        m, n, k = draw_sizes(record, dice)
        m, n = run.shape(m, n)
        kind = KINDS[number % len(KINDS)]
        a, b = (values(kind, *sides, run.generator).to(run.dtype) for sides in ((m, k), (k, n)))
        stored = run.store(a, b)
        bits = []
        try:
            for launch in (honest, mutant, mutant):
                place = run.place(*stored)
                run.queue_by(launch, *stored, place[1])
                bits.append(storage_bits(place[0]).clone())
            same = all(bool((each == bits[0]).all()) for each in bits[1:])
            why = "" if same else "bits differ"
        except (RuntimeError, ValueError) as error:
            why = str(error)[:200]
        if why:
            found.append(f"{kind} {m}x{n}x{k}: {why}")
    return found


def on_device(
    honest: CompiledKernel, mutant: CompiledKernel, index: int, seed: int
) -> list[str] | None:
    """The same on a GPU; None of kernels of groups or batches, which this does not compare."""
    records = [entry(each.fields, each.cubin) for each in (honest, mutant)]
    if any(record.is_grouped or record.is_batched for record in records):
        return None
    loaded = [
        launcher.load(index, record, each.cubin)
        for record, each in zip(records, (honest, mutant), strict=True)
    ]
    arms = [
        KernelArm(kernel, record.epilogue) for kernel, record in zip(loaded, records, strict=True)
    ]
    place = torch.device("cuda", index)
    return differences(records[0], arms[0], arms[1], place, seed, loaded[0].max_ctas)
