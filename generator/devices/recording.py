"""Recorded exhaustive screens: every admitted choice of a catalogue on each of some problems, in
one compressed file.

Written once from a sweep on a GPU, read by the replay. A file carries its own list of choices and
a digest of it, so that times can never be taken for those of another catalogue. Genomes that are
older than some of their family's genes are completed as they are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.space import catalogue
from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.families import FAMILIES, Genome, computed
from hgemm_packs.problem import Problem

SCHEMA = "hgemm-packs/recording-1"
SAMPLES = 3
#: A time is kept as the whole number nearest to STEPS * log2(us), plus ZERO: within 0.034%.
STEPS = 1024
ZERO = 16 * STEPS
#: Genes that came after measurements were kept, with the value that says what kernels did before;
#: not those that names leave out, which a family adds itself.
ADDED: Mapping[str, Genome] = {
    "sm90_wgmma": {"bulk_blocks": 1},
    "sm90_direct": {"fixed_k": 0, "cluster_k": 1},
    "sm90_splitk": {"run": 0},
}
#: Genes that are no more, with genes of the kernels that are the same without them. Sums over
#: slices go another way today, so times with more than one slice are of kernels that are gone;
#: with one there is no such sum, and dropping the gene left every instruction as it was.
DROPPED: Mapping[str, Mapping[str, Genome]] = {
    "sm90_splitk": {"reduce": {"reduce": "last", "slices": 1}}
}
STATUSES = tuple(Status)
ABSENT = np.iinfo(np.int16).min

Times = NDArray[np.float64]
Kind = tuple[str, str]  # layout and dtype


class StaleRecording(ValueError):
    """The catalogue is not the one that was recorded."""


@dataclass(frozen=True)
class Screen:
    """One problem: `samples` in us, a row a choice, NaN behind the last; `status` is OK where there
    is any. `baselines` and `again` are the samples of a second measurement, interleaved, of torch
    and cuBLASLt and of the best few choices."""

    problem: Problem
    choices: tuple[Choice, ...]
    samples: Times
    status: tuple[Status, ...]
    baselines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    again: Mapping[Choice, Sequence[float]] = field(default_factory=dict)

    @cached_property
    def row(self) -> dict[Choice, int]:
        """Where in `choices` a choice is."""
        return {choice: i for i, choice in enumerate(self.choices)}

    @cached_property
    def us(self) -> Times:
        """Each choice's median sample, which stands for its true time; infinite if it failed."""
        result = np.full(len(self.choices), np.inf)
        worked = np.isfinite(self.samples[:, 0])
        result[worked] = np.nanmedian(self.samples[worked], axis=1)
        return result

    def optimum(self) -> tuple[Choice, float]:
        """The fastest choice and its time in us. Raises ValueError when all failed."""
        best = int(np.argmin(self.us))
        if not np.isfinite(self.us[best]):
            raise ValueError(f"no kernel worked on {self.problem}")
        return self.choices[best], float(self.us[best])


def digest(choices: Sequence[Choice]) -> str:
    """sha256 over the keys of choices, in order."""
    return hashlib.sha256("\n".join(choice.key for choice in choices).encode()).hexdigest()


def complete_choice(family_name: str, genome: Genome) -> Choice | None:
    """The choice that a measured genome is today: with the genes that it is too old to have and
    without those that are no more; None where no kernel of today is the one that was measured."""
    if family_name not in FAMILIES:
        return None
    whole = FAMILIES[family_name].whole({**ADDED.get(family_name, {}), **genome})
    for gene, same in DROPPED.get(family_name, {}).items():
        if whole.items() >= same.items():
            del whole[gene]
    known = whole.keys() - {computed.COMPUTES} == FAMILIES[family_name].genes.keys()
    return Choice.of(family_name, whole) if known else None


