"""The part of the numeric gate with the sizes that programs have: multiples of SIDE, large in M, N
and K together, and squares, all drawn by the gate's seed.

Other checks make one side long at a time. A path of its own for sizes that are large together, or
between two sizes, or equal, is seen here. Half of the problems are stored as programs store them:
rows without padding, B right behind A.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from hgemm_packs.generator.gates.checker import GUARD, GUARD_BITS, Checker, Place, size
from hgemm_packs.problem import columns_of

SIDE, SQUARES = 128, 3
#: Multiples of SIDE. All problems together take a GPU a tenth of a second, and a CPU, where the
#: gate's own tests run, as long.
SIDES: Final = {"cuda": 32, "cpu": 6}


def check_usual(run: Checker) -> None:
    """Each multiple of SIDE as M, as N and as K, with others that the seed draws; and squares."""
    for i, (m, n, k) in enumerate(draw(run)):
        m, n = run.shape(m, n)
        k = size(run.entry.k, k)
        a, b = run.normal(m, k), run.normal(k, n)
        together = i % 2 == 0 and not any(side % 8 for side in (m, n, k))
        stored = store_together(run, a, b) if together else run.store(a, b)
        into = pack_place(run, m, n) if together else None
        run.product("usual", *stored, into=into)
        run.settle()


def draw(run: Checker) -> Iterator[tuple[int, int, int]]:
    """M, N and K of all problems."""
    ms, ns, ks, squares = (_shuffle(run) for _ in range(4))
    yield from zip(ms, ns, ks, strict=True)
    yield from ((side, side, side) for side in squares[:SQUARES])


def _shuffle(run: Checker) -> list[int]:
    count = SIDES[run.device.type]
    order = torch.randperm(count, generator=run.generator, device=run.device)
    return [SIDE * (place + 1) for place in order.tolist()]


def store_together(
    run: Checker, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in one buffer as the kernel's layout stores them, without padding, B right behind A."""
    turned = [letter == "t" for letter in run.entry.layout]
    lying = [x.t() if turn else x for x, turn in zip((a, b), turned, strict=True)]
    buffer = torch.cat([x.flatten() for x in lying])
    parts = buffer.split([x.numel() for x in lying])
    views = [part.view(x.shape) for part, x in zip(parts, lying, strict=True)]
    of_a, of_b = (x.t() if turn else x for x, turn in zip(views, turned, strict=True))
    run.keep(of_a)
    return of_a, of_b


def pack_place(run: Checker, m: int, n: int) -> Place:
    """A C between guards of whole rows, its own rows without padding."""
    columns = columns_of(n, run.entry.epilogue)
    shape = m + 2 * GUARD, columns
    bits = torch.full(shape, GUARD_BITS, dtype=torch.int16, device=run.device)
    return bits, bits.view(run.dtype)[GUARD : GUARD + m]
