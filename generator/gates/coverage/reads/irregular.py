"""The problems in which `tiles` looks at all that a tile is made of: those that users have, and
sizes that follow no pattern.

Called by `gate`. A choice by bits, remainders or products of sizes is met by half of these or by a
tenth of them, whatever it is made by. Nothing is multiplied, so that none of them needs memory.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.problems import extremes, make, spread

DRAWN: Final = 40
#: Sides of squares, and of layers of models beside few rows: round numbers, as users have them.
ROUND: Final = (256, 512, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 28672)
MOST: Final = 20  # bits of M and N
MOST_K: Final = 9  # of K: deeper ones are few
DEEP: Final = ((900, 1208, 3400), (2055, 2064, 4104), (5000, 4096, 6160), (16, 512, 8200))
WIDE: Final = (0, 1 << 7, 1 << 13, 1 << 17, 1 << 20)  # elements between lines


def problems(fields: Mapping[str, Any]) -> list[Sizes]:
    """The problems of a kernel; the same for the same build."""
    drawn = random.Random(str(fields.get("id", "")))
    shapes = [(side, side, 72) for side in ROUND] + [(m, 4096, 264) for m in (1, 8, 32, 128)]
    for _ in range(DRAWN):
        shapes.append((_size(drawn, MOST), _size(drawn, MOST), _size(drawn, MOST_K)))
    found = [*make(fields, shapes), *make(fields, DEEP), *extremes(fields)]
    for more in WIDE:
        found += make(fields, shapes[-2:], more=more)
    found += [_apart(drawn, each) for each in make(fields, shapes[-6:])]
    return [spread(fields, each, turn) for turn, each in enumerate(dict.fromkeys(found))]


def _size(drawn: random.Random, bits: int) -> int:
    """A size of up to so many bits, each number of bits as likely as another."""
    return drawn.randrange(1 << drawn.randrange(1, bits + 1)) + 1


def _apart(drawn: random.Random, sizes: Sizes) -> Sizes:
    """A problem whose lines of A, B and C are as many elements apart as it happens."""
    apart = [1 << drawn.randrange(3, 18) for _ in range(3)]
    of_a, of_b, of_c = (x + y for x, y in zip(sizes.strides, apart, strict=True))
    return sizes._replace(strides=(of_a, of_b, of_c))
