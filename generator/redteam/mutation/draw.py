"""Which fault the number of a seed plants, and where: the same at every time and place.

Operators take turns by the number; in a turn each family has one honest kernel. The first of the
families, in an order that is drawn, in whose kernel the operator has a place gets the fault; where
there is none, kernels of turns far off are asked.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import Candidate
from hgemm_packs.generator.families import family
from hgemm_packs.generator.redteam.mutation import bases
from hgemm_packs.generator.redteam.mutation.code import Code
from hgemm_packs.generator.redteam.mutation.operators import OPERATORS, Operator
from hgemm_packs.generator.redteam.mutation.operators.base import (
    Fields,
    Honest,
    InGenome,
    InRecord,
    InSource,
)

MOST_TURNS, LATER = 16, 10_000  # turns that are asked, and how far apart
RECORD, GENOME = "record", "genome"  # places that are no lines


class NoPlace(LookupError):
    """An operator has no place in any kernel that it was tried on."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with a fault. `line` is that of the rendered source, 0 where the fault is elsewhere;
    `where` the function, or RECORD or GENOME; `diff` the lines that changed, before and after;
    `own` the record that its code is made for, None where the code itself was changed."""

    seed: int
    number: int
    operator: str
    kind: str
    base: Honest
    where: str
    line: int
    diff: tuple[str, ...]
    candidate: Candidate
    own: Fields | None = None

    @property
    def honest(self) -> Candidate:
        """The honest kernel whose bits it must have: what it was made of, or, where its code is
        another kernel's as a whole, that kernel as its own record launches it."""
        if self.own is None:
            return Candidate(self.base.source, self.base.fields)
        named = {name: self.base.fields[name] for name in ("name", "symbol")}
        return Candidate(self.candidate.source, {**self.own, **named})

    def document(self) -> dict[str, Any]:
        """What a line says of it."""
        fields = self.base.fields
        named = {name: fields[name] for name in ("layout", "dtype", "epilogue")}
        return {
            "number": self.number,
            "operator": self.operator,
            "kind": self.kind,
            "family": self.base.choice.family,
            **named,
            "genome": self.base.choice.genome,
            "where": self.where,
            "line": self.line,
            "diff": list(self.diff),
        }


def draw(seed: int, number: int) -> Mutant:
    """Mutant `number` of a seed. Raises NoPlace."""
    turn, at = divmod(number, len(OPERATORS))
    operator, dice = OPERATORS[at], random.Random(f"{seed} number {number}")
    for further in range(turn, turn + MOST_TURNS * LATER, LATER):
        for name in dice.sample(bases.EVERY, len(bases.EVERY)):
            made = plant(operator, bases.draw(seed, further, name), seed, number, dice)
            if made is not None:
                return made
    raise NoPlace(
        f"{operator.name} has no place in the kernels of {MOST_TURNS} turns of seed {seed}"
    )


def plant(
    operator: Operator, base: Honest, seed: int, number: int, dice: random.Random
) -> Mutant | None:
    """A fault of the operator in this kernel, None where it has no place."""
    own: Fields | None = None
    if isinstance(operator, InSource):
        code = _code(base.source)
        changes = list(operator.find(code))
        if not changes:
            return None
        change = dice.choice(changes)
        where, line = code.function_at(change.start), code.line(change.start)
        diff, made = tuple(code.diff(change)), Candidate(code.apply(change), base.fields)
    elif isinstance(operator, InRecord):
        others = list(operator.find(base.fields))
        if not others:
            return None
        path, value = dice.choice(others)
        where, line, diff = (
            RECORD,
            0,
            (f"-{path}: {value_at(base.fields, path)}", f"+{path}: {value}"),
        )
        made, own = Candidate(base.source, with_value(base.fields, path, value)), base.fields
    else:
        found = _of_another(operator, base, dice)
        if found is None:
            return None
        where, line, (diff, made, own) = GENOME, 0, found
    return Mutant(seed, number, operator.name, operator.kind, base, where, line, diff, made, own)


@lru_cache(maxsize=64)
def _code(source: str) -> Code:
    return Code(source)


def _of_another(
    operator: InGenome, base: Honest, dice: random.Random
) -> tuple[tuple[str, ...], Candidate, Fields] | None:
    """The kernel of another genome under the base's name and record, and the record of its own."""
    choice = bases.other(base, operator.genes, dice)
    if choice is None:
        return None
    source = compiler.render(choice.family, choice.genome)
    own, symbol = (family(c.family).kernel_name(c.genome) for c in (choice, base.choice))
    had, has = base.choice.genome, choice.genome
    diff = tuple(
        f"{sign}{gene}: {genome[gene]}"
        for gene in had
        if had[gene] != has[gene]
        for sign, genome in (("-", had), ("+", has))
    )
    fields = family(choice.family).fields(choice.genome)
    return diff, Candidate(source.replace(own, symbol), base.fields), fields


def value_at(fields: Mapping[str, Any], path: str) -> Any:
    """The value of a field of a record; None where the record leaves it out."""
    value: Any = fields
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value.get(name)
    return value


def with_value(fields: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The record with another value of one field."""
    made = copy.deepcopy(dict(fields))
    *way, last = path.split(".")
    place: Any = made
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[int(last) if isinstance(place, list) else last] = value
    return made
