"""Mutants that tests plant themselves."""

from __future__ import annotations

from hgemm_packs.generator.compile.candidate import Candidate
from hgemm_packs.generator.redteam.mutation import bases, draw
from hgemm_packs.generator.redteam.mutation.code import Code
from hgemm_packs.generator.redteam.mutation.operators import OPERATORS
from hgemm_packs.generator.redteam.mutation.operators.base import Honest, InSource

BY_NAME = {operator.name: operator for operator in OPERATORS}


def planted(
    name: str, text: str, family: str = "sm90_direct", base: Honest | None = None
) -> draw.Mutant:
    """The first change of an operator, in whose lines `text` stands, to a kernel of the family or
    to this one."""
    operator, base = BY_NAME[name], base or bases.draw(1, 0, family)
    assert isinstance(operator, InSource)
    code = Code(base.source)
    for change in operator.find(code):
        diff = tuple(code.diff(change))
        if any(text in one for one in diff):
            made = Candidate(code.apply(change), base.fields)
            return draw.Mutant(1, 0, name, operator.kind, base, "", 1, diff, made)
    raise AssertionError(f"{name} has no place with {text!r}")
