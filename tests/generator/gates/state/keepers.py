"""Kernels that keep something from launch to launch, or reach beyond their operands, in Python; and
the device that they run on, which has shared memory, other work and pages.

Each kernel is a function of (a, b, c) on CPU tensors, right until what it keeps tells it otherwise.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.generator.redteam.cheats import TILE_M, TILE_N, Tensor, honest, product

Keeper = Callable[["Device"], Callable[..., None]]


class Device:
    """What a kernel finds: `shared`, the words that somebody left in an SM, and `at_work`, whether
    another stream keeps it busy. Is the `Surroundings` of a gate, and its `Mapped` memory."""

    def __init__(self) -> None:
        self.shared: Any = 0
        self.at_work = False
        self.fills: list[int | None] = []
        self.others = 0
        self._pages = torch.empty(0, dtype=torch.int16)

    def fill(self, pattern: int | None) -> None:
        self.fills.append(pattern)
        self.shared = random.getrandbits(32) if pattern is None else pattern

    def other(self) -> None:
        self.others += 1
        self.shared = 0x3C00

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self.at_work = True
        yield
        self.at_work = False

    def words(self, count: int) -> Tensor:
        if self._pages.numel() < count:
            self._pages = torch.empty(-(-count // 1024) * 1024, dtype=torch.int16)
        return self._pages

    def workspace(self, *_: object) -> None:
        return None

    def wait(self) -> None:
        pass

    def touch(self, matrix: Tensor, before: int, behind: int) -> None:
        """Reach so many elements before the first and behind the last of a matrix."""
        storage = matrix.untyped_storage()
        if storage.data_ptr() != self._pages.untyped_storage().data_ptr():
            return
        last = sum((s - 1) * by for s, by in zip(matrix.shape, matrix.stride(), strict=True))
        first = matrix.storage_offset()
        if first - before < 0 or first + last + behind >= storage.nbytes() // 2:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def bomb(after: int) -> Keeper:
    """Counts launches in shared memory that checks itself; leaves out a part of K when it is
    time."""

    def make(device: Device) -> Callable[..., None]:
        def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
            kept = device.shared
            count = kept[1] + 1 if isinstance(kept, tuple) and kept[0] == "mine" else 0
            device.shared = ("mine", count)
            k = a.shape[1] - (16 if count > after else 0)
            honest(a[:, :k], b[:k], c)

        return launch

    return make


def counts_unseen(after: int) -> Keeper:
    """Counts launches where nobody can clear."""

    def make(device: Device) -> Callable[..., None]:
        count = 0

        def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
            nonlocal count
            count += 1
            (honest if count <= after else wrong)(a, b, c)

        return launch

    return make


def wrong(a: Tensor, b: Tensor, c: Tensor) -> None:
    honest(a, b, c)
    c[-1, -1] += 1


def float_of(word: object) -> float:
    """A word as fp16 in its lower half."""
    if not isinstance(word, int):
        return 0.0
    bits = word & 0xFFFF
    return float(torch.tensor([bits - (bits >> 15 << 16)], dtype=torch.int16).view(torch.float16))


def sums_from_shared(device: Device) -> Callable[..., None]:
    """Takes shared memory for cleared and adds to what is there."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        c.copy_(product(a, b))
        c[0, 0] += float_of(device.shared)
        device.shared = 0

    return launch


def end_of_a_step_from_shared(remainder: int, by: int = 64) -> Keeper:
    """Where K leaves a remainder the end of the last step is not cleared: what it meets in B
    is zero, and zero times NaN is NaN."""

    def make(device: Device) -> Callable[..., None]:
        def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
            c.copy_(product(a, b))
            if a.shape[1] % by == remainder:
                c[0, 0] += 0.0 * float_of(device.shared)

        return launch

    return make


