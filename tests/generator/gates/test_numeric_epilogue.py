"""The numeric gate over kernels with an epilogue: right ones pass, and what is left out, done
twice, done elsewhere or kept is caught."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import silu

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.gates import checker, numeric, sizes
from hgemm_packs.generator.gates.checker import Checker, Launch, Numeric, NumericError
from hgemm_packs.measure.epilogue import finish
from hgemm_packs.pack.manifest import DimRange, KernelEntry
from tests.generator.redteam.cheats import SMS, Tensor, made_up, product

WRONG = "elements wrong or unwritten"
BIASED = [name for name in computed.TABLE if name.startswith("bias")]


def entry_of(epilogue: str, dtype: str = "f16") -> KernelEntry:
    made = made_up(dtype=dtype)._replace(epilogue=epilogue)
    return made._replace(n=DimRange(16, 1 << 24, 16)) if epilogue == "gated_silu" else made


def gate(launch: Launch, entry: KernelEntry) -> Numeric:
    return numeric.check(entry, launch, torch.device("cpu"), SMS, 1)


def honest(epilogue: str) -> Launch:
    """Sums in fp32, rounded once: of a float32 infinity a CPU's functions are not all right."""
    return lambda a, b, c, more=None: c.copy_(finish(epilogue, product(a, b).double(), more))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("epilogue", computed.TABLE)
