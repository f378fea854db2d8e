"""Launches at every tested size over what others left in shared memory and registers: the same bits
whatever that was.

Called by `gate`. A stage of a ring that is not filled for some remainders of K alone, or for a tile
that is full, gives what the launch before left there; most often that is zero, or is multiplied by
zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.coverage.problems import memory, named, tested
from hgemm_packs.generator.gates.sizes import Shape, fields_of, operands_of, place_of
from hgemm_packs.generator.gates.state.launches import Surroundings, Tally

MOST_BYTES: Final = 1 << 22  # of a problem: larger ones have no other remainders
#: Nothing; NaN in fp16, bf16 and fp32; a large number of either sign.
LEFT: Final = (0, 0x7FFF7FFF, 0x7BFFFBFF)


def check(run: Checker, around: Surroundings, tally: Tally, planned: Sequence[Shape] = ()) -> None:
    """Queue launches at the sizes that the size gate counts on, the planned ones among them, one
    over each of `LEFT`."""
    fields = fields_of(run.entry)
    unaligned = (sizes for sizes in tested(fields) if not sizes.align)
    for sizes in [*unaligned, *named(fields, planned)]:
        if memory(fields, sizes) > MOST_BYTES:
            continue
        a, b = operands_of(run, sizes)
        m, n = a.shape[0], b.shape[1]
        counter = tally.counter(f"over what was left in shared memory, {m}x{n}x{sizes.k}")
        first = None
        for pattern in LEFT:
            bits, c = place_of(run, sizes)
            around.fill(pattern)
            run.queue(a, b, c)
            if first is None:
                first = bits
            counter.add_((bits != first).sum())
