"""What goes on behind a thread's back is over before something else begins. No tool sees these
races, and each of these kernels passed every gate: on a GPU it is right nearly always."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.dataflow import gate
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.redteam.mutation.draw import Mutant
from tests.generator.gates.dataflow.snippets import check
from tests.generator.redteam.planted import planted

pytestmark = pytest.mark.usefixtures("kept")


BAD = {
    "stages_given_back_unread": "product: may still read the stage that is given back by 'mbarrier",
    "staged_over_a_store": "store: a bulk store may still read what is staged over by 'stmatrix",
    "ends_before_its_stores": "store: the CTA may end before it is done: 'cp.async.bulk.tensor",
    "stores_before_others_have_staged": "store: other warps may still stage what is stored by 'cp",
    "ends_before_its_partner": "cluster: another CTA that may have ended in 'cp.async.bulk",
    "begins_before_its_partner": "cluster: another CTA that may not have begun in 'cp.async.bulk",
    "meets_without_a_release": "cluster: no release behind what was stored before 'barrier",
}


@pytest.mark.parametrize(("name", "told"), BAD.items())
def test_what_begins_too_early_is_refused(name: str, told: str) -> None:
    one = next(each for each in corpus.load() if each.name == name).candidate
    assert one is not None
    ptx = compiler._compile(one.source, str(one.fields["symbol"]))[2]
    verdict = gate.check_ptx(one.fields, ptx)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(told)


OUT = "cvt.rn.f16x2.f32 %r99, %f2, %f1;"
STORE = "st.shared.u32 [%r8], %r99;"
FENCE = "fence.proxy.async;"
BULK = "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r7], 256;"
WAIT = "cp.async.bulk.wait_group.read 0;"
FIRST = "setp.eq.u32 %p1, %r5, 0; @!%p1 bra $L1;"
LOOP = "$L0: {} setp.lt.s32 %p2, %r4, 99; @%p2 bra $L0;"


@pytest.mark.parametrize(
    "put",
    [
        f"{OUT} {STORE} {FENCE} bar.sync 0; {FIRST} {BULK} {WAIT} $L1:",
        # One thread stores and waits, in the same branch or in another by the same number.
        f"{OUT} {STORE} {FENCE} bar.sync 0; {FIRST} {BULK} $L1: @%p1 {WAIT}",
        f"{OUT}"
        + LOOP.format(f"{STORE} {FENCE} bar.sync 0; {FIRST} {BULK} {WAIT} $L1: bar.sync 0;"),
        # What is staged elsewhere may go on.
        f"{OUT} {STORE} {FENCE} bar.sync 0; {FIRST} {BULK} st.shared.u32 [%r10], %r99; {WAIT} $L1:",
    ],
)
def test_a_store_that_is_waited_for_passes(put: str) -> None:
    assert check(sums=put).detail == ""


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (f"{OUT} {STORE} {FENCE} bar.sync 0; {FIRST} {BULK} $L1:", "store: the CTA may end"),
        (
            f"{OUT} {STORE} {FENCE} bar.sync 0; {FIRST} {BULK} $L1: @!%p1 {WAIT}",
            "store: the CTA may end",
        ),
        (
            f"{OUT}" + LOOP.format(f"{STORE} {FENCE} bar.sync 0; {FIRST} {BULK} $L1:") + WAIT,
            "store: a bulk store may still read what is staged over by 'st.shared",
        ),
        (f"{OUT} {STORE} {FENCE} {FIRST} {BULK} {WAIT} $L1:", "store: other warps may still stage"),
    ],
)
def test_a_store_that_is_not_waited_for_is_refused(put: str, told: str) -> None:
    verdict = check(sums=put)
    assert verdict.status is Status.DATAFLOW
    assert told in verdict.detail


COPY, COMMIT = "cp.async.cg.shared.global [%r8], [%rd1], 16;", "cp.async.commit_group;"
TOLD = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r10];"
ASKED = "$L8: mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r10], 0; @!%p8 bra $L8;"
DONE, ALL_DONE = "cp.async.wait_group 1;", "cp.async.wait_group 0;"


@pytest.mark.parametrize(
    "put",
    [
        f"{COPY} {COMMIT} {COPY} {COMMIT} {DONE} {ALL_DONE} {ALL_DONE}",
        f"{COPY} {COMMIT} " + LOOP.format(f"{COPY} {COMMIT} {DONE}"),
        # The first rounds of a loop do not wait.
        LOOP.format(f"{COPY} {COMMIT} setp.lt.s32 %p3, %r4, 9; @%p3 bra $L3; {DONE} $L3:"),
        # Those threads that copy wait.
        f"{FIRST} {COPY} {COMMIT} {COPY} {COMMIT} $L1: @!%p1 bra $L2; {DONE} $L2:",
        LOOP.format(f"{ASKED} {COPY} {COPY} {TOLD}"),
        LOOP.format(f"{ASKED} {COPY} {COMMIT} cp.async.wait_all;"),
    ],
)
def test_each_wait_for_copies_is_for_some(put: str) -> None:
    assert "copies:" not in check(operands=put).detail


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (
            f"{COPY} {COMMIT} {DONE}",
            "copies: none that is not done already is waited for by 'cp",
        ),
        (f"{COPY} {COMMIT} {COPY} {COMMIT} {DONE} {DONE} {ALL_DONE}", "copies: none that is not"),
        (LOOP.format(f"{COPY} {COMMIT} {DONE}"), "copies: none that is not done already"),
        (
            LOOP.format(f"{ASKED} {COPY} {TOLD} {COPY}"),
            "copies: on some path no barrier is told of them before 'mbarrier.try_wait",
        ),
    ],
)
def test_a_wait_for_no_copies_and_copies_that_nobody_is_told_of(put: str, told: str) -> None:
    assert told in check(operands=put).detail


def test_each_warp_that_stores_waits() -> None:
    """The first of two warpgroups waited for its bulk stores, the second ended ahead of them."""
    text = "threadIdx.x % 129 == 0) store_wait"
    told = detail_of(planted("constant_off_by_one", text, "sm90_writebound"))
    assert told.startswith("store: the CTA may end before it is done: 'cp.async.bulk.tensor")


def detail_of(mutant: Mutant) -> str:
    made = mutant.candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    return gate.check(fields, made.source).detail
