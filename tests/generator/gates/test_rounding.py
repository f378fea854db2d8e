"""The rounding model: what may come of a sum in fp32, and what may not."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import silu

from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.rounding import (
    SILU_VANISHES,
    Accepted,
    _as_float32_holds,
    _silu_off,
    are_right,
    finish_exactly,
    most_error,
    sums_off,
)
from hgemm_packs.generator.gates.values import places
from tests.generator.gates.test_numeric_epilogue import entry_of
from tests.generator.redteam.cheats import Tensor, made_up, product

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
NAN, INF = math.nan, math.inf


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def right(dtype: str, got: list[float], exact: float, off: float = 0.0) -> list[bool]:
    each = torch.tensor(got, dtype=torch.float64).to(TYPES[dtype])
    return are_right(each, torch.full(each.shape, exact).double(), column(off)).tolist()


@pytest.mark.parametrize(
    ("dtype", "exact", "nearest", "beside"),
    [
        ("f16", 1.0 + 2.0**-11, 1.0, 1.0 + 2.0**-10),
        ("f16", 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-9, 1.0 + 2.0**-10),
        ("f16", 2049.0, 2048.0, 2050.0),
        ("f16", 65519.0, 65504.0, INF),
        ("f16", 65520.0, INF, 65504.0),
        ("f16", -65520.0, -INF, -65504.0),
        ("f16", 3 * 2.0**-25, 2.0**-23, 2.0**-24),
        ("f16", 2.0**-24, 2.0**-24, 0.0),
        ("bf16", 257.0, 256.0, 258.0),
        ("bf16", 2.0**128 - 2.0**119, INF, 2.0**128 - 2.0**120),
        ("bf16", 2.0**-133, 2.0**-133, 0.0),
        ("f16", 0.0, 0.0, -0.0),
        ("f16", -0.0, -0.0, 0.0),
        ("f16", -(2.0**-30), -0.0, 0.0),
        ("f16", INF, INF, NAN),
        ("f16", -INF, -INF, INF),
        ("f16", NAN, NAN, INF),
    ],
)
def test_a_sum_that_is_known_has_one_result(
    dtype: str, exact: float, nearest: float, beside: float
) -> None:
    assert right(dtype, [nearest, beside], exact) == [True, False]


def test_both_sides_of_an_edge_are_right_where_the_sum_may_be_on_either() -> None:
    assert right("f16", [65472.0, 65504.0, INF, NAN], 65519.5, 1.0) == [False, True, True, False]
    assert right("f16", [2046.0, 2048.0, 2050.0, 2052.0], 2049.0, 0.1) == [False, True, True, False]
    assert right("f16", [0.0, -0.0], 2.0**-40, 2.0**-30) == [True, True]
    assert right("f16", [0.0, -0.0], 2.0**-40, 2.0**-41) == [True, False]


def test_where_nobody_knows_a_number_is_anything_and_an_infinity_no_number() -> None:
    assert right("bf16", [1.0, INF, NAN], 0.0, INF) == [True, True, True]
    assert right("bf16", [1.0, INF, -INF, NAN], -INF, INF) == [False, True, True, True]


def sums_and_distances() -> tuple[Tensor, Tensor]:
    """Each of many sums with each of many distances: zeros, ends of the types, ties, numbers of all
    sizes, specials."""
    sizes = [0.0, 2.0**-150, 2.0**-133, 2.0**-40, 2.0**-25, 2.0**-24, 3 * 2.0**-25, 2.0**-14]
    sizes += [1.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 257.0, 2049.0, 65503.0, 65519.5, 65520.0]
    sizes += [2.0**127, 2.0**128 - 2.0**119, 2.0**128, 2.0**200, INF, NAN]
    offs = [0.0, 2.0**-150, 2.0**-40, 2.0**-25, 3 * 2.0**-25, 2.0**-11, 0.1, 1.0, 65519.5]
    offs += [2.0**120, 2.0**128, INF, NAN]
    exact = column(*sizes, *(-each for each in sizes))
    both = torch.cartesian_prod(exact, column(*offs, *sizes[1:-2]))
    return both[:, :1], both[:, 1:]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_keys_say_what_the_rounding_model_says_of_all_bits(dtype: str) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16)
    exact, off = sums_and_distances()
    for one, by in zip(exact.split(32), off.split(32), strict=True):
        accepted = Accepted(one, by, TYPES[dtype])
        each = bits.expand(len(one), -1)
        assert torch.equal(accepted.are_right(each), are_right(each.view(TYPES[dtype]), one, by))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_of_a_part_the_error_is_that_of_its_normal_numbers(dtype: str) -> None:
    generator = torch.Generator().manual_seed(3)
    exact = torch.randn(9, 16, generator=generator, dtype=torch.float64)
    exact[0, 0], exact[1, 1], exact[2, 2], exact[3, 3] = NAN, -INF, 2.0**-140, 1e39
    off = torch.full_like(exact, 2.0**-20)
    off[4, 4] = INF
    got = (exact + 2.0**-9 * torch.randn(9, 16, generator=generator)).to(TYPES[dtype])
    whole = Accepted(exact, off, TYPES[dtype])
    for rows, columns in ((9, 16), (5, 8), (2, 2)):
        part = whole.part(rows, columns)
        normal = torch.ones(9, 16, dtype=torch.bool)
        for i in range(5):
            normal[i, i] = False
        normal = normal[:rows, :columns]
        true = exact[:rows, :columns][normal]
        rounding, scale, count = part.facts()
        assert int(count) == int(normal.sum())
        assert float(scale) == pytest.approx(float(true.norm()), rel=1e-12)
        ideal = (true.to(TYPES[dtype]).double() - true).norm()
        assert float(rounding) == pytest.approx(float(ideal), rel=1e-12)
        error = (got[:rows, :columns][normal].double() - true).norm()
        assert float(part.error(got[:rows, :columns])) == pytest.approx(float(error), rel=1e-12)


def test_distance_grows_with_what_is_added() -> None:
    exact, magnitude = column(0.0), column(2.0**10)
    at = {k: float(sums_off(exact, magnitude, k)) for k in (16, 1024, 16384)}
    assert at[16] == pytest.approx(5 * 2.0**-12)
    assert at[16384] == pytest.approx(1028 * 2.0**-12)
    assert at[16] < at[1024] < at[16384]


def test_only_partial_sums_that_float32_does_not_hold_are_unknown() -> None:
    """Terms of one sign that overflow are sure to; terms of both may or may not; a sum of no
    terms, and one that is no number, are what they are."""
    large = 2.0**128
    exact = column(2 * large, large / 4, 0.0, large / 8, INF, NAN, 0.0)
    magnitude = column(2 * large, large * 3 / 4, 3 * large, 3 * large, INF, NAN, 0.0)
    off = sums_off(exact, magnitude, 16)
    assert torch.isinf(off).tolist() == [False, False, True, True, False, False, False]
    assert off[4:].tolist() == [0.0, 0.0, 0.0]


def test_sums_of_fp16_numbers_do_not_overflow_float32() -> None:
    """Of the largest, of specials, of nothing: what is not looked for is not there."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(24, 4096, generator=generator).half()
    a[0], a[1], a[2, 7], a[3, 9], a[4] = 65504.0, -65504.0, INF, NAN, 0.0
    a[5, ::2] = 65504.0
    a[5, 1::2] = -65504.0
    b = torch.randn(4096, 16, generator=generator).half()
    b[:, 0], b[5, 1], b[:, 2] = 65504.0, -INF, 0.0
    wide_a, wide_b = a.double(), b.double()
    product, magnitude = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
    for added in (0.0, torch.full((16,), 65504.0).double()):
        looked = sums_off(product, magnitude, 4096, added)
        assert torch.equal(looked, sums_off(product, magnitude, 4096, added, overflows=False))
        assert not bool(torch.isinf(looked).any())
    assert torch.equal(_as_float32_holds(product).nan_to_num(3.0), product.nan_to_num(3.0))


