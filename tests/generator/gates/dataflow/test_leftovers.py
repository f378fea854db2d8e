"""PTX that keeps something from launch to launch, by rule. That no honest kernel does is tested
with the corpus."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.gates.dataflow.program import leftovers
from hgemm_packs.generator.gates.dataflow.program.parse import parse
from tests.generator.gates.dataflow.snippets import check


def faults(body: str, finishes: bool = False, family: bool = True) -> list[str]:
    text = f"""
.visible .entry kernel(.param .u64 p0, .param .u32 p1)
{{
.shared .align 8 .b8 bar[64];
ld.param.u64 %rd1, [p0];
ld.param.u32 %r1, [p1];
mov.u32 %r2, bar;
setp.eq.s32 %p1, %r1, 7;
{body}
ret;
}}
"""
    return leftovers.faults(parse(text), finishes, family)


WAIT = "{{ .reg .pred done; again: mbarrier.{} done, [%r2], %r1; @!done bra again; }}"
PASS = {
    "waits by parity": WAIT.format("try_wait.parity.shared::cta.b64"),
    "waits by state": "mbarrier.arrive.shared::cta.b64 %rd2, [%r2];"
    "$L: mbarrier.test_wait.shared::cta.b64 %p2, [%r2], %rd2; @!%p2 bra $L;",
    "looks once, then waits": "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @%p2 bra $E;"
    "$L: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0; @!%p3 bra $L; $E: mov.u32 %r3, 1;",
    "leaves where it is over and else looks again": "{ .reg .pred done; again:"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%r2], %r1; @done bra over; bra again; over: }",
    "lets lines go first": "createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;"
    "mov.b64 %rd3, %rd2;"
    "ld.global.L1::no_allocate.L2::cache_hint.L2::256B.u32 %r3, [%rd1], %rd3;",
    "sets on every path": "@%p1 bra $A; mov.u32 %r3, 1; bra $B; $A: mov.u32 %r3, 2;"
    "$B: st.global.u32 [%rd1], %r3;",
    "reads what it or others may have stored": "ld.shared.u32 %r3, [%r2+8];".join(
        ("st.shared.u32 [%r2+8], 0;", "bar.sync 0;", "")
    ),
    "leaves a sum unset where K is nothing": "@%p1 bra $A; mov.f32 %f1, 0f00000000;"
    "$A: add.f32 %f2, %f1, %f1; cvt.rn.f16x2.f32 %r3, %f2, %f1; st.global.u32 [%rd1], %r3;",
}
BAD = {
    "reads what another launch left": (
        "ld.shared.u32 %r3, [%r2+8]; bar.sync 0; st.global.u32 [%rd1], %r3;",
        "shared: read before anything of this launch can be there",
    ),
    "reads so on one path": (
        "@%p1 bra $A; bar.sync 0; $A: ld.shared.u32 %r3, [%r2+8]; st.global.u32 [%rd1], %r3;",
        "shared: read before anything of this launch can be there",
    ),
    "never set": ("st.global.u32 [%rd1], %r3;", "register: read before it is set"),
    "set on one path": (
        "@%p1 bra $A; mov.u32 %r3, 1; $A: st.global.u32 [%rd1], %r3;",
        "register: read before it is set",
    ),
    "set under a predicate": (
        "@%p1 mov.u32 %r3, 1; st.global.u32 [%rd1], %r3;",
        "register: read before it is set",
    ),
    "set behind": (
        "$L: st.global.u32 [%rd1], %r3; mov.u32 %r3, 1; @%p1 bra $L;",
        "register: read before it is set",
    ),
    "a float that decides": (
        "@%p1 bra $A; mov.f32 %f1, 0f00000000; $A: add.f32 %f2, %f1, %f1;"
        "setp.gt.f32 %p2, %f2, %f2;",
        "register: read before it is set",
    ),
    "bits of a float": ("mov.b32 %r3, %f1;", "register: read before it is set"),
    "asks whether all came": (
        "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; selp.u32 %r3, 1, 0, %p2;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "goes another way": (
        "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @%p2 bra $E;"
        "st.global.u32 [%rd1], %r1; $E: mov.u32 %r3, 1;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "gives up after two looks": (
        "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @%p2 bra $E;"
        "mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r2], 0; @%p3 bra $E; $E: mov.u32 %r3, 1;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "waits for as long as it is over": (
        "$L: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @%p2 bra $L;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "leaves by a number as well": (
        "$L: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @%p1 bra $E; @!%p2 bra $L;"
        "$E: mov.u32 %r3, 1;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "counts how long it waits": (
        "mov.u32 %r3, 0; $L: add.s32 %r3, %r3, 1;"
        "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra $L;",
        "barrier: whether it is complete decides more than a wait",
    ),
    "counts arrivals": (
        "mbarrier.arrive.shared::cta.b64 %rd2, [%r2]; mbarrier.pending_count.b64 %r3, %rd2;",
        "barrier: its state is read",
    ),
    "keeps lines": (
        "createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;",
        "L2: L2::evict_last",
    ),
    "keeps some lines": (
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd2, 0.5;",
        "L2: L2::evict_last",
    ),
    "keeps by address": (
        "createpolicy.range.global.L2::evict_first.b64 %rd2, [%rd1], 64, 64;",
        "L2: a policy by addresses",
    ),
    "keeps by number": (
        "mov.u64 %rd2, 0x14F0000000000000;ld.global.L2::cache_hint.u32 %r3, [%rd1], %rd2;",
        "L2: a policy that no createpolicy made",
    ),
    "keeps by a computed number": (
        "createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0; add.s64 %rd3, %rd2, 99;"
        "ld.global.L2::cache_hint.u32 %r3, [%rd1], %rd3;",
        "L2: a policy that no createpolicy made",
    ),
    "fetches to keep": ("prefetch.global.L2::evict_last [%rd1];", "L2: L2::evict_last"),
    "drops lines": ("discard.global.L2 [%rd1], 128;", "L2: discard"),
    "ranks lines": ("applypriority.global.L2::evict_normal [%rd1], 128;", "L2: L2::evict_normal"),
}


@pytest.mark.parametrize("body", PASS.values(), ids=PASS)
def test_what_honest_code_says(body: str) -> None:
    assert faults(body) == []


@pytest.mark.parametrize(("body", "words"), BAD.values(), ids=BAD)
def test_what_keeps_something_is_refused_by_its_rule(body: str, words: str) -> None:
    found = faults(body)
    assert found and found[0].startswith(f"{words} in '"), found


def test_an_epilogue_by_a_function_looks_at_the_bits_of_a_sum() -> None:
    body = "@%p1 bra $A; mov.f32 %f1, 0f00000000; $A: mov.b32 %r3, %f1;"
    assert faults(body, finishes=True) == []
    assert len(faults(body)) == 1


def test_a_stranger_leaves_no_sum_unset() -> None:
    """A stranger's branch on a stride left sums unset, and what its registers held was stored."""
    told = "register: read before it is set in 'add.f32 %f2, %f1, %f1'"
    body = PASS["leaves a sum unset where K is nothing"]
    assert faults(body, family=False)[0] == told
    assert faults("mov.f32 %f1, 0f00000000;" + body, family=False) == []
    detail = check(sums="add.f32 %f1, %f1, %f9;").detail
    assert detail.startswith("register: read before it is set in 'add.f32 %f1, %f1, %f9'")


