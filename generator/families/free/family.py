"""Family sm90_free: a kernel of free source, whose genome is its lineage.

`csrc/kernels/free/` has NAME.cu, the device code, and NAME.json: the problem that the source was
written for, its launch record, and the one genome that is valid for it. Its genes are no choices.
They say which source it is, by name and by the sha256 of code and record, and where it came from,
so that manifest and pack say so of the kernel. `generate admit` writes both files. No search knows
the family, and the gates grant it no exception.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hgemm_packs.generator.families.base import Family, Genome, InvalidGenome
from hgemm_packs.generator.families.free import places
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.journal import problem_of

#: What a genome says beside layout and dtype. `by` is a model's name, or "hand"; `asked` names the
#: benchmark, or is the sha256 of the prompt; `parent` is the id of the kernel that was to be
#: beaten, or "none"; `judged` is the sha256 of the line with the verdicts of all gates.
LINEAGE = ("by", "asked", "parent", "judged")
GENES = ("layout", "dtype", "source", "sha256", *LINEAGE)
#: What a manifest lets a gene be.
_GENE = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Source(NamedTuple):
    """A committed source: whom it was written for, its genome, its launch record."""

    problem: Problem
    genome: dict[str, str]
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FreeFamily(Family):
    """Kernels that the sources make, each as it was judged."""

    def stem(self, genome: Genome) -> str:
        return f"{places.FREE}/{genome['source']}.cu"

    def validate(self, genome: Genome) -> None:
        """Raise InvalidGenome unless the genome is that of a committed source, and the source is
        the one that was judged."""
        if dict(genome) != read(str(genome.get("source"))).genome:
            raise InvalidGenome(f"{self.name}: not the genome that {genome['source']}.json has")


def names() -> list[str]:
    """Of all committed sources, in order."""
    return sorted(path.stem for path in (places.sources_dir() / places.FREE).glob("*.cu"))


def read(name: str) -> Source:
    """A committed source. Raises InvalidGenome where there is none, or where code or record are not
    those that were judged."""
    if not _NAME.fullmatch(name):
        raise InvalidGenome(f"{FAMILY.name}: {name!r} is no name of a source")
    folder = places.sources_dir() / places.FREE
    try:
        code = (folder / f"{name}.cu").read_bytes()
        document = json.loads((folder / f"{name}.json").read_bytes())
        problem = problem_of(*document["problem"])
        found = Source(problem, document["genome"], document["record"])
    except FileNotFoundError as error:
        raise InvalidGenome(f"{FAMILY.name}: no source {Path(error.filename).name}") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidGenome(f"{FAMILY.name}: {name}: {type(error).__name__}: {error}") from None
    genome = found.genome
    if (
        not isinstance(genome, dict)
        or {*genome} != {*GENES}
        or not all(map(_is_gene, genome.values()))
    ):
        raise InvalidGenome(f"{FAMILY.name}: {name}.json has no whole genome")
    if genome["source"] != name or genome["sha256"] != digest(code, found.record):
        words = f"{name}.cu or its launch record is not what was judged"
        raise InvalidGenome(f"{FAMILY.name}: {words}")
    return found


def _is_gene(value: object) -> bool:
    return isinstance(value, str) and _GENE.fullmatch(value) is not None


def digest(code: bytes, record: Mapping[str, Any]) -> str:
    """The sha256 of device code and launch record."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(code + b"\0" + text.encode()).hexdigest()


def _record(genome: Genome) -> dict[str, Any]:
    return dict(read(str(genome["source"])).record)


FAMILY = FreeFamily(
    name="sm90_free",
    source="",
    genes={"layout": ("nn", "nt", "tn", "tt"), "dtype": ("f16", "bf16")},
    check=lambda genome: None,
    macros=lambda genome: {},
    record=_record,
    operators={},
)
