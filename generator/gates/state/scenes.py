"""One problem of a kernel, laid out for many launches: operands and C that stay where they are.

Made of the checkers of the numeric gate, for products, batches and groups alike. The checks of the
state gate are written in terms of a `Scene`; the first result of each is compared with float64, and
later ones with the first, bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hgemm_packs.generator.gates.batched import BatchedChecker
from hgemm_packs.generator.gates.checker import Checker, Launch, NumericError, size
from hgemm_packs.generator.gates.grouped import GroupedChecker, running
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.pack.manifest import KernelEntry

#: Of M, N and K, from which the kernel takes the next that it admits.
Sizes = tuple[int, int, int]
BATCHES = 3


class StateError(NumericError):
    """A kernel that was right made something else later, or elsewhere; the message names the
    check."""


@dataclass(slots=True)
class Scene:
    """`a` and `b` may be written between launches; `bits` is all that C is a part of, guards
    among it, as int16. `queue` launches once into C; `judge(name)` queues the comparison of what C
    holds with float64, and `keep()` remembers operands as they are now, which must not change."""

    checker: Checker
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    bits: torch.Tensor
    queue: Callable[[], None]
    judge: Callable[[str], None]
    keep: Callable[[], None]
    right: torch.Tensor = field(init=False)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.checker.generator.initial_seed())

    def begin(self, name: str) -> None:
        """Launch for the first time. Raises NumericError where C is wrong."""
        self.keep()
        self.queue()
        self.judge(name)
        self.checker.settle()
        self.right = self.bits.clone()

    @property
    def c_right(self) -> torch.Tensor:
        """The first result alone."""
        at = (self.c.data_ptr() - self.bits.data_ptr()) // 2
        return self.right.as_strided(self.c.shape, self.c.stride(), at).view(self.c.dtype)

    def differs(self) -> torch.Tensor:
        """How many elements of C and its guards are not those of the first result."""
        return (self.bits != self.right).sum()

    def prepare(self) -> None:
        """What a capture needs of memory, ahead of it."""
        self.checker.prepare(self.c)


Maker = Callable[[int, int, int], Scene]


def maker(
    entry: KernelEntry, launch: Launch, device: torch.device, seed: int, max_ctas: int | None
) -> Maker:
    """What lays out the kernel's scenes, from M, N and K on. `launch` is as the numeric gate of its
    kind takes it."""
    if entry.is_grouped:
        grouped = GroupedChecker(entry, launch, device, seed)
        return lambda m, n, k: _of_groups(grouped, m, n, k)
    if entry.is_batched:
        batched = BatchedChecker(entry, launch, device, seed)
        return lambda m, n, k: _of_batches(batched, m, n, k)
    run = Checker(entry, launch, device, seed, max_ctas)
    return lambda m, n, k: of_product(run, m, n, k)


def of_product(run: Checker, m: int, n: int, k: int) -> Scene:
    """A @ B by a plain kernel."""
    m, n = run.shape(m, n)
    k = size(run.entry.k, k)
    a, b = run.store(run.normal(m, k), run.normal(k, n))
    bits, c = place = run.place(a, b)

    def judge(name: str) -> None:
        run.judge(name, a, b, place, *run.reference(a, b))

    return Scene(run, a, b, c, bits, lambda: run.queue(a, b, c), judge, lambda: run.keep(a, b))


def _of_batches(run: BatchedChecker, m: int, n: int, k: int) -> Scene:
    m, n, k = run.size(m, n, k)
    a, b = run.draw(BATCHES, m, n, k)
    bits, c = place = run.place(BATCHES * m, n)

    def judge(name: str) -> None:
        run.judge(name, a, b, place)

    checker = run.checker
    return Scene(
        checker, a, b, c, bits, lambda: run.queue(a, b, place), judge, lambda: checker.keep(a, b)
    )


def _of_groups(run: GroupedChecker, m: int, n: int, k: int) -> Scene:
    """Four groups, one of them empty, of about M rows together."""
    ends = running([m // 2 + 1, 0, 3, m - m // 2])
    n, k = size(run.entry.n, n), size(run.entry.k, k)
    a, b = run.operands(ends[-1], len(ends), n, k)
    told = torch.tensor(ends, dtype=torch.int32, device=run.device)
    bits, c = run.place(ends[-1], n)

    def judge(name: str) -> None:
        run.judge(name, a, b, ends, bits)

    checker = run.checker
    return Scene(
        checker,
        a,
        b,
        c,
        bits,
        lambda: run.launch(a, b, told, c),
        judge,
        lambda: checker.keep(a, b),
    )


def small(entry: KernelEntry) -> Sizes:
    """A tile and a bit each way, with the ring once round: the shortest launch that does all."""
    return entry.grid.tile_m + 5, entry.grid.tile_n + 8, ring_depth(entry) + 264


def middle(entry: KernelEntry) -> Sizes:
    """Two tiles and a bit each way, the ring round twice."""
    m, n = 2 * entry.grid.tile_m + 5, 2 * entry.grid.tile_n + 8
    return m, n, 2 * ring_depth(entry) + 264
