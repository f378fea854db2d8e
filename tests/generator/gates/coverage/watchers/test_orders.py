"""Faults in the order of whole kernels, of families and of free source, that races are seen by.

The story: a kernel that let one group of products more be in flight when it gave a stage back was
right on every GPU, as was one that gave back the stage beside it, or whose copies were waited for
by one lane where any lane may be chosen to copy. No tool sees what copy engine and tensor cores do.
"""

from __future__ import annotations

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.watchers import races
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate
from tests.generator.redteam.planted import planted

FEWER = "+      wgmma_wait<(kParts) + 1>();"
BESIDE = "release_by_warp(&barriers.ring.empty[(cursor.stage ^ 1)]"


@pytest.mark.parametrize(
    ("name", "text", "family"),
    [
        ("wait_for_fewer", FEWER, "sm90_swapab"),
        ("wait_for_fewer", FEWER, "sm90_splitk"),
        ("wait_for_fewer", FEWER, "sm90_batched"),
        ("wait_for_fewer", FEWER, "sm90_grouped"),
        ("wait_for_fewer", "+      wgmma_wait<(1) + 1>();", "sm90_unaligned"),
        ("wait_for_fewer", "cp.async.bulk.wait_group 1;", "sm90_batched"),
        ("wait_for_fewer", "cp.async.bulk.wait_group.read 2;", "sm90_writebound"),
        ("stage_off_by_one", BESIDE, "sm90_writebound"),
        ("wait_by_one", "barrier_wait(&barriers.empty", "sm90_splitk"),
        ("wait_by_one", "barrier_wait(&barriers.empty", "sm90_swapab"),
        ("turn_parity", "parity ^= rounds & 1;", "sm90_writebound"),
    ],
)
def test_a_fault_in_the_order_of_a_family_is_seen(name: str, text: str, family: str) -> None:
    """A stage is waited for, read to the end, given back and only then copied over; and a bulk
    store has read what it stores before that is staged over. Each of these was right on a GPU."""
    made = planted(name, text, family).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert gate.check(fields, made.source).detail.startswith("race: ")


CASES = {case.name: case for case in corpus.load()}


@pytest.mark.parametrize(
    "name",
    [
        "inbox_written_again",
        "inbox_read_from_afar",
        "tells_before_it_sends",
        "parts_met_few",
        "race_of_large_problems",
        "stores_meet_their_warp",
        "staged_over_the_ring",
        "inbox_over_a_ring_in_use",
        "oneshot_meets_by_half",
        "asks_for_a_stage_too_many",
        "leaves_before_its_inbox_is_full",
        "ring_by_a_table",
        "sent_sums_not_acquired",
        "race_in_the_middle",
        "staged_by_generic_addresses",
    ],
)
def test_races_of_whole_kernels_are_seen(name: str) -> None:
    verdict = evaluate.build_gates(CASES[name].candidate)[0][-1]
    assert verdict.gate == "coverage"
    assert verdict.detail.startswith((races.READS, races.WRITES, races.UNENDED))
