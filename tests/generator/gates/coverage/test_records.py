"""A record that promises what no launch has, or what its kernel does not do, is refused.

The story: mutants of groups and batches said that an operand lies at 2 bytes, of which no tensor
map is made, or that K is a multiple of 4, whose packed rows no launch takes. No gate saw it, for
their gates on a GPU lay all operands at 16 bytes and take sizes in steps of 8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.redteam.mutation import bases
from hgemm_packs.generator.redteam.mutation.draw import with_value

pytestmark = pytest.mark.usefixtures("kept")


@cache
def built(family: str) -> tuple[str, dict[str, Any]]:
    """A source of a family and the fields of its kernel."""
    base = bases.draw(1, 0, family)
    return base.source, compiler.build_source(base.source, base.fields).entry_fields


FOURS = {"min": 4, "max": 1 << 24, "multiple_of": 4}


@pytest.mark.parametrize(
    ("family", "path", "value", "words"),
    [
        ("sm90_grouped", "align.a", 8, "align: no tensor map is made of A at 8 bytes"),
        ("sm90_grouped", "align.b", 2, "align: no tensor map is made of B at 2 bytes"),
        ("sm90_grouped", "align.c", 2, "align: 16 bytes of C at once in 'st.global.v4"),
        ("sm90_grouped", "dims.k", FOURS, "dims: packed lines of A are 8 bytes apart"),
        ("sm90_grouped", "dims.n", FOURS, "dims: packed lines of C are 8 bytes apart"),
        ("sm90_batched", "align.b", 4, "align: no tensor map is made of B at 4 bytes"),
        ("sm90_batched", "dims.n", FOURS, "dims: packed lines of C are 8 bytes apart"),
    ],
)
def test_a_record_promises_what_launches_have(
    family: str, path: str, value: Any, words: str
) -> None:
    source, fields = built(family)
    assert gate.check(fields, source).status is Status.OK
    verdict = gate.check(with_value(fields, path, value), source)
    assert verdict.status is Status.COVERAGE
    assert words in verdict.detail
