"""Sums begin with zero: a product that adds to what a register held before is refused."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from tests.generator.gates.dataflow.snippets import check

SUMS = "{%f21,%f22,%f23,%f24}"
MMA = (
    f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {SUMS}, {{%r1,%r1,%r1,%r1}}, {{%r2,%r2}},"
    f" {SUMS};"
)
ZERO = "".join(f"mov.f32 %f{n}, 0f00000000;" for n in range(21, 25))
TOLD = "product: added to what some path has not set in 'mma.sync"


@pytest.mark.parametrize(
    "put",
    [
        MMA,
        f"setp.eq.u32 %p1, %r4, 5; @%p1 bra $L1; {ZERO} $L1: {MMA}",
        f"{ZERO} mov.f32 %f24, %f34; {MMA}",
        f"mov.f32 %f34, %f44; mov.f32 %f24, %f34; {ZERO.replace('%f24', '%f25')} {MMA}",
        f"setp.eq.u32 %p1, %r4, 5; {ZERO.replace('mov', '@%p1 mov')} {MMA}",
        f"$L1: {MMA} {ZERO} setp.eq.u32 %p1, %r4, 5; @%p1 bra $L1;",
    ],
)
def test_sums_that_some_path_leaves_unset_are_refused(put: str) -> None:
    """Mutants of `not_cleared` and `keep_sums` passed the gates of the CPU: registers keep what the
    kernel before has left."""
    verdict = check(sums=put)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(TOLD)


@pytest.mark.parametrize(
    "put",
    [
        f"{ZERO} {MMA}",
        f"mov.f32 %f34, 0f00000000; {ZERO} mov.f32 %f24, %f34; {MMA}",
        f"{ZERO} $L1: {MMA} setp.eq.u32 %p1, %r4, 5; @%p1 bra $L1;",
        f"setp.eq.u32 %p1, %r4, 5; @%p1 bra $L1; {ZERO} {MMA} $L1:",
        f"setp.eq.u32 %p1, %r4, 5; @%p1 bra $L1; {ZERO} bra $L2; $L1: {ZERO} $L2: {MMA}",
    ],
)
def test_sums_that_every_path_sets_may_be_added_to(put: str) -> None:
    assert check(sums=put).detail == ""
