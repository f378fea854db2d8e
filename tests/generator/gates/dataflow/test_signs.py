"""Numbers that are less, more or another than they look led from one place of shared memory to
another that was taken for zeros. Nothing is known of zeros, so that they were added to sums,
rounded as often as one liked, and told lanes which sum to take."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.dataflow import ranges
from hgemm_packs.generator.gates.dataflow.program import numbers
from hgemm_packs.generator.gates.dataflow.values import Value, constant
from tests.generator.gates.dataflow.snippets import check

ZEROS = "st.shared.u32 [%r7+1536], 0;"
TAKEN = "ld.shared.f32 %f9, [%r7+1536]; cvt.rn.f16.f32 %rs1, %f9; cvt.f32.f16 %f8, %rs1;"
#: Leads to 1536 bytes behind `one`.
LEADS = {
    "a loop that another number ends": "mov.u32 %r11, 0; $L0: add.u32 %r12, %r7, %r11;"
    "st.shared.f32 [%r12], %f1; add.s32 %r13, %r11, -1000; add.s32 %r11, %r11, 512;"
    "setp.lt.s32 %p1, %r13, 500; @%p1 bra $L0;",
    "bits that a number has not": "bfe.u32 %r11, -1, 32, 1; mul.lo.s32 %r11, %r11, -512;"
    "add.s32 %r12, %r7, %r11; st.shared.f32 [%r12+1536], %f1;",
    "a sum that saturates": "add.s32 %r14, %r5, 1; add.sat.s32 %r11, %r14, 2147483647;"
    "and.b32 %r11, %r11, 1024;"
    "add.s32 %r12, %r7, %r11; st.shared.f32 [%r12+512], %f1;",
    "an address in 16 bits": "cvt.u16.u32 %rs3, %r10; cvt.u32.u16 %r11, %rs3;"
    "st.shared.f32 [%r11], %f1;",
    "the last 16 bits of an address": "cvt.u32.u16 %r11, %r10; st.shared.f32 [%r11], %f1;",
    "a minimum that is at least 0": "min.relu.s32 %r11, %r6, -1024; add.s32 %r12, %r7, %r11;"
    "st.shared.f32 [%r12+1536], %f1;",
    "two sums in one register": "add.u16x2 %r11, %r6, 1536; add.s32 %r12, %r7, %r11;"
    "st.shared.f32 [%r12], %f1;",
}


@pytest.mark.parametrize("lead", LEADS.values(), ids=LEADS)
def test_what_is_taken_for_zeros_is_followed(lead: str) -> None:
    verdict = check(sums=ZEROS + lead + TAKEN + "mov.f32 %f1, %f8;")
    assert verdict.status is Status.DATAFLOW
    assert "rounding: a rounded sum in 'cvt.f32.f16 %f8, %rs1'" in verdict.detail


def test_zeros_alone_are_not_read() -> None:
    verdict = check(sums=ZEROS + "ld.shared.f32 %f9, [%r7+1536]; add.f32 %f1, %f1, %f9;")
    assert verdict.detail == (
        "load: where zeros alone were stored in 'ld.shared.f32 %f9, [%r7+1536]'"
    )


def test_sixteen_bytes_are_sixteen() -> None:
    """A load of 128 bits was taken for one of 64."""
    put = (
        "st.shared.v2.u32 [one], {0, 0}; st.shared.v2.u32 [one+8], {%r1, %r1};"
        "ld.shared.b128 %rq1, [one]; mov.b128 {%rd11, %rd12}, %rq1; mov.b64 {%r11, %r12}, %rd12;"
        "setp.eq.u32 %p1, %r11, 7; @%p1 ret;"
    )
    assert check(sums=put).detail.startswith("compare: bits of A in 'setp.eq.u32 %p1, %r11, 7'")


def known(low: int, high: int) -> Value:
    return Value(1, 0, low, high)


def test_a_number_is_read_by_the_type_of_what_reads_it() -> None:
    large = known(0xC0000008, 0xC0010000)
    narrowed = ranges.convert(("cvt", "s32", "u64"), large)
    assert (narrowed.low, narrowed.high) == (None, None)
    assert ranges.convert(("cvt", "u32", "u64"), large)[2:4] == (0xC0000008, 0xC0010000)
    assert ranges.compute(("shr", "s32"), [large, constant(30)])[2:4] == (None, None)
    assert ranges.compute(("shr", "s32"), [constant(0xC0000000), constant(30)]).const == -1
    assert ranges.compute(("shr", "u32"), [large, constant(30)]).const == 3
    assert ranges.compute(("max", "u32"), [known(-1, -1), constant(5)])[2:4] == (None, None)
    assert ranges.compute(("min", "s32"), [known(-4, 9), constant(5)])[2:4] == (-4, 5)
    assert ranges.compute(("mul", "hi", "u16"), [constant(1024), constant(128)]).const == 2


def test_a_thread_s_number_has_as_many_bits_as_its_register() -> None:
    ones = [(1 << 64) - 1]
    assert numbers.RULES["bfe"](("bfe", "u32"), [ones, [32], [4]]) == [0]
    assert numbers.RULES["bfe"](("bfe", "u32"), [ones, [28], [8]]) == [15]
    assert numbers.RULES["bfi"](("bfi", "b32"), [[1], ones, [256], [1]]) == [0xFFFFFFFF]
    for opcode in ("add.sat.s32", "min.relu.s32", "add.u16x2", "min.f32", "setp.lt.and.u32"):
        assert not numbers.is_plain(opcode.split("."))
