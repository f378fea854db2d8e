"""Rows of grouped products: what must hold of them, and which of them speaks of a problem.

Asked by `manifest_reader` and the packer, which check a document, and by `select`. Rows of one
weight rise by M, and each speaks of the sizes below it, down to the next: a batch of tokens brings
any M, and where groups end only the device knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import PackError
from ..problem import GroupedProblem
from .manifest import DeviceProfile, GroupedRow, KernelEntry

#: A row speaks of no M below this part of its own.
REACH = 4

Place = tuple[str, int, int, int, str, str, int]


def place(row: GroupedRow) -> Place:
    """What rows are sorted by."""
    return row.profile, row.groups, row.n, row.k, row.layout, row.dtype, row.m


def check_order(rows: Sequence[GroupedRow], profiles: Iterable[DeviceProfile]) -> None:
    """Rows rise, each once, of profiles of this document, with bounds that can be. Raises
    PackError."""
    names = {profile.name for profile in profiles}
    for index, row in enumerate(rows):
        where = f"grouped[{index}]"
        if row.profile not in names:
            raise PackError("unknown_profile", row.profile, f"{where}.profile")
        if row.hot.lcb > row.hot.speedup or row.cold.lcb > row.cold.speedup:
            raise PackError("bad_bound", "a lower bound is above its estimate", where)
        if index and place(rows[index - 1]) >= place(row):
            raise PackError("table_order", "grouped rows do not rise", where)


def check_named(rows: Iterable[GroupedRow], kernels: Mapping[str, KernelEntry]) -> None:
    """Each row names, if any, a kernel of this document that takes what was measured. Raises
    PackError."""
    for index, row in enumerate(rows):
        if row.kernel is None:
            continue
        where = f"grouped[{index}].kernel"
        if row.kernel not in kernels:
            raise PackError("unknown_kernel", row.kernel, where)
        reason = kernels[row.kernel].admits(row.problem)
        if reason is not None:
            raise PackError("not_admitted", reason.text, where)


def find(rows: Iterable[GroupedRow], profile: str, problem: GroupedProblem) -> GroupedRow | None:
    """The row that speaks of a problem: of its weight, with the least M that is not below it."""
    wanted = (profile, problem.groups, problem.n, problem.k, problem.layout, problem.dtype)
    for row in rows:
        if place(row)[:6] == wanted and row.m >= problem.m:
            return row if row.m < REACH * problem.m else None
    return None


def limits(rows: Iterable[GroupedRow], profile: str, problem: GroupedProblem) -> list[int]:
    """Sizes at which `find` may begin to answer otherwise, for the problem's weight: any two M from
    above one of them up to the next get the same answer."""
    wanted = (profile, problem.groups, problem.n, problem.k, problem.layout, problem.dtype)
    ends = [row.m for row in rows if place(row)[:6] == wanted]
    return sorted({*ends, *(end // REACH for end in ends)})
