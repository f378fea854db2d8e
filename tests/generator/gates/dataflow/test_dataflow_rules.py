"""Each rule of the data-flow gate: the smallest PTX that breaks it, refused with its instruction
named, beside PTX that does the same where it is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from hgemm_packs.generator.core.spec import Status
from tests.generator.gates.dataflow.snippets import check


def test_the_kernel_that_all_others_are_a_change_to_passes() -> None:
    for dtype in ("f16", "bf16"):
        verdict = check(dtype=dtype)
        assert (verdict.gate, verdict.status, verdict.detail) == ("dataflow", Status.OK, "")
        assert verdict.evidence == {"instructions": 20, "refusals": 0}


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("setp.gt.u32 %p1, %r1, 5;", "compare: bits of A in 'setp.gt.u32 %p1, %r1, 5'"),
        ("min.u32 %r1, %r1, 7;", "compare: bits of A in 'min.u32 %r1, %r1, 7'"),
        ("max.f16x2 %r1, %r1, %r2;", "compare: bits of A or bits of B in 'max.f16x2"),
        ("setp.eq.u32 %p1, %r4, 5; selp.b32 %r1, %r1, 1, %p1;", "product: a number in 'mma.sync"),
        ("and.b32 %r1, %r1, 0xff00ff00;", "bits: bits of A in 'and.b32 %r1, %r1, 0xff00ff00'"),
        ("or.b32 %r1, %r1, %r2;", "bits: bits of A or bits of B in 'or.b32 %r1, %r1, %r2'"),
        ("xor.b32 %r1, %r1, 0x80008000;", "bits: bits of A in 'xor.b32 %r1, %r1, 0x80008000'"),
        ("shl.b32 %r1, %r1, 8;", "bits: bits of A in 'shl.b32 %r1, %r1, 8'"),
        ("shr.s32 %r1, %r1, 16;", "bits: bits of A in 'shr.s32 %r1, %r1, 16'"),
        ("prmt.b32 %r1, %r1, 0, 0x3414;", "bits: bits of A in 'prmt.b32 %r1, %r1, 0, 0x3414'"),
        ("lop3.b32 %r1, %r1, %r1, %r1, 42;", "bits: bits of A in 'lop3.b32"),
        ("popc.b32 %r11, %r1;", "vote: bits of A in 'popc.b32 %r11, %r1'"),
        ("redux.sync.or.b32 %r11, %r1, -1;", "vote: bits of A in 'redux.sync.or.b32"),
        ("match.any.sync.b32 %r11, %r1, -1;", "vote: bits of A in 'match.any.sync.b32"),
        ("ld.shared.u32 %r11, [%r1];", "address: bits of A in 'ld.shared.u32 %r11, [%r1]'"),
        ("add.f16x2 %r1, %r1, %r1;", "arithmetic: bits of A in 'add.f16x2 %r1, %r1, %r1'"),
        ("fma.rn.f16x2 %r1, %r1, %r2, %r1;", "arithmetic: bits of A or bits of B in 'fma.rn.f16x2"),
        ("st.global.u32 [%rd3], %r1;", "store: bits of A in 'st.global.u32 [%rd3], %r1'"),
        ("st.global.u32 [%rd1], %r4;", "store: into A in 'st.global.u32 [%rd1], %r4'"),
        ("ld.param.s64 %rd9, [kernel_param_0]; sub.s64 %rd9, %rd9, %rd9;",
         "load: of a part of a parameter, or as what it is not, in 'ld.param.s64"),
        ("ld.param.u16 %rs1, [kernel_param_3];",
         "load: of a part of a parameter, or as what it is not, in 'ld.param.u16"),
        ("ld.global.u8 %r1, [%rd1];", "bits: bits of A by other than whole elements in"),
        ("st.shared.u32 [%r8], %r1; st.shared.u8 [%r8], 0; ld.shared.u32 %r1, [%r8];",
         "bits: bits of A of which single bytes were stored in 'ld.shared.u32 %r1, [%r8]'"),
        ("mov.b32 %f9, %r1; add.f32 %f1, %f1, %f9;", "arithmetic: bits of A in 'add.f32"),
        ("ld.shared.u32 %r1, [%r8];", "load: where nothing was stored in 'ld.shared"),
        ("st.shared.u32 [%r8], %r5; ld.shared.u32 %r11, [%r8];",
         "load: a number from shared memory, which may be of another launch, in 'ld.shared"),
        ("atom.shared.add.u32 %r11, [%r8], 1;",
         "load: a number from shared memory, which may be of another launch, in 'atom.shared"),
        ("wmma.load.a.sync %r11;", "unknown: an instruction that this gate"),
        ("and.b64 %rd1, %rd1, -128; ld.global.u32 %r1, [%rd1];",
         "address: of A, B or C as a number in 'and.b64 %rd1, %rd1, -128'; "
         "address: no parameter or array plus numbers in 'ld.global.u32 %r1, [%rd1]'"),
        ("or.b64 %rd9, %rd1, 32;", "address: of A, B or C as a number in 'or.b64 %rd9, %rd1, 32'"),
        ("setp.lt.u64 %p1, %rd1, %rd2;", "address: of A, B or C as a number in 'setp.lt.u64"),
        ("sub.s64 %rd9, %rd1, %rd2;", "address: of A, B or C as a number in 'sub.s64"),
        ("cvt.u32.u64 %r11, %rd1;", "address: of A, B or C as a number in 'cvt.u32.u64"),
        ("mov.b64 {%r11, %r12}, %rd1;", "address: of A, B or C as a number in 'mov.b64 {%r11"),
        ("mov.u32 %r2, 0;", "product: of an operand and zero in 'mma.sync"),
        ("cvt.f32.f16 %f8, %r1; mov.f32 %f9, 0f00000000; fma.rn.f32 %f7, %f8, %f9, %f9;",
         "arithmetic: an operand times zero in 'fma.rn.f32 %f7, %f8, %f9, %f9'"),
    ],
)  # fmt: skip
def test_operands_are_moved_and_multiplied_and_nothing_else(put: str, told: str) -> None:
    verdict = check(operands=put)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(told)


@pytest.mark.parametrize(
    "put",
    [
        "and.b32 %r1, %r1, 0xffff;",
        "shl.b32 %r11, %r1, 16; and.b32 %r12, %r1, 65535; or.b32 %r1, %r11, %r12;",
        "mov.b32 {%rs1,%rs2}, %r1; mov.b32 %r1, {%rs2,%rs1};",
        "prmt.b32 %r1, %r1, %r1, 0x5432;",
        "and.b32 %r11, %r4, 1; shl.b32 %r11, %r11, 4; shr.u32 %r1, %r1, %r11;",
        "bfi.b32 %r1, %r1, %r1, 16, 16;",
        "setp.gt.u32 %p1, %r4, 5; selp.b32 %r1, %r1, 0, %p1;",
        "shfl.sync.idx.b32 %r1|%p1, %r1, %r5, 31, -1;",
        "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r1, [%r8];",
        "st.shared.u16 [%r8], %r1; st.shared.u16 [%r8+2], %r1; bar.sync 0;"
        " ld.shared.u32 %r1, [%r8];",
        "cp.async.cg.shared.global [%r8], [%rd1], 16; cp.async.wait_all; bar.sync 0;"
        " ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r8];",
        "and.b32 %r11, %r4, 7; ld.global.u32 %r12, [kTable]; setp.eq.u32 %p1, %r12, %r11;"
        "@%p1 bra on; on: ld.global.u32 %r1, [%rd1+4];",
    ],
)
def test_whole_elements_may_go_anywhere(put: str) -> None:
    assert check(operands=put).detail == ""


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("setp.gt.f32 %p1, %f1, 0f44000000; @%p1 bra on; on: mov.f32 %f1, %f1;",
         "compare: a sum in 'setp.gt.f32 %p1, %f1, 0f44000000'"),
        ("min.f32 %f1, %f1, 0f477FE000;", "compare: a sum in 'min.f32 %f1, %f1, 0f477FE000'"),
        ("abs.f32 %f1, %f1;", "arithmetic: a sum in 'abs.f32 %f1, %f1'"),
        ("sub.f32 %f1, %f1, %f2;", "arithmetic: a sum in 'sub.f32 %f1, %f1, %f2'"),
        ("mul.f32 %f1, %f1, 0f46000400;", "arithmetic: a sum in 'mul.f32 %f1, %f1, 0f46000400'"),
        ("add.f32 %f1, %f1, %f1;", "arithmetic: a sum twice in 'add.f32 %f1, %f1, %f1'"),
        ("add.f32 %f1, %f1, 0f00000000;", "arithmetic: a sum and a constant in 'add.f32"),
        ("mov.f32 %f9, 0f4B000000; add.f32 %f1, %f1, %f9;", "arithmetic: a number in 'add.f32"),
        ("add.rz.f32 %f1, %f1, %f2;", "rounding: a sum in 'add.rz.f32 %f1, %f1, %f2'"),
        ("add.ftz.f32 %f1, %f1, %f2;", "rounding: a sum in 'add.ftz.f32 %f1, %f1, %f2'"),
        ("cvt.rz.f16.f32 %rs1, %f1;", "rounding: a sum in 'cvt.rz.f16.f32 %rs1, %f1'"),
        ("cvt.rn.relu.f16.f32 %rs1, %f1;", "rounding: a sum in 'cvt.rn.relu.f16.f32 %rs1, %f1'"),
        ("cvt.rn.bf16.f32 %rs1, %f1;", "rounding: a sum in 'cvt.rn.bf16.f32 %rs1, %f1'"),
        ("cvt.rzi.s32.f32 %r11, %f1;", "rounding: a sum in 'cvt.rzi.s32.f32 %r11, %f1'"),
        ("cvt.rn.f16.f32 %rs1, %f1; cvt.f32.f16 %f1, %rs1;",
         "rounding: a rounded sum in 'cvt.f32.f16 %f1, %rs1'"),
        ("mov.b32 %r11, %f1; mov.b32 {%rs1,%rs2}, %r11; mov.b32 %r12, {0,%rs2}; mov.b32 %f1, %r12;",
         "bits: a sum in 'mov.b32 {%rs1,%rs2}, %r11'"),
        ("mov.b32 %r11, %f1; and.b32 %r11, %r11, 0xffff0000; mov.b32 %f1, %r11;",
         "bits: a sum in 'and.b32 %r11, %r11, 0xffff0000'"),
        ("st.shared.f32 [%r8], %f1; ld.shared.u16 %rs1, [%r8+2];",
         "bits: a sum by other than 32 bits in 'ld.shared.u16 %rs1, [%r8+2]'"),
        ("st.shared.f32 [%r8], %f1; st.shared.u16 [%r8], 0; ld.shared.f32 %f1, [%r8];",
         "bits: a sum of which 16 bits were stored in 'ld.shared.f32 %f1, [%r8]'"),
        ("st.shared.f32 [%r8], %f1; cvt.rn.f16x2.f32 %r11, %f1, %f2; st.shared.u32 [%r8], %r11;"
         "ld.shared.f32 %f9, [%r8]; add.f32 %f1, %f1, %f9;",
         "arithmetic: a rounded sum in 'add.f32 %f1, %f1, %f9'"),
        ("red.shared.add.f32 [%r8], %f1;", "atomic: a sum in 'red.shared.add.f32 [%r8], %f1'"),
        ("st.global.f32 [%rd3], %f1;", "store: a sum in 'st.global.f32 [%rd3], %f1'"),
        ("ld.global.u32 %r11, [%rd3];", "load: C is written and never read, in 'ld.global.u32"),
        ("mov.b32 %r11, %f1; add.s32 %r12, %r8, %r11; ld.shared.u32 %r13, [%r12];",
         "arithmetic: a sum in 'add.s32 %r12, %r8, %r11'"),
        ("mov.b32 %r11, %f1; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},"
         "{%r11,%r11,%r11,%r11}, {%r2,%r2}, {%f1,%f2,%f3,%f4};", "product: a sum in 'mma.sync"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r11,%r12}, {%r1,%r1,%r1,%r1},"
         "{%r2,%r2}, {%r13,%r14};", "product: of other than float32 sums of f16 in 'mma.sync"),
        ("mov.u32 %r11, 0x3c003c00; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
         " {%f1,%f2,%f3,%f4}, {%r1,%r1,%r1,%r1}, {%r11,%r11}, {%f1,%f2,%f3,%f4};",
         "product: a number in 'mma.sync"),
    ],
)  # fmt: skip
def test_sums_are_added_rounded_once_and_stored_and_nothing_else(put: str, told: str) -> None:
    verdict = check(sums=put)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(told)


@pytest.mark.parametrize(
    "put",
    [
        "add.rn.f32 %f1, %f1, %f3; add.f32 %f2, %f2, %f4;",
        "shfl.sync.bfly.b32 %r11|%p1, %f3, 1, 31, -1; mov.b32 %f9, %r11; add.f32 %f1, %f1, %f9;",
        "st.shared.f32 [%r8], %f1; bar.sync 0; ld.shared.f32 %f9, [%r8]; add.f32 %f1, %f9, %f2;",
        "cvt.f64.f32 %fd1, %f1; cvt.f64.f32 %fd2, %f2; add.f64 %fd1, %fd1, %fd2;"
        "cvt.rn.f32.f64 %f1, %fd1;",
        "cvt.f32.f16 %f8, %rs8; cvt.f32.f16 %f9, %rs9; fma.rn.f32 %f1, %f8, %f9, %f1;",
        # Elements and sums at other places of one array, and rounded sums in one of their own.
        "st.shared.u32 [%r8], %r1; st.shared.f32 [%r8+1024], %f1; ld.shared.f32 %f9, [%r8+1024];"
        "add.f32 %f1, %f2, %f9; cvt.rn.f16x2.f32 %r11, %f1, %f2; st.shared.u32 [%r8+2048], %r11;"
        "ld.shared.u32 %r12, [%r8+2048]; st.global.u32 [%rd3], %r12;",
        "cvt.rn.f16.f32 %rs1, %f1; st.global.u16 [%rd3], %rs1; mov.u16 %rs2, 0;"
        "st.global.u16 [%rd3+2], %rs2;",
    ],
)
def test_sums_may_be_added_in_any_order_and_place(put: str) -> None:
    put_before = "mov.b32 {%rs8,%rs10}, %r1; mov.b32 {%rs9,%rs10}, %r2;"
    assert check(operands=put_before, sums=put).detail == ""


def test_only_operands_are_copied_before_the_grid_ahead_has_ended() -> None:
    """The binary gate lets such a copy run ahead, whatever it copies."""
    copy, wait = "cp.async.cg.shared.global [%r8], [kTable], 16;", "griddepcontrol.wait;"
    assert check(operands=copy).detail == ""
    assert check(operands=wait + copy, reads_ahead=True).detail == ""
    for put in (copy, f"setp.gt.s32 %p1, %r4, 9; @%p1 bra on; {wait} on: {copy}"):
        assert check(operands=put, reads_ahead=True).detail.startswith(
            "order: before the grid ahead has ended, a copy of more than A and B, in 'cp.async.cg"
        )
    assert check(operands=copy.replace("kTable", "%rd1"), reads_ahead=True).detail == ""


def test_what_a_register_was_before_says_nothing_of_what_it_is() -> None:
    """%r20 holds elements of A, then a size that a branch depends on: no path leads from one to
    the other. With a path it is refused."""
    first = "mov.u32 %r20, %r1; st.shared.u32 [%r8], %r20;"
    then = "mov.u32 %r20, %r4; setp.eq.u32 %p1, %r20, 5; @%p1 bra on; on: mov.f32 %f1, %f1;"
    assert check(operands=first, sums=then).detail == ""
    maybe = "setp.eq.u32 %p2, %r4, 9; @%p2 mov.u32 %r20, %r4; setp.eq.u32 %p1, %r20, 5;"
    verdict = check(operands=first, sums=maybe)
    assert verdict.detail == "compare: bits of A in 'setp.eq.u32 %p1, %r20, 5'"


def test_places_in_shared_memory_are_told_apart_by_threads() -> None:
    """The upper warp leaves sums behind what the lower one leaves rounded; swizzled, and with the
    rank of each computed by a remainder."""
    apart = (
        "shr.u32 %r11, %r5, 5; and.b32 %r12, %r5, 31; mul.lo.s32 %r13, %r11, 512;"
        "xor.b32 %r14, %r12, 5; shl.b32 %r14, %r14, 2; add.s32 %r15, %r13, %r14;"
        "add.s32 %r16, %r7, %r15; setp.lt.u32 %p1, %r5, 32; @%p1 bra low;"
        "st.shared.f32 [%r16], %f1; bar.sync 0; ld.shared.f32 %f9, [%r16]; add.f32 %f1, %f2, %f9;"
        "bra on; low: cvt.rn.f16x2.f32 %r17, %f1, %f2; st.shared.u32 [%r16], %r17; bar.sync 0;"
        "ld.shared.u32 %r18, [%r16]; st.global.u32 [%rd3], %r18; on: mov.f32 %f1, %f1;"
    )
    assert check(sums=apart).detail == ""
    together = apart.replace("mul.lo.s32 %r13, %r11, 512", "mul.lo.s32 %r13, %r11, 64")
    assert check(sums=together).detail.startswith("arithmetic: a rounded sum in 'add.f32")


def test_an_address_may_leave_the_array_that_it_was_made_from() -> None:
    """Rounded sums in `one` are read back by way of `other`, 4096 bytes before its start: taken for
    sums they would be parts in 16 bits. Where bounds keep both in their arrays they are apart."""
    put = (
        "cvt.rn.f16x2.f32 %r11, %f1, %f2; st.shared.u32 [%r8], %r11; st.shared.f32 [%r10], %f1;"
        "ld.shared.f32 %f9, [%r10{}]; add.f32 %f1, %f2, %f9;"
    )
    assert check(sums=put.format("")).detail == ""
    told = "arithmetic: a rounded sum in 'add.f32 %f1, %f2, %f9'"
    assert check(sums=put.format("+-4096")).detail == told
    step = "mul.lo.s32 %r12, %r4, 4; add.s32 %r10, %r10, %r12;"
    assert check(sums=step + put.format("")).detail == told


def test_a_loop_that_runs_a_known_number_of_times_ends_its_steps() -> None:
    """Sums stand behind 8 times 64 bytes of rounded ones; a ninth time would reach them."""
    put = (
        "cvt.rn.f16x2.f32 %r11, %f1, %f2; and.b32 %r20, %r6, 60; add.s32 %r12, %r7, %r20;"
        "add.s32 %r13, %r12, 512; st.shared.f32 [%r13], %f1; mov.u32 %r14, 0;"
        "again: st.shared.u32 [%r12], %r11; add.s32 %r12, %r12, 64; add.s32 %r14, %r14, 1;"
        "setp.lt.s32 %p1, %r14, {}; @%p1 bra again; ld.shared.f32 %f9, [%r13];"
        "add.f32 %f1, %f2, %f9;"
    )
    assert check(sums=put.format(8)).detail == ""
    told = "arithmetic: a rounded sum in 'add.f32 %f1, %f2, %f9'"
    assert check(sums=put.format(9)).detail == told


WAITS: dict[str, Any] = {
    "param_layout": "tma2_ws_v2",
    "tma": [
        {"operand": "a", "box": [64, 64]},
        {"operand": "b", "box": [64, 64]},
    ],
}


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("again: ld.relaxed.gpu.global.u32 %r20, [%rd9]; setp.eq.s32 %p1, %r20, -1; @%p1 bra again;"
         "mov.b32 %f9, %r20; add.f32 %f1, %f2, %f9; mov.u32 %r21, -1;"
         "st.relaxed.gpu.global.u32 [%rd9], %r21; mov.b32 %r22, %f3; min.u32 %r22, %r22, -2;"
         "st.relaxed.gpu.global.u32 [%rd9+4], %r22;", ""),
        ("again: ld.relaxed.gpu.global.u32 %r20, [%rd9]; setp.eq.s32 %p1, %r20, -1; mov.b32 %f9,"
         " %r20; @%p1 bra on; add.f32 %f1, %f2, %f9; on: mov.f32 %f3, %f1;",
         "branch: whether a word is absent decides on 'add.f32 %f1, %f2, %f9', in '@%p1 bra on'"),
        ("mov.u32 %r19, 0; again: ld.relaxed.gpu.global.u32 %r20, [%rd9]; add.s32 %r19, %r19, 1;"
         "setp.eq.s32 %p1, %r20, -1; @%p1 bra again; setp.gt.s32 %p2, %r19, 1; @%p2 bra on;"
         "mov.f32 %f1, %f2; on: mov.f32 %f3, %f1;",
         "branch: whether a word is absent is told by 'add.s32 %r19, %r19, 1',"
         " in '@%p1 bra again'"),
        ("ld.relaxed.gpu.global.u32 %r20, [%rd9]; setp.eq.s32 %p1, %r20, -2;",
         "compare: a word of the workspace in 'setp.eq.s32 %p1, %r20, -2'"),
        ("mov.b32 %r22, %f3; st.relaxed.gpu.global.u32 [%rd9+4], %r22;",
         "store: a sum in 'st.relaxed.gpu.global.u32 [%rd9+4], %r22'"),
    ],
)  # fmt: skip
def test_waiting_by_value_decides_how_often_words_are_loaded_and_nothing_else(
    put: str, told: str
) -> None:
    verdict = check(workspace=put, **WAITS)
    assert verdict.detail == told


ASKS = "ld.relaxed.gpu.global.u32 %r20, [%rd9]; again: setp.eq.s32 %p1, %r20, -1; "
AGAIN = "@%p1 ld.relaxed.gpu.global.u32 %r20, [%rd9]; "
LEAVES = "mov.b32 %r22, %f3; min.u32 %r22, %r22, -2; st.relaxed.gpu.global.u32 [%rd9+4], %r22;"


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (ASKS + AGAIN + "setp.eq.s32 %p2, %r20, -1; @%p2 bra again; ", ""),
        (ASKS + AGAIN,
         "load: whether a word is absent decides on it outside a wait,"
         " in '@%p1 ld.relaxed.gpu.global.u32 %r20, [%rd9]'"),
        (ASKS + AGAIN + "@%p1 ld.shared.u32 %r1, [one]; @%p1 bra again; ",
         "load: whether a word is absent decides on it, in '@%p1 ld.shared.u32 %r1, [one]'"),
    ],
)  # fmt: skip
def test_whether_a_word_is_absent_decides_on_loads_of_words_in_a_wait_alone(
    put: str, told: str
) -> None:
    """A stranger loaded an element of A where a word had not come at a first look: timing decided,
    and hardly ever so that a product was wrong."""
    added = put + "mov.b32 %f9, %r20; add.f32 %f1, %f2, %f9; " if not told else put
    assert check(workspace=added + LEAVES, **WAITS).detail == told


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("sub.s32 %r20, %r9, %r7; mul.lo.s32 %r21, %r20, %r4;", "sub.s32 %r20, %r9, %r7"),
        ("mul.lo.s32 %r20, %r8, %r4;", "mul.lo.s32 %r20, %r8, %r4"),
        ("and.b32 %r20, %r9, 255; mov.u32 %r21, %r20; mul.lo.s32 %r22, %r21, %r4;",
         "mul.lo.s32 %r22, %r21, %r4"),
        ("and.b32 %r20, %r9, 255; add.s32 %r21, %r20, %r4;", "add.s32 %r21, %r20, %r4"),
        ("cvt.rn.f32.u32 %f9, %r7;", "cvt.rn.f32.u32 %f9, %r7"),
        ("shl.b32 %r20, %r4, %r7;", "shl.b32 %r20, %r4, %r7"),
        ("neg.s32 %r20, %r7; and.b32 %r20, %r20, 1023; mul.lo.s32 %r21, %r20, %r4;",
         "mul.lo.s32 %r21, %r20, %r4"),
        ("neg.s32 %r20, %r7; and.b32 %r20, %r20, 1023; add.s32 %r21, %r7, %r20;", ""),
        ("and.b32 %r20, %r7, 262128; shr.u32 %r21, %r20, 4; or.b32 %r22, %r21, 65536;", ""),
        ("add.s32 %r20, %r7, %r4; sub.s32 %r21, %r20, %r4; mad.lo.s32 %r22, %r4, %r4, %r7;", ""),
        ("xor.b32 %r20, %r7, %r6;", ""),
        ("mov.b64 %rd9, {%r7, %r4};", "mov.b64 %rd9, {%r7, %r4}"),
    ],
)  # fmt: skip
def test_where_an_array_lies_is_no_number_of_a_stranger(put: str, told: str) -> None:
    """The distance of two arrays in shared memory was zero for the size gate alone."""
    words = f"address: of an array as a number in '{told}'" if told else ""
    assert check(operands=put).detail.split("; ")[0] == words


def test_text_that_is_no_kernel_is_refused_with_a_reason() -> None:
    assert check(operands="call foo;").detail == "unreadable: the name foo"
    assert check(end=".branchtargets here;").detail == "unreadable: .branchtargets here"
    assert check(end="}").detail == ""
    assert check(operands="brx.idx %r1, table;").detail == "unreadable: the name table"
    assert check(param_layout="tma3_v1").detail == "parameters: 9, not those of tma3_v1"
