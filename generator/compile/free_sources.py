"""A source that won enters the folder of free sources, with its launch record and its lineage.

Called by `generate admit` and by `benchmarks.agents.byhand`. Being here is no place in a table: a
run measures the kernel by the protocol of every other (`generate measure free`), and the row
follows from that run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.candidate import Candidate, CandidateError, entry
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.families.free import places
from hgemm_packs.generator.families.free.family import digest, names, read
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.journal import problem_values

#: Gates that a source has passed before it is admitted. A GPU's are among them.
GATES = ("static", "build", "binary", "dataflow", "coverage", "numeric", "state", "sanitizer")
#: Fields of a candidate that the family says of its kernels itself.
_OF_FAMILY = ("name", "family", "genome")
#: What a manifest lets no gene have, as the "/" of a model's name.
_NO_GENE = re.compile(r"[^A-Za-z0-9_.+-]")


class Lineage(NamedTuple):
    """Where a source came from: genes of the same names, see `families.free.family`."""

    by: str
    asked: str
    parent: str
    judged: str


def check_gates(name: str, statuses: Mapping[str, str]) -> None:
    """Raise CandidateError unless every one of GATES has passed: status by gate."""
    for gate in GATES:
        status = statuses.get(gate, "was not asked")
        if status != "OK":
            raise CandidateError(f"{name}: the {gate} gate: {status}")


def admit(name: str, code: str, made: Candidate, problem: Problem, lineage: Lineage) -> Genome:
    """Write NAME.cu and NAME.json, and return the genome of the kernel. `made` is the candidate of
    `code`. A source that is there already stays as it is, with the lineage that it came with.

    Raises CandidateError for a source that does not take the problem, that computes more than a
    product, or whose name another source has, InvalidGenome where that one is damaged; OSError.
    """
    record = {key: value for key, value in made.fields.items() if key not in _OF_FAMILY}
    if record["epilogue"] != "none":
        raise CandidateError(f"{name}: free sources compute products alone")
    unfit = entry(made.fields).admits(problem)
    if unfit is not None:
        raise CandidateError(f"{name}: {unfit.text}")
    genome = {
        "layout": problem.layout,
        "dtype": problem.dtype,
        "source": name,
        "sha256": digest(code.encode(), record),
        **{gene: _NO_GENE.sub("_", value)[:64] for gene, value in lineage._asdict().items()},
    }
    folder = places.sources_dir() / places.FREE
    folder.mkdir(exist_ok=True)
    document = {"problem": problem_values(problem), "genome": genome, "record": record}
    # The code comes last: without it there is no source of the name.
    files = {
        folder / f"{name}.json": (json.dumps(document, indent=1) + "\n").encode(),
        folder / f"{name}.cu": code.encode(),
    }
    if name in names():
        there = read(name).genome
        if there["sha256"] != genome["sha256"]:
            raise CandidateError(f"{name}: another source has the name: none is changed")
        return there
    for path, data in files.items():
        write_atomically(path, data)
    return read(name).genome
