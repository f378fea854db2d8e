"""Whether every launch by one record is a launch that another allows.

Called by `judge` where a mutant's code is that of an honest kernel as a whole: under its own record
with one field changed, or under that of another genome. Such a kernel is right where it is launched
as its own record says, whatever else stands in the record that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from hgemm_packs.generator.redteam.mutation.operators.base import Fields
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAPPED

#: Fields that say which kernel it is, and nothing of a launch.
NAMES: Final = frozenset(("name", "symbol", "family", "genome"))


def are_allowed(own: Fields, given: Fields) -> bool:
    """Whether the launcher, led by `given`, does nothing that a kernel of the record `own` is not
    made for. A field that has no rule of its own must be the same."""
    if _is_any_grid(own) and _is_any_grid(given):
        given = {**given, "grid": own["grid"]}
    elif _is_one_row(given):
        grid = {**given["grid"], "persistent": own["grid"].get("persistent", False)}
        given = {**given, "grid": grid}
    return all(
        _RULES.get(name, _are_same)(own.get(name), given.get(name))
        for name in {*own, *given} - NAMES
    )


def _is_any_grid(fields: Fields) -> bool:
    """Whether a grid may have any number of CTAs: one of groups is persistent, and only the device
    knows how many tiles they have. What a tile is follows from the code; a record's decides how
    many CTAs there are and no more."""
    is_persistent = fields["grid"].get("persistent") and fields["grid"].get("slices", 1) == 1
    return fields["param_layout"] == GROUPED_LAYOUT and bool(is_persistent)


def _is_one_row(fields: Fields) -> bool:
    """Whether a grid is of one cluster along x, which is what a persistent one's bound is on: at
    least one cluster always runs. Where there are no maps, tiles along N go along y."""
    grid = fields["grid"]
    rows = grid["tile_m"] * fields["cluster"][0]
    is_flat = bool(MAPPED[str(fields["param_layout"])])
    return not is_flat and fields["dims"]["m"]["max"] <= rows and grid.get("slices", 1) == 1


def _are_same(own: Any, given: Any) -> bool:
    return bool(own == given)


def _is_enough(own: int, given: int) -> bool:
    return given >= own


def _is_more_careful(own: bool | None, given: bool | None) -> bool:
    """Of what the launcher heeds where a record says it: said of a kernel that has no need of it,
    it costs time alone."""
    return bool(given) or not own


def _are_sizes(own: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether all sizes of one record are sizes of the other."""
    return all(
        rule["min"] >= own[dim]["min"]
        and rule["max"] <= own[dim]["max"]
        and rule["multiple_of"] % own[dim]["multiple_of"] == 0
        for dim, rule in given.items()
    )


def _are_addresses(own: Mapping[str, int], given: Mapping[str, int]) -> bool:
    return all(given[name] % align == 0 for name, align in own.items())


def _is_grid(own: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Tiles are the same. Where all CTAs run at once a persistent grid is one of all tiles, so that
    a kernel which goes from tile to tile is made for that, too."""
    went, goes = own.get("persistent", False), given.get("persistent", False)
    alike = {**own, "persistent": goes} == {**given, "persistent": goes}
    return alike and (went or not goes)


_RULES: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        "align": _are_addresses,
        "cooperative": _is_more_careful,
        "dims": _are_sizes,
        "grid": _is_grid,
        "reads_ahead": _is_more_careful,
        "smem_bytes": _is_enough,
        "triggers_early": _is_more_careful,
    }
)
