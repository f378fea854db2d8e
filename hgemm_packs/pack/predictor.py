"""A predictor: which kernel runs a problem that was never measured, and how sure that is.

Three sums of regression trees: logarithms of the time of ours and of torch's, over a floor that
both share, and a doubt to take off the gain between them. `manifest_reader` reads it from a line of
a pack, the generator fits it; C evaluates it (csrc/launcher/predictor.c). Nothing in it is code.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import PackError
from .features import FEATURES, NUMBERS, OF_PROBLEM, numbers_of
from .manifest import DimRange, KernelEntry

#: Candidates of one layout and type: what one problem makes C evaluate at most.
MOST_OF_A_KIND = 48
#: Numbers that the features divide by.
_POSITIVE = (
    *("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "cluster_k", "slices", "threads"),
    "group",
)


class Model(NamedTuple):
    """Trees one after the other, each from its root in `roots` on. A node sends what is at most
    `number` in its `feature` to the node behind it, the rest to `right`; a leaf has the feature -1,
    and its value as `number`. The sum of the leaves and `base` is the model's value."""

    base: float
    roots: tuple[int, ...]
    feature: tuple[int, ...]
    number: tuple[float, ...]
    right: tuple[int, ...]

    def packed(self) -> tuple[float, bytes, bytes, bytes, bytes]:
        """As C takes it."""
        whole = [array("i", each).tobytes() for each in (self.roots, self.feature, self.right)]
        return self.base, whole[0], whole[1], array("d", self.number).tobytes(), whole[2]


class Dims(NamedTuple):
    """The sizes that a kernel takes."""

    m: DimRange
    n: DimRange
    k: DimRange


class Candidate(NamedTuple):
    """A kernel that may be chosen, with what C has to know of it: NUMBERS, and the sizes it
    takes."""

    kernel: str
    layout: str
    dtype: str
    dims: Dims
    numbers: tuple[int, ...]


class Predictor(NamedTuple):
    """The predictor of one device profile. A kernel serves where the predicted gain, less the
    doubt, is at least `margin`."""

    profile: str
    families: tuple[str, ...]
    margin: float
    candidates: tuple[Candidate, ...]
    ours: Model
    torch: Model
    doubt: Model

    def packed_candidates(self) -> bytes:
        """As C takes them."""
        words = array("i")
        for each in self.candidates:
            words.extend((each.layout[0] == "t", each.layout[1] == "t", each.dtype == "bf16"))
            for sizes in each.dims:
                words.extend(sizes)
            words.extend(each.numbers)
        return words.tobytes()


def describe(kernel_id: str, kernel: KernelEntry, families: tuple[str, ...]) -> Candidate:
    """A kernel as a candidate."""
    dims = Dims(kernel.m, kernel.n, kernel.k)
    return Candidate(kernel_id, kernel.layout, kernel.dtype, dims, numbers_of(kernel, families))


def check_predictor(found: Predictor) -> None:
    """Fields of a predictor that must fit each other. Raises PackError."""
    if len(set(found.families)) != len(found.families):
        raise PackError("bad_predictor", "a family is named twice", "families")
    kinds = Counter((each.layout, each.dtype) for each in found.candidates)
    if max(kinds.values()) > MOST_OF_A_KIND:
        detail = f"more than {MOST_OF_A_KIND} candidates of one layout and type"
        raise PackError("bad_predictor", detail, "candidates")
    if len({each.kernel for each in found.candidates}) != len(found.candidates):
        raise PackError("bad_predictor", "a kernel is a candidate twice", "candidates")
    for index, each in enumerate(found.candidates):
        _check_numbers(each, len(found.families), f"candidates[{index}].numbers")
    for name, sees in (("ours", FEATURES), ("torch", OF_PROBLEM), ("doubt", FEATURES)):
        _check_model(getattr(found, name), len(sees), name)


def _check_numbers(candidate: Candidate, families: int, where: str) -> None:
    numbers = dict(zip(NUMBERS, candidate.numbers, strict=True))
    if numbers["family"] >= families or not all(numbers[name] for name in _POSITIVE):
        raise PackError("bad_predictor", "a family that is not listed, or a tile of nothing", where)


def _check_model(model: Model, features: int, where: str) -> None:
    """Trees one behind the other, each a tree: every node but a root has one parent before it."""
    count = len(model.feature)
    if len(model.number) != count or len(model.right) != count:
        raise PackError("bad_predictor", "nodes have one feature, number and right each", where)
    ends = (*model.roots[1:], count)
    if model.roots[0] or any(a >= b for a, b in zip(model.roots, ends, strict=True)):
        raise PackError("bad_predictor", "trees do not stand one behind the other", where)
    for root, end in zip(model.roots, ends, strict=True):
        if not _is_tree(model, root, end, features):
            raise PackError("bad_predictor", f"the nodes from {root} on are no tree", where)


def _is_tree(model: Model, root: int, end: int, features: int) -> bool:
    """Whether the nodes are in preorder: a node, all that is below it to the left, then to the
    right."""
    waiting: list[int] = []  # where the right sides begin that are still to come
    for at in range(root, end):
        feature, right = model.feature[at], model.right[at]
        if feature >= features:
            return False
        if feature >= 0:
            if not at + 1 < right < end or (waiting and right >= waiting[-1]):
                return False
            waiting.append(right)
        elif right or (at + 1 < end and (not waiting or waiting.pop() != at + 1)):
            return False
    return not waiting


def check_candidates(found: Predictor, kernels: Mapping[str, KernelEntry]) -> None:
    """Candidates beside the kernels that they name. Raises PackError."""
    for index, each in enumerate(found.candidates):
        where = f"candidates[{index}]"
        if each.kernel not in kernels:
            raise PackError("unknown_kernel", each.kernel, f"{where}.kernel")
        check_candidate(each, kernels[each.kernel], found.families, where)


def check_candidate(
    candidate: Candidate, kernel: KernelEntry, families: tuple[str, ...], where: str
) -> None:
    """What a candidate says of its kernel is what the kernel says."""
    known = kernel.family in families
    if not known or kernel.epilogue != "none" or candidate != describe(kernel.id, kernel, families):
        detail = f"{kernel.name} is not what its candidate says, or no plain product"
        raise PackError("bad_candidate", detail, where)
