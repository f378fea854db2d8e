"""What mutants showed of the data-flow gate: lines of L2 that are never given back, and loads that
ptxas may move across the wait for the grid ahead."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from tests.generator.gates.dataflow.snippets import check

POLICY = "createpolicy.fractional.L2::evict_first.b64 %rd5, 1.0;"
LOAD = "ld.global.L1::no_allocate.L2::cache_hint.u32 %r1, [%rd1], %rd5;"


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (
            POLICY.replace("first", "last"),
            "cache: lines of L2 are kept for good in 'createpolicy",
        ),
        ("createpolicy.cvt.L2.b64 %rd5, 7;", "cache: lines of L2 are kept for good in 'createp"),
        ("prefetch.global.L2::evict_last [%rd1];", "cache: lines of L2 are kept for good in 'pre"),
        ("ld.global.L2::evict_last.u32 %r1, [%rd1];", "cache: lines of L2 are kept for good in"),
        (
            f"mov.b64 %rd5, 0x14F0000000000000; {LOAD}",
            "cache: a policy that createpolicy has not made in 'ld.global.L1::no_allocate",
        ),
        (
            f"{POLICY} setp.eq.u32 %p1, %r4, 5; @%p1 mov.b64 %rd5, 0x14F0000000000000; {LOAD}",
            "cache: a policy that createpolicy has not made in 'ld.global.L1::no_allocate",
        ),
    ],
)
def test_no_kernel_keeps_lines_of_l2(put: str, told: str) -> None:
    """Mutants of `pin_lines` passed every gate: no value tells, and the next kernel pays."""
    verdict = check(operands=put)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(told)


@pytest.mark.parametrize(
    "put",
    [
        f"{POLICY} {LOAD}",
        f"{POLICY} mov.b64 %rd6, %rd5; {LOAD.replace('%rd5', '%rd6')}",
        "prefetch.global.L2 [%rd1];",
        "ld.global.L1::evict_last.u32 %r1, [%rd1];",
    ],
)
def test_lines_that_go_first_may_be_marked(put: str) -> None:
    assert check(operands=put).detail == ""


def test_a_family_reads_operands_by_plain_loads() -> None:
    """Rule 5 of the kernel contract, which only held where ptxas did move the load: mutants of
    `read_only_loads` passed. Foreign kernels enter no table."""
    load = "ld.global.nc.u32 %r1, [%rd1];"
    assert check(operands=load).detail == ""
    assert check(operands=load, family="sm90_direct").detail.startswith("load: by .nc in 'ld.gl")
    assert check(operands=load.replace(".nc", ""), family="sm90_direct").detail == ""
