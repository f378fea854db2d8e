"""Families that ask how an address is aligned ask for its last four bits, and for nothing else.

The story: the exception left all of an address open, and a kernel put bits 27 to 34 of C's address
beneath a row's number: where C lay in one of 256 places its rows were written one further.
"""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from tests.generator.gates.dataflow.snippets import check


@pytest.mark.parametrize(
    "put",
    [
        "and.b64 %rd9, %rd1, 15;",
        "cvt.u32.u64 %r11, %rd1; shr.u32 %r12, %r11, 1; and.b32 %r13, %r12, 1;",
        "shr.u64 %rd9, %rd1, 1; cvt.u32.u64 %r11, %rd9; neg.s32 %r12, %r11; "
        "and.b32 %r13, %r12, 7; shl.b32 %r14, %r12, 4; and.b32 %r15, %r14, 16;",
        "add.s64 %rd9, %rd1, 64; sub.s64 %rd10, %rd9, %rd1; setp.lt.s64 %p1, %rd10, 0;",
    ],
)
def test_last_bits_and_offsets_are_asked_for_where_a_family_declares_it(put: str) -> None:
    verdict = check(put, family="sm90_elements")
    assert (verdict.status, verdict.detail) == (Status.OK, "")
    if "15;" not in put:
        assert "address: of A, B or C as a number" in check(put, family="sm90_direct").detail


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("shr.u64 %rd9, %rd3, 27; cvt.u32.u64 %r11, %rd9; add.s32 %r12, %r11, 1;", "shr.u64 %rd9"),
        ("shr.u64 %rd9, %rd3, 27; and.b64 %rd10, %rd9, 1;", "shr.u64 %rd9"),
        ("shr.u64 %rd9, %rd1, 1; and.b64 %rd10, %rd9, 15;", "shr.u64 %rd9"),
        ("cvt.u32.u64 %r11, %rd1; shl.b32 %r12, %r11, 4; and.b32 %r13, %r12, 256;", "cvt.u32.u64"),
        ("cvt.u32.u64 %r11, %rd1; and.b32 %r12, %r11, -16;", "cvt.u32.u64"),
        (
            "cvt.u32.u64 %r11, %rd1; and.b32 %r12, %r11, 15; setp.lt.u32 %p1, %r11, 9;",
            "cvt.u32.u64",
        ),
        ("cvt.u32.u64 %r11, %rd1; shr.u32 %r12, %r11, %r6; and.b32 %r13, %r12, 1;", "cvt.u32.u64"),
        ("sub.s64 %rd9, %rd1, %rd2;", "sub.s64 %rd9"),
        ("setp.lt.u64 %p1, %rd1, %rd2;", "setp.lt.u64"),
        ("mov.b64 {%r11, %r12}, %rd1;", "mov.b64"),
    ],
)
def test_all_other_bits_of_an_address_decide_on_nothing(put: str, told: str) -> None:
    verdict = check(put, family="sm90_elements")
    assert verdict.status is Status.DATAFLOW
    assert f"address: of A, B or C as a number in '{told}" in verdict.detail
