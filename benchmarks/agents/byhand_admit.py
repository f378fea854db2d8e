"""Which sources of `benchmarks.agents.byhand` enter the folder of free sources: those that won.

The lines say who won. What they say is believed of the files that they were written of alone, and
only where every gate passed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.agents import byhand_problems
from benchmarks.agents.byhand_problems import Picked
from benchmarks.agents.byhand_session import digest
from hgemm_packs.generator.compile import free_sources
from hgemm_packs.generator.compile.candidate import CandidateError, load
from hgemm_packs.generator.compile.free_sources import Lineage
from hgemm_packs.generator.run import evaluate

Line = Mapping[str, Any]

BY, ASKED = "hand", "agents.byhand"


def admit(
    lines: Iterable[Line], picked: Sequence[Picked], kernels: Mapping[str, str]
) -> Iterator[str]:
    """What became of each source that was judged, in words; the winners are admitted. `kernels` has
    the ids of the table's kernels by name. Raises OSError."""
    # Of a source that was judged twice the later line counts.
    judged = {line["sha256"]: line for line in lines if line["stage"] == "gates"}
    for line in judged.values():
        try:
            yield f"{line['file']}: taken, sha256 {_admit(line, picked, kernels)}"
        except CandidateError as error:
            yield f"{line['file']}: refused: {error}"


def _admit(line: Line, picked: Sequence[Picked], kernels: Mapping[str, str]) -> str:
    """The sha256 of an admitted source. Raises CandidateError."""
    path = byhand_problems.KERNELS / line["file"]
    one = next((each for each in picked if str(each.problem) == line["problem"]), None)
    if one is None or not path.is_file() or digest(path) != line["sha256"]:
        raise CandidateError("the file is not the one that was judged")
    if not line["won"]:
        raise CandidateError(f"no win: {line['status']} {line['words']}")
    free_sources.check_gates(path.stem, line["gates"])
    text = json.dumps(line, sort_keys=True)
    parent = kernels.get(one.kernel or "", "none")
    lineage = Lineage(BY, ASKED, parent, hashlib.sha256(text.encode()).hexdigest())
    code, made = path.read_text(encoding="utf-8"), load(path)
    evaluate.check_again(path.stem, made)
    genome = free_sources.admit(path.stem, code, made, one.problem, lineage)
    return str(genome["sha256"])