def gated(gate: float, up: float) -> tuple[Tensor, Tensor]:
    sums = column(gate, up)[None]
    return finish_exactly(entry_of("gated_silu"), sums, sums.abs(), 64, None)


@pytest.mark.parametrize("epilogue", ["bias_gelu", "bias_gelu_tanh", "bias_silu"])
def test_activations_of_sums_below_1_are_not_flushed(epilogue: str) -> None:
    """Exponentials vanish far below zero alone: a kernel that made zero of results below 1e-30
    passed the gate."""
    for sign in (1.0, -1.0):
        for size, zero_is_right in ((2.0**-110, False), (2.0**-128, False), (100.0, sign < 0)):
            sums, none = column(sign * size)[None], column(0.0)
            found = finish_exactly(entry_of(epilogue), sums, sums.abs(), 64, none)
            right = sums.bfloat16() / 2 if size < 1 else sums.bfloat16().relu()
            zero = torch.zeros_like(right) * sign
            assert are_right(right, *found).item()
            assert are_right(zero, *found).item() == zero_is_right


def moved(numbers: Tensor, ulps: float | Tensor) -> Tensor:
    """float32 numbers by so many units in their last place."""
    exponents = torch.floor(torch.log2(numbers.abs().double()))
    by = torch.where(torch.isfinite(exponents), torch.exp2(exponents - 23), 0.0)
    return (numbers.double() + ulps * by).float()