def test_the_gate_tells_of_it_behind_what_follows_operands() -> None:
    verdict = check(end="discard.global.L2 [%rd3], 128;")
    assert not verdict.passed
    assert "L2: discard in 'discard.global.L2 [%rd3], 128'" in verdict.detail


SEND = "st.shared::cluster.u32 [%r2], %r1;"
FETCH = "ld.shared::cluster.u32 %r3, [%r2];"
TELL = "mbarrier.arrive.shared::cluster.b64 _, [%r2];"
COPY = (
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r2], 16,"
    " [%r2];"
)
ARRIVE, MET = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (ARRIVE + MET + SEND, ""),
        (ARRIVE + MET + TELL + ARRIVE, "ended"),
        (ARRIVE + MET + TELL + ARRIVE + "@%p1 bra $E;" + MET + "$E: mov.u32 %r3, 1;", "ended"),
        (ARRIVE + MET + TELL + ARRIVE + MET, ""),
        (ARRIVE + MET + COPY, "ended"),
        (ARRIVE + MET + COPY + ARRIVE + MET, ""),
        (ARRIVE + MET + FETCH + ARRIVE + MET, ""),
        (SEND + ARRIVE + MET, "begun"),
        ("@%p1 bra past;" + ARRIVE + MET + "past: " + SEND, "begun"),
        (ARRIVE + MET + FETCH, "ended"),
        (ARRIVE + MET + FETCH + "@%p1 bra past;" + ARRIVE + MET + "past: mov.u32 %r4, 1;", "ended"),
    ],
)
def test_another_cta_has_begun_and_has_not_ended(body: str, told: str) -> None:
    """Two kernels of a cluster that came too early or too late passed every gate without a GPU."""
    found = faults(body)
    assert [each.split(" in ")[0] for each in found] == (
        [f"cluster: another CTA that may {'have' if told == 'ended' else 'not have'} {told}"]
        if told
        else []
    )
