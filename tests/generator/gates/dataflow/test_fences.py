"""Between what threads store in shared memory and what wgmma or a bulk copy reads of it a fence
stands on every path; families' kernels have it, and each is refused without."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, family
from hgemm_packs.generator.gates.dataflow import gate
from tests.generator.gates.dataflow.snippets import check

pytestmark = pytest.mark.usefixtures("kept")

FENCE = "fence.proxy.async.shared::cta;"
SHOWN = "fence.mbarrier_init.release.cluster;"
ALL = {**FAMILIES, **GROUPED, **BATCHED}
#: Genes by which threads, and not maps alone, bring or store what the async proxy reads.
WITH_FENCES = {
    "sm90_wgmma": {"epilogue": "bulk"},
    "sm90_writebound": {},
    "sm90_oneshot": {"cp_async": True},
    "sm90_unaligned": {},
}


def ptx_of(name: str, genes: Mapping[str, Any] | None = None) -> tuple[Mapping[str, Any], str]:
    """Fields and PTX of some kernel of a family that has these genes and, where it may, a fence."""
    rng, one = random.Random(f"{name} fences"), family(name)
    while True:
        genome = {gene: rng.choice(values) for gene, values in one.genes.items()}
        genome |= genes or {}
        if not one.is_valid(genome):
            continue
        fields = one.fields(genome)
        try:
            ptx = compiler._compile(compiler.render(name, genome), fields["symbol"])[2]
        except compiler.BuildError:
            continue  # spills
        if name not in WITH_FENCES or FENCE in ptx:
            return fields, ptx


@pytest.mark.parametrize("name", WITH_FENCES)
def test_a_kernel_without_its_fences_is_refused(name: str) -> None:
    """Nothing followed the async proxy: such a kernel passed the gates of the CPU, and on a GPU it
    is right nearly always."""
    fields, ptx = ptx_of(name, WITH_FENCES[name])
    assert gate.check_ptx(fields, ptx).detail == ""
    verdict = gate.check_ptx(fields, ptx.replace(FENCE, ""))
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith("fence: no fence.proxy.async behind '")


def test_what_a_warpgroup_copies_and_multiplies_it_meets_for() -> None:
    """Each warp waited for its own copies, and multiplied what the others had not copied yet."""
    fields, ptx = ptx_of("sm90_oneshot", WITH_FENCES["sm90_oneshot"])
    alone = ptx.replace("bar.sync \t0;", "bar.warp.sync \t-1;")
    assert alone != ptx
    verdict = gate.check_ptx(fields, alone)
    assert verdict.status is Status.DATAFLOW
    assert "fence: no meeting of those that store behind 'cp.async.c" in verdict.detail


def test_a_wait_for_bulk_stores_is_none_for_copies() -> None:
    fields, ptx = ptx_of("sm90_oneshot", {"cp_async": True})
    others = ptx.replace("cp.async.wait_group", "cp.async.bulk.wait_group")
    assert others != ptx
    detail = gate.check_ptx(fields, others).detail
    assert "fence: no fence.proxy.async behind 'cp.async.c" in detail


@pytest.mark.parametrize("name", [name for name in ALL if name != "sm90_unaligned"])
def test_barriers_that_a_copy_counts_on_are_shown_to_it(name: str) -> None:
    fields, ptx = ptx_of(name)
    assert gate.check_ptx(fields, ptx).detail == ""
    if "complete_tx::bytes" not in ptx:
        return
    assert SHOWN in ptx
    detail = gate.check_ptx(fields, ptx.replace(SHOWN, "")).detail
    assert detail.startswith("fence: the copy engine may not see the barrier yet, which is told of")


STORE = "st.shared.u32 [%r8], %r99;"
GENERIC = "cvt.u64.u32 %rd20, %r8; cvta.shared.u64 %rd21, %rd20; st.u32 [%rd21], %r99;"
OUT = "cvt.rn.f16x2.f32 %r99, %f2, %f1;"
BULK = (
    "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r7], 256;"
    " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
)
ONE = "setp.eq.u32 %p1, %r5, 0;"


@pytest.mark.parametrize(
    "put",
    [
        f"{OUT} {STORE} {FENCE} bar.sync 0; {BULK}",
        f"{OUT} {STORE} bar.sync 0; {FENCE} {BULK}",
        f"{OUT} {STORE} bar.sync 0; {FENCE} {ONE} @!%p1 bra $L1; {BULK} $L1:",
        f"{OUT} {STORE} {FENCE} bar.sync 0; {ONE} @!%p1 bra $L1; {BULK} $L1:",
        f"{OUT} {GENERIC} {FENCE} bar.sync 0; {BULK}",
        f"{OUT} {STORE.replace('%r8', '%r10')} {FENCE} {STORE} fence.proxy.async; {BULK}",
    ],
)
def test_a_fence_on_either_side_of_a_barrier_does(put: str) -> None:
    assert check(sums=put).detail == ""


@pytest.mark.parametrize(
    "put",
    [
        f"{OUT} {STORE} bar.sync 0; {BULK}",
        f"{OUT} {FENCE} {STORE} bar.sync 0; {BULK}",
        f"{OUT} {STORE} {ONE} @%p1 {FENCE} bar.sync 0; {BULK}",
        f"{OUT} {STORE} {ONE} @%p1 bra $L1; {FENCE} $L1: bar.sync 0; {BULK}",
        f"{OUT} {STORE} fence.proxy.async.global; bar.sync 0; {BULK}",
        # Told of by another warp's barrier: the fence of one that did not store comes too early.
        f"{OUT} {ONE} @%p1 bra $L1; {STORE} bar.sync 0; bra $L2;"
        f" $L1: {FENCE} bar.sync 0; {BULK} $L2:",
    ],
)
def test_a_path_without_a_fence_is_refused(put: str) -> None:
    verdict = check(sums=put)
    assert verdict.status is Status.DATAFLOW
    assert "fence: no fence.proxy.async behind 'st.shared.u32" in verdict.detail


def test_a_store_that_names_no_state_space_is_fenced_too() -> None:
    verdict = check(sums=f"{OUT} {GENERIC} bar.sync 0; {BULK}")
    assert "fence: no fence.proxy.async behind 'st.u32" in verdict.detail