def test_fp32_passes(epilogue: str, dtype: str) -> None:
    # Of a C of few elements, and where sums that are nearly alike are rounded alike.
    bound = {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    assert 0 < gate(honest(epilogue), entry_of(epilogue, dtype)).max_rel_err < bound


@pytest.mark.parametrize("epilogue", BIASED)
def test_a_bias_that_is_left_out(epilogue: str) -> None:
    def ignores(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        c.copy_(finish(epilogue, product(a, b).double(), torch.zeros_like(bias)))

    with pytest.raises(NumericError, match=WRONG):
        gate(ignores, entry_of(epilogue))


@pytest.mark.parametrize("epilogue", BIASED[1:])
@pytest.mark.parametrize("other", BIASED)
def test_another_function(epilogue: str, other: str) -> None:
    if epilogue == other:
        return
    with pytest.raises(NumericError, match=WRONG):
        gate(honest(other), entry_of(epilogue))


def twice(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b) + 2 * bias.float())


def in_every_part_of_k(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    """As CTAs that share K would, where each adds it."""
    parts = zip(a.split(64, 1), b.split(64, 0), strict=True)
    c.copy_(sum(product(x, y) + bias.float() for x, y in parts))  # type: ignore[arg-type]


def of_the_column_beside(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b) + bias.float().roll(1))


def of_the_first_tile(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    first = bias[:16].float().repeat(-(-bias.numel() // 16))
    c.copy_(product(a, b) + first[: bias.numel()])


def but_for_the_last_columns(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    added = bias.float().clone()
    added[-8:] = 0
    c.copy_(product(a, b) + added)


def of_rows(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    """By the other coordinate, as an operand turned round would."""
    rows = bias.repeat(-(-a.shape[0] // bias.numel()))[: a.shape[0]]
    c.copy_(product(a, b) + rows.float()[:, None])


def after_rounding(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b).to(c.dtype) + bias)


def once_before_the_function_and_once_behind(a: Tensor, b: Tensor, c: Tensor, bias: Any) -> None:
    c.copy_((product(a, b) + bias.float()).relu() + bias.float())


WRONGLY = [
    *(twice, in_every_part_of_k, of_the_column_beside, of_the_first_tile),
    *(but_for_the_last_columns, of_rows, after_rounding),
    once_before_the_function_and_once_behind,
]


@pytest.mark.parametrize("kernel", WRONGLY)
def test_a_bias_that_is_added_wrongly(kernel: Launch) -> None:
    with pytest.raises(NumericError, match=WRONG):
        gate(kernel, entry_of("bias"))


def test_a_bias_that_is_kept_from_an_earlier_launch() -> None:
    """Read when its address is new alone."""
    kept: dict[tuple[int, int], Tensor] = {}

    def keeps(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        known = kept.setdefault((bias.data_ptr(), bias.numel()), bias.clone())
        c.copy_(product(a, b) + known.float())

    run = Checker(entry_of("bias"), keeps, torch.device("cpu"), 1)
    numeric.check_rewritten(run)
    with pytest.raises(NumericError, match=r"rewritten addend .*wrong or unwritten"):
        run.settle()


def test_a_bias_that_is_written() -> None:
    def writes(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        c.copy_(product(a, b) + bias.float())
        bias[-1] += 1

    with pytest.raises(NumericError, match="input elements changed"):
        gate(writes, entry_of("bias"))


def test_nan_that_the_function_drops() -> None:
    def drops(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        sums = product(a, b) + bias.float()
        c.copy_(torch.where(sums > 0, sums, torch.zeros_like(sums)))

    with pytest.raises(NumericError, match="specials"):
        gate(drops, entry_of("bias_relu"))


def with_a_shifted(rows: int, columns: int) -> Launch:
    def adds(a: Tensor, b: Tensor, c: Tensor, residual: Tensor) -> None:
        c.copy_(product(a, b) + residual.float().roll((rows, columns), (0, 1)))

    return adds


def as_a_bias(a: Tensor, b: Tensor, c: Tensor, residual: Tensor) -> None:
    c.copy_(product(a, b) + residual[0].float())


def with_the_stride_of_c(a: Tensor, b: Tensor, c: Tensor, residual: Tensor) -> None:
    """Which is wider than the residual's; the last rows it leaves out."""
    rows = residual.numel() // c.stride(0)
    moved = residual.as_strided((rows, c.shape[1]), (c.stride(0), 1), residual.storage_offset())
    sums = product(a, b)
    sums[:rows] += moved.float()
    c.copy_(sums)


def what_c_was(a: Tensor, b: Tensor, c: Tensor, residual: Tensor) -> None:
    """As a kernel whose residual is always C."""
    c.copy_(product(a, b) + c.float())


@pytest.mark.parametrize(
    "kernel",
    [
        *(with_a_shifted(*by) for by in ((1, 0), (8, 0), (0, 8))),
        *(as_a_bias, with_the_stride_of_c, what_c_was, after_rounding, twice, of_the_column_beside),
    ],
)
def test_a_residual_that_is_added_wrongly(kernel: Launch) -> None:
    with pytest.raises(NumericError, match=WRONG):
        gate(kernel, entry_of("residual"))


def test_a_residual_that_is_kept_from_an_earlier_launch() -> None:
    kept: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def keeps(a: Tensor, b: Tensor, c: Tensor, residual: Tensor) -> None:
        known = kept.setdefault((residual.data_ptr(), tuple(residual.shape)), residual.clone())
        c.copy_(product(a, b) + known.float())

    run = Checker(entry_of("residual"), keeps, torch.device("cpu"), 1)
    numeric.check_rewritten(run)
    with pytest.raises(NumericError, match=r"rewritten addend .*wrong or unwritten"):
        run.settle()


def halves(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    sums = product(a, b)
    return sums[:, : sums.shape[1] // 2], sums[:, sums.shape[1] // 2 :]


def swapped(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(silu(up) * gate)


def by_turns(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Gate and up in neighbouring columns, as other libraries store them."""
    sums = product(a, b)
    c.copy_(silu(sums[:, ::2]) * sums[:, 1::2])


def of_the_columns_beside(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(silu(gate) * up.roll(8, 1))


def without_the_function(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(gate * up)


def gated_by_a_sigmoid(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(gate.sigmoid() * up)


def of_rounded_sums(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = (half.to(c.dtype).float() for half in halves(a, b))
    c.copy_(silu(gate) * up)


def of_a_rounded_gate(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(silu(gate).to(c.dtype).float() * up)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "kernel",
    [
        *(swapped, by_turns, of_the_columns_beside, without_the_function),
        *(gated_by_a_sigmoid, of_rounded_sums, of_a_rounded_gate),
    ],
)
def test_a_gate_that_is_wrong(kernel: Launch, dtype: str) -> None:
    with pytest.raises(NumericError, match=WRONG):
        gate(kernel, entry_of("gated_silu", dtype))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_bound_of_gated_sums_holds_where_they_are_off(dtype: str) -> None:
    """Sums that are off by nine tenths of what fp32 in any order may make of them, the gate up and
    the other down or the other way round, pass; ten times as much does not."""

    def off(share: float) -> Launch:
        def kernel(a: Tensor, b: Tensor, c: Tensor) -> None:
            wide_a, wide_b = a.double(), b.double()
            much = share * (a.shape[1] / 16 + 4) * 2.0**-22 * (wide_a.abs() @ wide_b.abs())
            columns = c.shape[1]
            much[:, columns:] *= -1
            c.copy_(finish("gated_silu", wide_a @ wide_b + much, None))

        return kernel

    for share in (0.9, -0.9):
        run = Checker(entry_of("gated_silu", dtype), off(share), torch.device("cpu"), 1)
        run.product("off", *run.store(run.normal(48, 4096), run.normal(4096, 64)), allowed=1e3)
        run.settle()
    run = Checker(entry_of("gated_silu", dtype), off(10.0), torch.device("cpu"), 1)
    run.product("off", *run.store(run.normal(48, 4096), run.normal(4096, 64)), allowed=1e3)
    with pytest.raises(NumericError, match=WRONG):
        run.settle()


@pytest.mark.parametrize("where", ["row", "column", "element", "addend"])
@pytest.mark.parametrize("epilogue", ["residual", "gated_silu", "bias"])
def test_large_problems_are_held_to_their_epilogue(
    epilogue: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither rows nor columns of a large residual were looked at, nor columns of gated sums; then
    some rows and columns of all."""
    monkeypatch.setattr(sizes, "COMPUTED", 1 << 11)
    if where == "addend" and epilogue == "gated_silu":
        return
    right = honest(epilogue)

    def wrong(a: Tensor, b: Tensor, c: Tensor, *more: Tensor) -> None:
        if where == "addend" and c.shape[0] == 300:
            more = (torch.cat([more[0][..., :-1], more[0][..., :1]], -1),)
        right(a, b, c, *more)
        if where != "addend" and c.shape[0] == 300:
            part = {"row": c[-1], "column": c[:, -1], "element": c[123, 17:18]}[where]
            part += 1

    shapes = [(299, 48, 24), (300, 48, 24)]
    for launch, told in ((right, ""), (wrong, r"^large 300x48x24: \d+ elements wrong from row ")):
        run = Checker(entry_of(epilogue), launch, torch.device("cpu"), 1)
        if not told:
            sizes.check_large(run, shapes)
            continue
        with pytest.raises(NumericError, match=told):
            sizes.check_large(run, shapes)


def test_a_bias_is_as_long_as_the_largest_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem that fills a card has more columns than the bias that was drawn: an
    AssertionError ended the run of all classes."""
    monkeypatch.setattr(checker, "MOST_COLUMNS", 32)
    sizes.check_large(
        Checker(entry_of("bias"), honest("bias"), torch.device("cpu"), 1), [(40, 48, 16)]
    )


def test_a_residual_that_no_card_holds_is_left_out() -> None:
    fields = sizes.fields_of(made_up(grid={"tile_m": 256, "tile_n": 128, "persistent": True}))
    plain, added = ([*sizes.large({**fields, "epilogue": x})] for x in ("none", "residual"))
    left_out = [each[:3] for each in plain if each not in added]
    assert left_out == [(256 * 2049, 128 * 513, 8)]