def test_silu_of_any_number_is_right_as_device_code_has_it() -> None:
    """expf and __fdividef by two units each, zero where the divisor is beyond 2^126, `__expf`, and
    a sigmoid that is flushed: half of the bound is left."""
    small = torch.exp2(torch.linspace(-140, 0, 20001))
    v = torch.cat([torch.linspace(-95, 95, 190001), -small, small])[None]
    exact, off = finish_exactly(entry_of("bias_silu"), v.double(), v.double().abs(), 0, column(0.0))
    own = _silu_off(v.double(), torch.zeros_like(off))
    exponential = torch.exp(-v.double()).float()
    found = [v / (1 + moved(exponential, 2 + 1.173 * v.abs()))]
    sigmoid = 1 / (1 + exponential)
    found.append(v * torch.where(sigmoid < 2.0**-126, 0.0, sigmoid))
    for first, second in ((-2, -2), (-2, 2), (0, 0), (2, -2), (2, 2)):
        divisor = 1 + moved(exponential, first)
        quotient = moved((v.double() / divisor.double()).float(), second)
        flushed = (divisor > 2.0**126) & torch.isfinite(divisor)
        got = torch.where(flushed, v * 0.0, quotient)
        error = (got.double() - exact).abs()
        assert float((error / own)[v > SILU_VANISHES].max()) < 0.5
        found.append(got)
    for got in found:
        for dtype in TYPES.values():
            assert bool(are_right(got.to(dtype), exact, off).all())


def test_silu_far_below_zero_is_off_by_its_own_size() -> None:
    """As large a share of the sum was let pass: at -17 that is all of silu."""
    for sums, rest in ((-12.0, 1e-3), (-17.0, 1e-3), (-60.0, 1e-2), (-85.0, 1e-2)):
        v = column(sums)[None]
        exact, off = finish_exactly(entry_of("bias_silu", "bf16"), v, v.abs(), 0, column(0.0))
        assert float(off) < rest * abs(float(exact))
        for share, fine in ((1.0, True), (1.02, False), (0.98, False), (0.0, False)):
            got = (exact * share).bfloat16()
            assert bool(are_right(got, exact, off)) == fine, (sums, share)


def test_silu_that_vanishes_is_a_zero_of_either_sign() -> None:
    for sums in (-88.0, -104.0, -800.0, -1e30):
        v = column(sums)[None]
        found = finish_exactly(entry_of("bias_silu", "bf16"), v, v.abs(), 0, column(0.0))
        for got, fine in ((0.0, True), (-0.0, True), (-1e-34, False), (math.nan, False)):
            assert bool(are_right(torch.full_like(v, got).bfloat16(), *found)) == fine, (sums, got)


def test_silu_of_a_sum_that_is_off_is_as_far_off_as_silu_goes() -> None:
    sums = torch.linspace(-30, 6, 3601).double()
    for far in (2.0**-12, 0.1, 1.0):
        by = torch.linspace(-far, far, 41).double()[:, None]
        most = (silu(sums + by) - silu(sums)).abs().amax(0)
        off = _silu_off(sums, torch.full_like(sums, far))
        assert bool((most <= off).all())
        assert float((off / most)[sums < -8].max()) < 1.2


def test_a_gate_that_vanishes_in_float32_makes_nan_of_an_infinity() -> None:
    """silu(-200) is 0 in float32 and not in float64, so that times an infinity it is NaN for a
    right kernel: the gate refused such in one seed of fourteen."""
    for gate, up, fine in (
        (-200.0, INF, [False, True, True]),
        (-88.0, -INF, [False, True, True]),
        (-80.0, INF, [False, True, False]),
        (3.0, -INF, [False, True, False]),
        (-INF, INF, [False, False, True]),
        (NAN, INF, [False, False, True]),
    ):
        exact, off = gated(gate, up)
        signed = math.copysign(INF, gate) * (1 if up > 0 else -1)
        got = torch.tensor([[0.0, signed, NAN]], dtype=torch.float16)
        assert are_right(got, exact, off)[0].tolist() == fine, (gate, up)


def float32_gate(a: Tensor, b: Tensor, c: Tensor) -> None:
    """As device code has it: exp overflows, and the gate is zero; in float64 it is not."""
    gate, up = product(a, b).chunk(2, dim=1)
    c.copy_(gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_gated_specials_are_right_in_float32_for_every_seed(dtype: str) -> None:
    for seed in range(40):
        run = Checker(entry_of("gated_silu", dtype), float32_gate, torch.device("cpu"), seed)
        places.check_specials(run)
        run.settle()


def test_an_operand_that_is_no_number_leaves_nothing_unknown() -> None:
    exact, off = finish_exactly(made_up(), column(INF, NAN, 1.0), column(INF, NAN, 1.0), 64, None)
    assert off[:2].tolist() == [0.0, 0.0] and float(off[2]) > 0
    assert torch.equal(exact.nan_to_num(5.0, 6.0), column(6.0, 5.0, 1.0))


def test_error_over_rounding_is_held_to_a_few_per_cent() -> None:
    """Up to 16384 of K a twentieth at most; beyond, what tensor cores lose by cutting off is as
    large as rounding."""
    ideal, many = 2.1e-4, 1 << 20
    over = {k: most_error(ideal, many, k, 1.03) / ideal for k in (64, 16384, 1 << 17)}
    assert 1.03 < over[64] < 1.036 and 1.04 < over[16384] < 1.045 and 1.3 < over[1 << 17] < 1.4
    few = most_error(ideal, 64, 64, 1.03) / ideal
    assert few - over[64] == pytest.approx(0.25 / 8, abs=1e-3)
