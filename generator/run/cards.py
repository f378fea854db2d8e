"""What is known of another card: the rows of its profile, and kernels that a pack here has of them.

Asked by the CLI for `generate --like`. Rows come from the committed manifests and from packs found
as the runtime finds them. A manifest or a pack that is damaged is left out, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices.recording import complete_choice
from hgemm_packs.generator.search.like import Named
from hgemm_packs.generator.workers.known_builder import KnownKernel
from hgemm_packs.pack import discover
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem

MAKER = "NVIDIA "


class UnknownCard(ValueError):
    """No table has rows of a card of that name, or several have; the message lists the known."""


@dataclass(frozen=True, slots=True)
class Card:
    """`rows` of the profile of that name, the kernels of packs that these sources build to the same
    ids, and why places were left out."""

    profile: str
    rows: Mapping[Problem, Named]
    kernels: Mapping[Choice, KnownKernel]
    refused: Sequence[str]


@dataclass(slots=True)
class _Places:
    """Documents and packs that could be read, and why others could not."""

    sources: list[SourceManifest] = field(default_factory=list)
    packs: list[Packed] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def read(self, place: Path) -> None:
        try:
            self.sources.append(read_source(place))
        except (PackError, OSError, ValueError) as error:
            self.refused.append(f"{place}: {error}")


def find_card(name: str, manifests: Path | None = None) -> Card:
    """The card of a profile's name, whole or short ("NVIDIA H200", "H200"), in any case of letters.
    Raises UnknownCard."""
    named = _committed(manifests or manifests_dir())
    opened = discover.packs()
    listed = {pack.path: [p.name for p in pack.manifest.device_profiles] for pack in opened}
    profiles = sorted({each for some in (*named.values(), *listed.values()) for each in some})
    profile = match(name, profiles)
    places = _Places()
    for place, theirs in named.items():
        if profile in theirs:
            places.read(place)
    places.packs += [Packed(pack) for pack in opened]
    return _make(profile, places)


def is_committed(name: str) -> bool:
    """Whether a committed table has a profile of that name, whole or without the maker: then
    `find_card` finds it, in a hundredth of the time."""
    profiles = [each for some in _committed(manifests_dir()).values() for each in some]
    return _match_whole(name, profiles) is not None


def match(name: str, profiles: Sequence[str]) -> str:
    """The profile that a name means: the whole of it, the whole without the maker, or the first
    words of that. Raises UnknownCard."""
    whole = _match_whole(name, profiles)
    if whole is not None:
        return whole
    asked = name.casefold().split()
    words = {p: p.removeprefix(MAKER).casefold().split() for p in profiles}
    begun = [p for p, each in words.items() if asked and each[: len(asked)] == asked]
    if len(begun) == 1:
        return begun[0]
    known = ", ".join(f"{p} ({p.removeprefix(MAKER)})" for p in begun or profiles)
    if begun:
        raise UnknownCard(f"{name!r} may be any of: {known}")
    raise UnknownCard(f"no table has rows of a card {name!r}; known: {known or 'none'}")


def _match_whole(name: str, profiles: Sequence[str]) -> str | None:
    asked = name.casefold().split()
    for maker in ("", MAKER):
        for profile in profiles:
            if profile.removeprefix(maker).casefold().split() == asked:
                return profile
    return None


def _committed(folder: Path) -> dict[Path, list[str]]:
    """The committed tables, with the names of their profiles."""
    tables = sorted(path.parent for path in folder.glob("sm_*/*/pack.json"))
    return {place: _profiles(place) for place in tables}


def _profiles(place: Path) -> list[str]:
    """The names of profiles of a committed table; none of one that cannot be read."""
    try:
        document = json.loads((place / "pack.json").read_bytes())
        return [str(each["name"]) for each in document["device_profiles"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _make(profile: str, places: _Places) -> Card:
    ids: dict[Choice, str] = {}
    rows: dict[Problem, Named] = {}
    for source in places.sources:
        built = dict(_choices((k.id, k.family, k.genome) for k in source.kernels))
        ids |= {choice: id_ for id_, choice in built.items()}
        rows |= {**_rows(profile, source.table, built), **rows}
    kernels: dict[Choice, KnownKernel] = {}
    for pack in places.packs:
        entries = pack.entries.values()
        built = dict(_choices((e.id, e.family, e.genome) for e in entries))
        rows |= {**_rows(profile, pack.pack.manifest.table, built), **rows}
        for entry in entries:
            choice = built.get(entry.id)
            if choice is not None and ids.get(choice) == entry.id:
                read = partial(_read, pack, entry.name)
                kernels[choice] = KnownKernel(entry.id, read, pack_kernels.proof(entry))
    return Card(profile, rows, kernels, tuple(places.refused))


def _choices(
    kernels: Iterable[tuple[str, str, Mapping[str, int | str | bool]]],
) -> Iterator[tuple[str, Choice]]:
    for id_, family, genome in kernels:
        choice = complete_choice(family, genome)
        if choice is not None:
            yield id_, choice


def _rows(profile: str, table: Iterable[Row], built: Mapping[str, Choice]) -> dict[Problem, Named]:
    return {
        Problem(*row.key): Named(built.get(row.kernel or ""), built.get(row.dependent or ""))
        for row in table
        if row.profile == profile
    }


def _read(pack: Packed, name: str) -> Built:
    one = pack.kernel(name)
    return Built(pack.built_fields(one.id), one.cubin)
