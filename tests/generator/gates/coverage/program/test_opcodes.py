"""Instructions that make another number on a card than the machine has: modifiers and types that it
does not know, fields beyond a register's end, lanes that are clamped, the second of two results.
Each got through before."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage.program import arithmetic, slices, widths
from hgemm_packs.generator.gates.coverage.program.opcodes import is_known
from hgemm_packs.generator.gates.dataflow.program import webs
from hgemm_packs.generator.gates.dataflow.program.parse import Kernel, parse

UNKNOWN = (
    *("add.u16x2", "add.sat.s32", "add.ftz.f32", "add.rm.f32", "add.f64", "min.relu.s32"),
    *("min.s16x2", "mul.hi.f32", "mad.hi.s32", "mad.rn.f32", "fma.rz.f32", "div.approx.f32"),
    *("cvt.sat.u32.s32", "cvt.u8.u32", "cvt.rz.f32.s32", "cvt.f32.f32", "setp.neu.f32"),
    *("setp.eq.and.s32", "shfl.sync.up.b32", "ld.param.u16", "ld.const.v2.u32", "popc.b32"),
)
KNOWN = (
    *("add.s32", "add.rz.f32", "mul.wide.u16", "rcp.approx.ftz.f32", "cvt.rzi.u32.f32"),
    *("setp.eq.b32", "shfl.sync.idx.b32", "ld.param.s32", "cvta.to.global.u64", "and.pred"),
)


def _kernel(text: str) -> Kernel:
    return webs.split(parse(f".visible .entry k(.param .u32 size) {{ {text} ret; }}"))


def test_an_opcode_is_known_whole_or_not_at_all() -> None:
    assert [each for each in UNKNOWN if is_known(tuple(each.split(".")))] == []
    assert [each for each in KNOWN if not is_known(tuple(each.split(".")))] == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("bfe.s32 %r2, %r1, 24, 8;", True),
        ("bfe.s32 %r2, %r1, 24, 32;", False),
        ("bfi.b32 %r2, %r1, %r1, 4, 29;", False),
        ("shfl.sync.idx.b32 %r2, %r1, 5, 31, -1;", True),
        ("mov.u32 %r3, 31; shfl.sync.idx.b32 %r2, %r1, 5, %r3, -1;", True),
        ("shfl.sync.idx.b32 %r2, %r1, 5, 0, -1;", False),
        ("setp.ge.s32 %p1|%p2, %r1, 7; selp.u32 %r2, 1, 0, %p1;", True),
        ("setp.ge.s32 %p1|%p2, %r1, 7; selp.u32 %r2, 1, 0, %p2;", False),
        ("mov.u32 %r2, 0; setp.ge.s32 %p1|%p2, %r1, 7; @%p2 mov.u32 %r2, 1;", False),
    ],
)
def test_a_number_is_known_where_the_machine_makes_what_a_card_does(text: str, known: bool) -> None:
    kernel = _kernel(f"ld.param.u32 %r1, [size]; {text} st.shared.u32 [%r1], %r2;")
    (read,) = kernel.instructions[-2].operands[1].registers()
    assert (read in slices.cut(kernel).known) is known


def test_only_what_one_instruction_made_of_a_predicate_is_its_echo() -> None:
    once = "ld.param.u32 %r1, [size]; setp.gt.s32 %p1, %r1, 5; setp.gt.s32 %p2, %r1, 9;"
    asked = "setp.ne.s32 %p3, %r2, 0; @%p3 exit;"
    one, two = (
        _kernel(f"{once} selp.s32 %r2, 0, 1, %p1; {more} {asked}")
        for more in ("", "@%p2 selp.s32 %r2, 1, 0, %p1;")
    )
    assert len(slices.cut(one).observed) == 2
    assert len(slices.cut(two).observed) == 3


def test_bits_are_lost_from_registers_and_parameters_wider_than_a_type_and_beside_a_field() -> None:
    text = (
        "cvt.u32.u16 %r2, %r1; bfi.b32 %r3, %r1, %r2, 3, 11; bfi.b32 %r4, 1, %r2, 3, 11;"
        "ld.param.u32 %r5, [size];"
    )
    convert, insert, constant, load = parse(
        f".visible .entry k(.param .u64 size) {{{text}ret;}}"
    ).instructions[:-1]

    def lost(loses: widths.Loses | None, *values: int, kind: type = np.int32) -> bool:
        assert loses is not None
        numbers = [np.array([each], kind) for each in values]
        return loses(numbers, numbers[0])

    assert lost(widths.loses(convert), 1 << 16)
    assert not lost(widths.loses(convert), 65535)
    assert not lost(widths.loses(convert), -1, kind=np.int16)
    assert lost(widths.loses(insert), 1 << 11, 7)
    assert lost(widths.loses(insert), 5, 8), "of what the field is put into"
    assert not lost(widths.loses(insert), 2047, 7)
    assert lost(widths.loses(constant), 1, 8)
    assert widths.kept(insert) == 11
    assert lost(widths.cut_of(load), 1 << 32, kind=np.int64)
    assert not lost(widths.cut_of(load), 1 << 31, kind=np.int64)


def test_a_conversion_reads_the_lower_half_of_a_register() -> None:
    rule = arithmetic.rule_of(("cvt", "u32", "u16"))
    assert rule is not None
    assert rule(np.array([(3 << 16) + 65535], np.int32)).tolist() == [65535]


def test_a_reciprocal_flushes_what_is_too_small() -> None:
    rule = arithmetic.rule_of(("rcp", "approx", "ftz", "f32"))
    assert rule is not None
    assert rule(np.array([2.0, 1e-40, 3e38], np.float32)).tolist() == [0.5, float("inf"), 0.0]


def made(opcode: str, *numbers: float) -> float:
    rule = arithmetic.rule_of(tuple(opcode.split(".")))
    assert rule is not None
    return float(rule(*(np.array([each], np.float32) for each in numbers))[0])


def test_sums_of_floats_are_rounded_once() -> None:
    """By way of float64 what lies a little beyond halfway was halfway."""
    tiny = 2.0**-60
    assert made("fma.rn.f32", 172961, 97, tiny) == 16777218
    assert made("fma.rn.f32", 172961, 97, 0) == made("fma.rn.f32", 172961, 97, -tiny) == 16777216
    assert made("fma.rn.f32", 172961, -97, -tiny) == -16777218
    assert made("fma.rn.f32", 3e38, 3e38, 1) == float("inf")
    assert made("add.rz.f32", 1, -tiny) == 1 - 2.0**-24
    assert made("add.rz.f32", -1, tiny) == -1 + 2.0**-24
    assert made("add.rz.f32", 1, tiny) == 1
    assert made("add.rz.f32", 2.0**-25, 2.0**23) == 2.0**23


def test_a_reciprocal_is_off_by_a_unit_either_way_and_the_same_for_a_number() -> None:
    rule = arithmetic.rule_of(("rcp", "approx", "ftz", "f32"))
    assert rule is not None
    numbers = np.arange(1, 3001, dtype=np.float32)
    off = rule(numbers).view(np.int32) - (1 / numbers).view(np.int32)
    assert {*off.tolist()} == {-1, 0, 1}
    assert not off[[0, 1, 3, 7, 1023, 2047]].any(), "powers of two"
    assert rule(numbers[::-1]).tolist() == rule(numbers)[::-1].tolist()
    assert made("rcp.rn.f32", 3) == float(np.float32(1 / 3))


@pytest.mark.parametrize(
    ("text", "divides"),
    [
        ("shr.s32 %r3, %r2, 0;", False),
        ("shr.s32 %r3, %r2, 1;", True),
        ("and.b32 %r3, %r2, -1;", False),
        ("and.b32 %r3, %r2, -2;", True),
    ],
)
def test_a_sign_is_taken_for_a_division_by_two_or_more(text: str, divides: bool) -> None:
    kernel = _kernel(
        "ld.param.u32 %r1, [size]; shr.u32 %r4, %r1, 31; add.s32 %r2, %r1, %r4;"
        f"{text} st.shared.u32 [%r1], %r3;"
    )
    assert (1 not in slices.cut(kernel).observed) is divides