def waits_for_a_flag_in_shared(device: Device) -> Callable[..., None]:
    """Takes a word that is not zero for its neighbour's sign that all is there."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        early = isinstance(device.shared, int) and device.shared & 1
        honest(a[:, : a.shape[1] - 8 * int(early)], b[: a.shape[1] - 8 * int(early)], c)
        device.shared = 0

    return launch


def slow_neighbours(device: Device) -> Callable[..., None]:
    """A barrier too few: right while no warp is held up."""
    count = 0

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        nonlocal count
        count += device.at_work
        (wrong if device.at_work and count % 29 == 0 else honest)(a, b, c)

    return launch


def stale_by(look: Callable[[Tensor], Tensor]) -> Keeper:
    """Where C already holds what it would make of some elements, it leaves C alone. Judges by tiles
    of its own."""

    def make(device: Device) -> Callable[..., None]:
        def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
            made = product(a, b).to(c.dtype)
            for i in range(0, c.shape[0], TILE_M):
                for j in range(0, c.shape[1], TILE_N):
                    new, old = (
                        made[i : i + TILE_M, j : j + TILE_N],
                        c[i : i + TILE_M, j : j + TILE_N],
                    )
                    if not torch.equal(look(new), look(old)):
                        old.copy_(new)

        return launch

    return make


def quarter(tile: Tensor) -> Tensor:
    return tile[: tile.shape[0] // 2, : tile.shape[1] // 2]


def corner(tile: Tensor) -> Tensor:
    return tile[0, 0]


def diagonal(tile: Tensor) -> Tensor:
    return tile.diagonal()


def all_but_a_bit(tile: Tensor) -> Tensor:
    """Elements without their last bit."""
    return tile.view(torch.int16) >> 1


def remembers_by(look: Callable[[Tensor, Tensor], object]) -> Keeper:
    """Gives an old result again where operands look the same."""

    def make(device: Device) -> Callable[..., None]:
        kept: dict[object, Tensor] = {}

        def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
            key = tuple(a.shape), tuple(b.shape), look(a, b)
            if key not in kept:
                kept[key] = product(a, b).to(c.dtype)
            c.copy_(kept[key])

        return launch

    return make


def addresses(a: Tensor, b: Tensor) -> object:
    return a.data_ptr(), b.data_ptr()


def sums(a: Tensor, b: Tensor) -> object:
    """Over all elements, in an order that does not matter, and of their squares."""
    wide = [x.double() for x in (a, b)]
    return tuple(round(float(f(x).sum()), 6) for x in wide for f in (torch.clone, torch.square))


def first_rows(a: Tensor, b: Tensor) -> object:
    return str(a[:2].tolist()), str(b[:2].tolist())


def every_fourth(a: Tensor, b: Tensor) -> object:
    return str(a[::4, ::4].tolist()), str(b[::4, ::4].tolist())


def column_sums(a: Tensor, b: Tensor) -> object:
    """Along M of A and along N of B."""
    found = a.double().sum(0), b.double().sum(1)
    return str([each.round(decimals=6).tolist() for each in found])


def base_rounded_down(which: int, to: int) -> Keeper:
    """Takes the address of an operand for a multiple of `to` bytes."""

    def make(device: Device) -> Callable[..., None]:
        def launch(*matrices: Tensor) -> None:
            moved = list(matrices)
            one = moved[which]
            off = one.data_ptr() % to // 2
            start = max(0, one.storage_offset() - off)
            moved[which] = one.as_strided(one.shape, one.stride(), start)
            honest(*moved)

        return launch

    return make


def lead_rounded_up(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes A's leading stride for a multiple of 32 bytes."""
    lead = -(-a.stride(0) // 16) * 16
    fits = (
        a.storage_offset() + (a.shape[0] - 1) * lead + a.shape[1]
        <= a.untyped_storage().nbytes() // 2
    )
    honest(a.as_strided(a.shape, (lead, 1), a.storage_offset()) if fits else a * math.nan, b, c)


def reaches(which: int, before: int = 0, behind: int = 0) -> Keeper:
    """Touches memory beyond an operand, and is right."""

    def make(device: Device) -> Callable[..., None]:
        def launch(*matrices: Tensor) -> None:
            device.touch(matrices[which], before, behind)
            honest(*matrices)

        return launch

    return make


def writes_before_c_rounded(device: Device) -> Callable[..., None]:
    """Stores by 32 bytes: what stands before a C at 16 becomes zero."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        off = c.data_ptr() % 32 // 2
        if off and c.storage_offset() >= off:
            c.as_strided((off,), (1,), c.storage_offset() - off).zero_()

    return launch