def save(
    path: str | os.PathLike[str], screens: Sequence[Screen], listed: Mapping[Kind, Sequence[Choice]]
) -> None:
    """Write screens. `listed` gives, per layout and dtype, the catalogue that was measured.

    Raises ValueError for a choice outside `listed`, a repeated problem or a time outside 2^-16 to
    2^47 us.
    """
    if len({screen.problem for screen in screens}) != len(screens):
        raise ValueError("a problem was recorded twice")
    numbers = {kind: {c: i for i, c in enumerate(choices)} for kind, choices in listed.items()}
    header: dict[str, Any] = {"schema": SCHEMA, "sha256": {}, "kinds": [], "problems": []}
    arrays: dict[str, NDArray[Any]] = {}
    for kind, choices in listed.items():
        header["sha256"]["/".join(kind)] = digest(choices)
        for family_name, genes, rows in _blocks(choices):
            name = f"genes{len(arrays)}"
            arrays[name] = rows
            block = {"family": family_name, "genes": genes, "rows": name}
            header["kinds"].append({"kind": kind, "block": block})
    parts = []
    for screen in screens:
        number = numbers[screen.problem.layout, screen.problem.dtype]
        if not number.keys() >= screen.row.keys() | screen.again.keys():
            raise ValueError(f"{screen.problem}: a choice outside the catalogue")
        parts.append(_pack_screen(screen, number))
        header["problems"].append(_describe_screen(screen, number))
    for name in ("gaps", "status", "first", "rest"):
        arrays[name] = np.concatenate([part[name] for part in parts])
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: str | os.PathLike[str], *, any_catalogue: bool = False) -> dict[Problem, Screen]:
    """The screens of a file, in its order, genomes as `complete_choice` has them, without those
    that are none today.

    Raises StaleRecording when `catalogue` no longer lists the recorded choices, unless
    `any_catalogue`, and ValueError for a file that is no recording or contradicts its digest, which
    is of the genomes as they were recorded.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header"].tobytes()) if "header" in arrays else {}
    if header.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no {SCHEMA}")
    listed: dict[Kind, list[Choice]] = {}
    for entry in header["kinds"]:
        choices = listed.setdefault((entry["kind"][0], entry["kind"][1]), [])
        choices += _unpack_choices(entry["block"], arrays)
    for kind, choices in listed.items():
        recorded = header["sha256"]["/".join(kind)]
        if digest(choices) != recorded:
            raise ValueError(f"{path}: the {'/'.join(kind)} choices contradict their digest")
        if not any_catalogue and digest(catalogue(*kind)) != recorded:
            raise StaleRecording(
                f"{path}: the {'/'.join(kind)} catalogue has changed since this was recorded "
                f"({len(catalogue(*kind))} choices now, {len(choices)} then); record it anew, or "
                "load with any_catalogue"
            )
    today = {
        kind: [complete_choice(choice.family, choice.genome) for choice in choices]
        for kind, choices in listed.items()
    }
    screens, at = {}, 0
    for entry in header["problems"]:
        problem = Problem(*entry["problem"])
        part = slice(at, at + entry["count"])
        named = today[problem.layout, problem.dtype]
        screens[problem] = _screen(problem, entry, named, arrays, part)
        at = part.stop
    return screens


def _blocks(choices: Sequence[Choice]) -> Iterator[tuple[str, dict[str, Any], NDArray[np.uint8]]]:
    """Runs of one family: its genes with their values, and a row of value numbers a choice."""
    start = 0
    while start < len(choices):
        name = choices[start].family
        end = start
        while end < len(choices) and choices[end].family == name:
            end += 1
        genomes = [choice.genome for choice in choices[start:end]]
        genes = {gene: list(dict.fromkeys(g[gene] for g in genomes)) for gene in genomes[0]}
        rows = [[genes[gene].index(g[gene]) for gene in genes] for g in genomes]
        yield name, genes, np.array(rows, dtype=np.uint8)
        start = end


def _unpack_choices(block: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[Choice]:
    genes = block["genes"]
    return [
        Choice.of(
            block["family"],
            {gene: genes[gene][i] for gene, i in zip(genes, row, strict=True)},
        )
        for row in arrays[block["rows"]].tolist()
    ]


def _pack_screen(screen: Screen, number: Mapping[Choice, int]) -> dict[str, NDArray[Any]]:
    """Compressible columns: steps between choice numbers, the first sample, the others against
    it."""
    order = sorted(range(len(screen.choices)), key=lambda i: number[screen.choices[i]])
    samples = screen.samples[order]
    numbers = np.array([number[screen.choices[i]] for i in order], dtype=np.int64)
    worked = np.isfinite(samples)
    if np.any(samples[worked] <= 0):
        raise ValueError(f"{screen.problem}: a time of zero or less")
    codes = np.zeros(samples.shape, dtype=np.int64)
    codes[worked] = np.rint(STEPS * np.log2(samples[worked])).astype(np.int64) + ZERO
    if np.any((codes[worked] <= 0) | (codes[worked] > np.iinfo(np.uint16).max)):
        raise ValueError(f"{screen.problem}: a time that cannot be kept")
    rest = np.where(worked[:, 1:], codes[:, 1:] - codes[:, :1], ABSENT)
    return {
        "gaps": np.diff(numbers, prepend=-1).astype(np.uint16),
        "status": np.array([STATUSES.index(screen.status[i]) for i in order], dtype=np.uint8),
        "first": codes[:, 0].astype(np.uint16),
        "rest": rest.astype(np.int16),
    }


def _describe_screen(screen: Screen, number: Mapping[Choice, int]) -> dict[str, Any]:
    p = screen.problem
    return {
        "problem": [p.m, p.n, p.k, p.layout, p.dtype],
        "count": len(screen.choices),
        "baselines": {name: list(us) for name, us in screen.baselines.items()},
        "again": [[number[choice], list(us)] for choice, us in screen.again.items()],
    }


def _screen(
    problem: Problem,
    entry: Mapping[str, Any],
    listed: Sequence[Choice | None],
    arrays: Mapping[str, NDArray[Any]],
    part: slice,
) -> Screen:
    numbers = np.cumsum(arrays["gaps"][part].astype(np.int64)) - 1
    first = arrays["first"][part].astype(np.float64)[:, None]
    rest = arrays["rest"][part].astype(np.float64)
    codes = np.hstack([first, np.where(rest == ABSENT, np.nan, first + rest)])
    codes[arrays["first"][part] == 0] = np.nan
    status = arrays["status"][part]
    kept = [(row, choice) for row, i in enumerate(numbers) if (choice := listed[i])]
    rows = [row for row, _ in kept]
    return Screen(
        problem=problem,
        choices=tuple(choice for _, choice in kept),
        samples=np.exp2((codes[rows] - ZERO) / STEPS),
        status=tuple(STATUSES[status[row]] for row in rows),
        baselines={name: tuple(us) for name, us in entry["baselines"].items()},
        again={choice: tuple(us) for i, us in entry["again"] if (choice := listed[i])},
    )
