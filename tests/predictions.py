"""A small predictor, and a pack that has it: the good pack of tests/packs.py, k_tma2 as candidate.

By it the kernel takes half of torch's time where M is at most 256, a quarter where N is at most 64,
too, and as long as torch above. Where N is at most 64 the gain is doubted by 2^1.5.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.features import FEATURES
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest_fields import RANGE
from hgemm_packs.pack.predictor import Candidate, Dims, Model, Predictor
from tests import packs
from tests.packs import FakeBuilt

LN2 = math.log(2.0)
AT = {name: index for index, name in enumerate(FEATURES)}
#: Numbers of the good kernels, in the order of pack.features.NUMBERS, but for the family.
_NUMBERS = (128, 64, 64, 1, 2, 1, 1, 1, 1, 384, 98304, 16, 16, 16, 0, 0, 0, 1)


def leaf(value: float) -> Model:
    """A model that says the same of every problem."""
    return Model(value, (0,), (-1,), (0.0,), (0,))


def model(base: float, *trees: list[tuple[int, float, int]]) -> Model:
    """Trees of nodes (feature, number, right counted from the tree's root)."""
    roots, nodes = [], list[tuple[int, float, int]]()
    for tree in trees:
        roots.append(len(nodes))
        nodes += [(f, x, right and right + roots[-1]) for f, x, right in tree]
    columns = zip(*nodes, strict=True)
    feature, number, right = (tuple(each) for each in columns)
    return Model(base, tuple(roots), feature, number, right)  # type: ignore[arg-type]


def candidate(kernel: FakeBuilt, **changes: Any) -> Candidate:
    fields = kernel.entry_fields
    dims = Dims(*(RANGE(fields["dims"][name]) for name in "mnk"))
    whole = {"kernel": fields["id"], "layout": "nn", "dtype": "f16", "dims": dims}
    return Candidate(**{**whole, "numbers": (0, *_NUMBERS), **changes})


def of(kernels: list[FakeBuilt], **changes: Any) -> Predictor:
    """The predictor of the good pack, of its second kernel."""
    values: dict[str, Any] = {
        "profile": packs.H200.name,
        "families": ("sm90_test",),
        "margin": 1.25,
        "candidates": (candidate(kernels[1]),),
        "ours": model(
            0.0,
            [
                (AT["log2_m"], 8.0, 4),  # M up to 256
                (AT["log2_n"], 6.0, 3),  # and N up to 64
                (-1, -2 * LN2, 0),
                (-1, -LN2, 0),
                (-1, 0.0, 0),
            ],
        ),
        "torch": leaf(0.0),
        "doubt": model(0.0, [(AT["log2_n"], 6.0, 2), (-1, 1.5 * LN2, 0), (-1, 0.0, 0)]),
    }
    return Predictor(**values | changes)


def write(directory: Path, make: packs.CubinMaker | None = None, **changes: Any) -> Pack:
    """The good pack with its predictor; `changes` replace fields of that."""
    kernels = packs.good_kernels(make)
    source = packs.source(kernels, packs.good_rows(kernels), predictors=(of(kernels, **changes),))
    return write_pack(directory, source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
