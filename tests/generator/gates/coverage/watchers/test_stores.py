"""A bulk store has read what it stores before that is staged over, and before its CTA ends.

The story: a kernel that waited for all but one of its bulk stores before it ended was right on
every GPU, and its shared memory was the next CTA's while the copy engine still read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.watchers import stores
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from tests.generator.redteam.planted import planted


@pytest.mark.parametrize(
    ("text", "family", "words"),
    [
        ("cp.async.bulk.wait_group 1;", "sm90_batched", stores.UNENDED),
        ("cp.async.bulk.wait_group.read 2;", "sm90_writebound", stores.FLYING),
    ],
)
def test_one_who_waits_for_a_store_fewer_is_refused(text: str, family: str, words: str) -> None:
    made = planted("wait_for_fewer", text, family).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert words in gate.check(fields, made.source).detail


BOX = 128


class Fixed(NamedTuple):
    """A frame whose addresses are all alike."""

    address: int | None

    def sum(self, operand: Operand) -> Any:
        return None if self.address is None else np.array([self.address])


def ins(at: int, *words: str, count: int = 0) -> Instruction:
    operands = (Operand("address"),) if words[0] in ("st", "cp") else ()
    if "wait_group" in words:
        operands = (Operand("number", value=count),)
    return Instruction(at, words, operands, "", False, ".".join(words))


STORE = ("cp", "async", "bulk", "tensor", "2d", "global", "shared::cta", "bulk_group")
COMMIT = ("cp", "async", "bulk", "commit_group")
WAIT = ("cp", "async", "bulk", "wait_group", "read")
STAGE, MEET = ("st", "shared", "v4", "u32"), ("bar", "sync")
GENERIC = ("st", "v4", "u32")
FIRST, SECOND = 0, BOX
STORED = [(STORE, FIRST), (COMMIT, None)]
BOTH = [*STORED, (STORE, SECOND), (COMMIT, None)]
ENDED = (WAIT, 0)


@pytest.mark.parametrize(
    ("done", "words"),
    [
        ([*STORED, ENDED], ""),
        (STORED, stores.UNENDED),
        ([*BOTH, (WAIT, 1)], stores.UNENDED),
        ([*STORED, (STAGE, FIRST + BOX - 16), ENDED], stores.FLYING),
        ([*STORED, (GENERIC, FIRST + BOX - 16), ENDED], stores.FLYING),
        ([*STORED, (STAGE, FIRST + BOX), ENDED], ""),
        ([*STORED, ENDED, (STAGE, FIRST)], stores.UNMET),
        ([*STORED, ENDED, (MEET, None), (STAGE, FIRST)], ""),
        ([*BOTH, (WAIT, 1), (MEET, None), (STAGE, FIRST), ENDED], ""),
        ([*BOTH, (WAIT, 1), (MEET, None), (STAGE, SECOND), ENDED], stores.FLYING),
        ([STORED[0], ENDED, (MEET, None), (STAGE, FIRST), (COMMIT, None), ENDED], stores.FLYING),
    ],
)
def test_what_the_thread_of_a_store_may_do_and_when(done: list[Any], words: str) -> None:
    seen = stores.Stores(np.arange(64) % 32, BOX)
    for at, (opcode, number) in enumerate(done):
        is_wait = opcode is WAIT
        one = ins(at, *opcode, count=number if is_wait else 0)
        who = np.array([32]) if opcode in (STORE, COMMIT, WAIT) else np.arange(64)
        seen(one, who, Fixed(None if is_wait else number))  # type: ignore[arg-type]
    assert [each.partition(" in '")[0] for each in seen.faults()] == ([words] if words else [])
