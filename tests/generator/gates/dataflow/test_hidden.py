"""What would hide an operand, a sum or a number from the data-flow gate: names that mean two
things, constants that pass for zero, places that hold two things. Each got through before."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.dataflow import gate
from hgemm_packs.generator.gates.dataflow.program.parse import number, parse
from hgemm_packs.generator.redteam.mutation import bases
from tests.generator.gates.dataflow.snippets import check
from tests.generator.gates.dataflow.test_dataflow_rules import WAITS
from tests.generator.redteam.planted import planted

DECIDES = "setp.gt.u32 %p1, %r11, 5;"
TOLD = "compare: bits of A in 'setp.gt.u32 %p1, %r11, 5'"


@pytest.mark.parametrize(
    "put",
    [
        "{ .reg .b32 %seen; mov.b32 %seen, %r1; mov.b32 %r11, %seen; }",
        ".reg .b32 seen; mov.b32 seen, %r1; mov.b32 %r11, seen;",
        ".reg .b32 seen<4>; mov.b32 seen2, %r1; mov.b32 %r11, seen2;",
        "{ .reg .b32 %tid; mov.b32 %tid, %r1; mov.b32 %r11, %tid; }",
        "mov.b32 %r11, %r1; { setp.lt.u32 %p2, %r5, 99; @%p2 bra past; mov.b32 %r11, 0; past: }",
        "mov.b32 %r11, %r1; { { bra past; mov.b32 %r11, 0; past: } }",
    ],
)
def test_a_register_of_the_sources_own_is_followed_in_its_scope(put: str) -> None:
    assert check(operands=put + DECIDES).detail == TOLD


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("{ .reg .b32 %r<40>; mov.b32 %r11, 0; }",
         "unreadable: %r, a name of the compiler's, in '.reg .b32 %r<40>'"),
        ("{ .reg .pred %p1; }", "unreadable: %p1, a name of the compiler's, in '.reg .pred %p1'"),
        (".reg .v2 .b32 both; mov.b32 both.x, %r1;", "unreadable: .reg .v2 .b32 both"),
        ("mov.b32 %r11, %elsewhere;", "unreadable: the register %elsewhere"),
        ("{ .reg .b32 seen; mov.b32 seen, %r1; } mov.b32 %r11, seen;", "unreadable: the name seen"),
        ("bra nowhere;", "unreadable: the name nowhere"),
        ("@nothing bra on; on: mov.b32 %r11, %r1;", "unreadable: the name nothing"),
    ],
)  # fmt: skip
def test_a_name_that_nobody_knows_is_refused(put: str, told: str) -> None:
    assert check(operands=put).detail == told


def test_labels_of_a_scope_may_come_later_and_come_again() -> None:
    scope = "{ @%p1 bra over; mov.u32 %r3, 1; over: }"
    kernel = parse(f".visible .entry kernel() {{ .reg .pred %p<2>; {scope} {scope} over: ret; }}")
    assert kernel.labels == {"over@2": 2, "over@3": 4, "over": 4}
    targets = [ins.operands[0].name for ins in kernel.instructions if ins.opcode[0] == "bra"]
    assert targets == ["over@2", "over@3"]


def test_numbers_with_a_point_are_numbers() -> None:
    text = "createpolicy.fractional.L2::evict_first.b64 %rd11, {};"
    for written, bits in (("1.0", 0x3F800000), ("-0.5", 0xBF000000), ("1e-60", 1), ("0.0", 0)):
        kernel = parse(f".visible .entry kernel() {{ {text.format(written)} ret; }}")
        assert kernel.instructions[0].operands[1].value == bits
    assert number("0f3F800000") == 0x3F800000


@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("mov.u32 %r11, 0x46000000; prmt.b32 %r12, %r1, %r11, 0x7654;",
         "bits: bits of A in 'prmt.b32 %r12, %r1, %r11, 0x7654'"),
        ("mov.u32 %r11, 0x46000000; bfi.b32 %r12, %r1, %r11, 0, 16;",
         "bits: bits of A in 'bfi.b32 %r12, %r1, %r11, 0, 16'"),
        ("mov.u32 %r11, 0x4600; bfi.b32 %r12, %r11, %r1, 16, 16;",
         "bits: bits of A in 'bfi.b32 %r12, %r11, %r1, 16, 16'"),
        ("and.b32 %r11, %r1, 0xffff; mov.u32 %r12, 0x46000000; setp.gt.u32 %p1, %r4, 5;"
         "selp.b32 %r11, %r11, %r12, %p1; shr.u32 %r12, %r11, 16; shl.b32 %r12, %r12, 16;"
         "mov.b32 %f9, %r12; add.f32 %f1, %f1, %f9;",
         "arithmetic: a number in 'add.f32 %f1, %f1, %f9'"),
        ("mov.u16 %rs2, 0x4600; mov.b32 {%rs1,_}, %r1; mov.b32 %r11, {%rs1,%rs2};",
         "bits: a number in 'mov.b32 %r11, {%rs1,%rs2}'"),
        ("cvt.u64.u32 %rd4, %r4; shl.b64 %rd11, %rd4, 1; cvt.u32.u64 %r11, %rd11;"
         "mov.b32 %f9, %r11; add.f32 %f1, %f1, %f9;",
         "arithmetic: a number in 'add.f32 %f1, %f1, %f9'"),
        ("shl.b64 %rd11, %rd1, 1; cvt.u32.u64 %r11, %rd11; mov.b32 %f9, %r11;"
         "add.f32 %f1, %f1, %f9;", "address: of A, B or C as a number in 'shl.b64 %rd11, %rd1, 1'"),
        ("mov.f32 %f9, %f1; mov.f32 %f8, %f9; add.f32 %f1, %f1, %f8;",
         "arithmetic: a sum twice in 'add.f32 %f1, %f1, %f8'"),
        ("add.cc.u32 %r11, %r4, -1; addc.u32 %r12, 0, 0;",
         "unknown: an instruction that this gate does not follow in 'add.cc.u32 %r11, %r4, -1'"),
        ("ld.param.u32 %r11, [kernel_param_3+4];",
         "load: of a part of a parameter, in 'ld.param.u32 %r11, [kernel_param_3+4]'"),
        ("st.shared.f32 [%r8], %f1; ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r11}, [%r8];",
         "bits: a sum by other than 32 bits in 'ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16"),
        ("mov.b32 %r11, %f1; stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r8], {%r11};",
         "bits: a sum by other than 32 bits in 'stmatrix.sync.aligned.m8n8.x1.trans.shared.b16"),
        ("cvt.rn.f16x2.f32 %r11, %f1, %f2; st.shared.u32 [%r8], %r11;"
         "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd3], [%r8], 16;",
         "arithmetic: in memory, in 'cp.reduce.async.bulk.global"),
    ],
)  # fmt: skip
def test_what_would_hide_a_constant_or_a_sum_is_refused(put: str, told: str) -> None:
    verdict = check(sums=put)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail.startswith(told)


@pytest.mark.parametrize(
    "put",
    [
        {"operands": "prmt.b32 %r1, %r1, 0, 0x5410; prmt.b32 %r1, %r1, %r2, 0x5410;"},
        {"operands": "bfi.b32 %r11, %r1, 0, 16, 16; bfi.b32 %r1, %r1, %r11, 0, 16;"},
        {
            "sums": "st.shared.f32 [%r8], %f1;"
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r8];"
        },
    ],
)
def test_whole_elements_and_sums_still_move(put: dict[str, str]) -> None:
    assert check(**put).detail == ""


def test_a_tensor_map_is_named_and_never_read() -> None:
    verdict = check(workspace="ld.param.u32 %r11, [kernel_param_0];", **WAITS)
    assert (
        verdict.detail == "load: of a part of a parameter, in 'ld.param.u32 %r11, [kernel_param_0]'"
    )


PAIR = "again: ld.relaxed.gpu.global.v2.u32 {{%r20,%r21}}, [%rd9]; {} @%p1 bra again;"
MOST = "max.u32 %r22, %r20, %r21; setp.eq.s32 %p1, %r22, -1;"
ADDED = "mov.b32 %f9, %r20; add.f32 %f1, %f2, %f9; mov.b32 %f8, %r21; add.f32 %f2, %f1, %f8;"


def test_each_word_that_is_added_is_waited_for() -> None:
    """A kernel looked at three of four words, and the fourth had always come with them."""
    assert check(workspace=PAIR.format(MOST) + ADDED, **WAITS).detail == ""
    one = PAIR.format("setp.eq.s32 %p1, %r20, -1;")
    told = (
        "load: a word that is not waited for, in 'ld.relaxed.gpu.global.v2.u32 {%r20,%r21}, [%rd9]'"
    )
    assert check(workspace=one + ADDED, **WAITS).detail.startswith(told)


EACH = "setp.eq.s32 %p1, %r20, -1; setp.eq.s32 %p2, %r21, -1; "


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        (EACH + "or.pred %p1, %p1, %p2;", True),
        (EACH + "selp.u32 %r22, 1, 0, %p1; or.pred %p1, %p2, %p1;", True),
        (EACH + "or.pred %p1, %p1, %p2; selp.u32 %r22, 1, 0, %p1; setp.ne.u32 %p1, %r22, 0;", True),
        (EACH + "or.pred %p2, %p1, %p2; not.pred %p2, %p2; not.pred %p1, %p2;", True),
        ("or.b32 %r22, %r20, %r21; setp.eq.s32 %p1, %r22, -1;", True),
        ("and.b32 %r22, %r20, %r21; setp.eq.s32 %p1, %r22, -1;", False),
        (EACH + "and.pred %p1, %p1, %p2;", False),
        (EACH + "and.pred %p2, %p1, %p2; or.pred %p1, %p1, %p2;", False),
        (
            EACH + "or.pred %p1, %p1, %p2; selp.u32 %r22, 1, 0, %p1; setp.eq.u32 %p1, %r22, 0;",
            False,
        ),
        (EACH + "or.pred %p2, %p1, %p2; not.pred %p1, %p2;", False),
    ],
)
def test_a_wait_is_over_when_all_words_have_come(asked: str, passes: bool) -> None:
    """A kernel asked about each of two words, and waited until one of them had come."""
    added = "add: a word that may not have come, in 'add.f32 "
    detail = check(workspace=PAIR.format(asked) + ADDED, **WAITS).detail
    assert detail == "" if passes else added in detail


def test_a_word_that_is_loaded_again_is_asked_about_again() -> None:
    again = "ld.relaxed.gpu.global.u32 %r21, [%rd9+4];"
    waited = PAIR.format(MOST)
    assert check(workspace=waited + ADDED + again, **WAITS).detail == ""
    told = "add: a word that may not have come, in 'add.f32 %f2, %f1, %f8'"
    assert told in check(workspace=waited + again + ADDED, **WAITS).detail
    some = "setp.gt.s32 %p3, %r4, 9; @%p3 bra on; {} on: "
    assert told in check(workspace=waited + some.format(again) + ADDED, **WAITS).detail
    way = "setp.gt.s32 %p3, %r4, 9; @%p3 bra on; " + waited + " on: "
    assert told in check(workspace=way + ADDED, **WAITS).detail


def test_words_that_are_waited_for_are_loaded_strongly() -> None:
    both = PAIR.format(MOST) + ADDED
    for weak in ("ld.global", "ld.relaxed.cta.global"):
        detail = check(workspace=both.replace("ld.relaxed.gpu.global", weak), **WAITS).detail
        assert detail.startswith("order: a word that is waited for, weakly")


def test_words_that_are_waited_for_are_stored_strongly() -> None:
    drawn = (bases.draw(1, i, "sm90_splitk") for i in range(40))
    base = next(each for each in drawn if int(each.fields["grid"]["slices"]) > 1)
    made = planted("weaken", "st.relaxed.gpu.global.v4.u32", base=base).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert "order: a word that is waited for, weakly" in gate.check(fields, made.source).detail


def test_a_barrier_stands_where_no_operand_does() -> None:
    put = "st.shared.u32 [one], %r1; mbarrier.init.shared::cta.b64 [{}], 5;"
    assert check(operands=put.format("other")).detail == ""
    assert check(operands=put.format("one+64")).detail == ""
    told = "barrier: where bits of A may stand, in 'mbarrier.init.shared::cta.b64 [one], 5'"
    assert check(operands=put.format("one")).detail == told
