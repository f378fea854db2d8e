"""What a run of mutants says: the share that the gates caught, by gate, kind, operator and
family, and what slipped through by name.

The rule of equivalence: a mutant is equivalent where its instructions and its record are the honest
kernel's byte by byte; or where every gate passed it, no bit was seen to differ on any problem of
theirs and of a wider draw, and `argued.toml` says why none can. All others that were planted count,
also those that were only not seen to differ.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hgemm_packs.generator.redteam.mutation import judge
from hgemm_packs.generator.redteam.mutation.judge import SLIPPED, UNDECIDED, UNSEEN, Line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ARGUED = "equivalent, argued"
#: Words of a mutant that got through, in this order.
NAMED = ("number", "operator", "kind", "family", "layout", "dtype", "epilogue", "where", "line")


@dataclass(frozen=True, slots=True)
class Argument:
    """Why a change cannot change a result: of this operator, where all of `before` stands in the
    lines that it changes, and all of `after` in those that come in their place, if it `falls` where
    the number behind that becomes smaller, where the kernel has the genes of `genome` (`computes`
    is "none" of a plain one), in the function `where` and of the family `family`, in any if these
    are empty."""

    operator: str
    before: str
    reason: str
    after: str = ""
    falls: bool = False
    genome: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    family: str = ""

    def holds(self, line: Line) -> bool:
        """Whether the change of a line is such a one."""
        was, now = (
            "\n".join(text for text in line["diff"] if text.startswith(sign)) for sign in "-+"
        )
        if self.operator != line["operator"] or self.before not in was or self.after not in now:
            return False
        if self.where not in ("", line["where"]) or self.family not in ("", line["family"]):
            return False
        if not self.genome.items() <= {"computes": "none", **line.get("genome", {})}.items():
            return False
        numbers = [text.rpartition(" ")[2] for text in line["diff"]]
        return not self.falls or int(numbers[1]) < int(numbers[0])


@cache
def arguments() -> tuple[Argument, ...]:
    """All of argued.toml. Raises TypeError for an entry that lacks a field or has another."""
    path = Path(__file__).resolve().parent / "argued.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(Argument(**entry) for entry in document.get("argument", ()))


def outcome_of(line: Line) -> str:
    """What became of a mutant, arguments counted: ARGUED only where no bit was seen to differ."""
    outcome = str(line["outcome"])
    if outcome != UNSEEN:
        return outcome
    return ARGUED if any(argument.holds(line) for argument in arguments()) else outcome


def document(lines: Iterable[Line], seed: int) -> dict[str, Any]:
    """The JSON form. `caught_share` is of what was planted, undecided mutants with it."""
    listed = [line | {"outcome": outcome_of(line)} for line in lines]
    planted = [line for line in listed if is_planted(line)]
    outcomes = Counter(line["outcome"] for line in listed)
    return {
        "seed": seed,
        "drawn": len(listed),
        **_sums(planted),
        "not_planted": {name: outcomes[name] for name in (*judge.NOT_PLANTED, ARGUED)},
        "by": {
            name: {value: _sums(some) for value, some in _groups(planted, name).items()}
            for name in ("kind", "operator", "family", "layout", "dtype", "epilogue")
        },
        "operators": _yields(listed),
        "through": [
            {name: line[name] for name in (*NAMED, "outcome", "detail", "diff")}
            for line in planted
            if line["outcome"] in (SLIPPED, UNSEEN)
        ],
        "seconds": {
            name: round(sum(line.get(name, 0.0) for line in listed), 1)
            for name in ("seconds", "gpu_seconds")
        },
    }


def is_planted(line: Line) -> bool:
    """Whether a mutant counts as a fault."""
    return line["outcome"] not in (*judge.NOT_PLANTED, ARGUED)


def _sums(planted: list[Line]) -> dict[str, Any]:
    outcomes = Counter(line["outcome"] for line in planted)
    gates = Counter(line["gate"] for line in planted if line["outcome"] == judge.CAUGHT)
    caught = outcomes[judge.CAUGHT]
    return {
        "planted": len(planted),
        "caught": caught,
        "caught_share": round(caught / len(planted), 4) if planted else None,
        **{name: outcomes[name] for name in (SLIPPED, UNSEEN, UNDECIDED)},
        "by_gate": dict(gates.most_common()),
    }


def _groups(lines: Iterable[Line], name: str) -> Mapping[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(str(line[name]), []).append(line)
    return dict(sorted(found.items()))


def _yields(lines: Iterable[Line]) -> dict[str, dict[str, int]]:
    """By operator, how many mutants ended how."""
    known = [line for line in lines if "operator" in line]
    return {
        name: dict(sorted(Counter(line["outcome"] for line in some).items()))
        for name, some in _groups(known, "operator").items()
    }
