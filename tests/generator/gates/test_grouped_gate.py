"""The numeric gate of grouped kernels: a right one passes, and each wrong one is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates import grouped
from hgemm_packs.generator.gates.checker import NumericError
from hgemm_packs.generator.gates.grouped import GroupedLaunch
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAX_GROUPS, DimRange, GridRule, KernelEntry
from tests import fake_driver

CPU = torch.device("cpu")


def entry(layout: str = "nt") -> KernelEntry:
    genome = {"stages": 2, "tile_k": 64}
    grid, rows = GridRule(16, 32, True), DimRange(1, 1 << 24, 1)
    return fake_driver.entry(GROUPED_LAYOUT, layout, "bf16", genome=genome, grid=grid, m=rows)


def right(
    tokens: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, out: torch.Tensor
) -> None:
    start = 0
    for weight, end in zip(weights, ends.clamp(0, tokens.shape[0]).tolist(), strict=True):
        if end > start:
            out[start:end] = (tokens[start:end].float() @ weight.float()).to(out.dtype)
        start = end


def told(change: Callable[[torch.Tensor, int], torch.Tensor]) -> GroupedLaunch:
    """The right kernel, told other ends."""
    return lambda x, w, ends, out: right(x, w, change(ends, x.shape[0]), out)


def skip_empty(ends: torch.Tensor) -> torch.Tensor:
    """Ends of which no two are equal, as far as there are others."""
    return torch.cat([ends.unique(), ends[-1:].repeat(len(ends))])[: len(ends)]


def behind(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    """Stores whole tiles: rows behind the last group, too."""
    right(x, w, ends, out)
    last = int(ends.clamp(0, x.shape[0])[-1])
    out[last : last + 1] = 0


def outside(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    """Believes an end behind the last row."""
    right(x, w, ends, out)
    if int(ends.max()) > x.shape[0]:
        out.as_strided((1, out.shape[1]), (1, 1), out.storage_offset() + out.numel()).zero_()


def in_bf16(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    """Adds up in the type of the operands, half of K after half of K."""
    half = x.shape[1] // 2
    first = torch.empty_like(out)
    right(x[:, :half].contiguous(), w[:, :half], ends, first)
    right(x[:, half:].contiguous(), w[:, half:], ends, out)
    last = int(ends.clamp(0, x.shape[0])[-1])
    out[:last] += first[:last]


def leaky(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    """What a box brings of the next weight is multiplied by zeros, and so not nothing."""
    right(x, w, ends, out)
    last = int(ends.clamp(0, x.shape[0])[-1])
    out[:last] += (w.roll(-1, 0)[0, 0] * 0).to(out.dtype) if last else 0


def forgets(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    """Has room for fewer groups with tokens than a kernel takes: the last ones are left out."""
    right(x, w, ends, out)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    filled = int((ends > starts).sum())
    if filled > MAX_GROUPS - 64:
        out[-1] = 0


def changing(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
    right(x, w, ends, out)
    x[0, 0] += 1


WRONG: dict[str, tuple[GroupedLaunch, str]] = {
    "the next weight": (lambda x, w, e, out: right(x, w.roll(1, 0), e, out), "elements wrong"),
    "ends one too early": (told(lambda e, rows: (e - 1).clamp(0)), "elements wrong"),
    "ends one too late": (
        told(lambda e, rows: (e + 1).clamp(max=rows)),
        "elements wrong|guards touched|no group are written",
    ),
    "empty groups skipped": (told(lambda e, rows: skip_empty(e)), "elements wrong"),
    "rows behind": (behind, "guards touched|no group are written"),
    "ends outside": (outside, "ends outside.*guards touched"),
    "half sums": (in_bf16, "relative error|elements wrong"),
    "a list too short": (forgets, "a row in every group.*elements wrong"),
    "a neighbour's NaN": (leaky, "neighbours"),
    "changes tokens": (changing, "input elements changed"),
}


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_right_kernel_passes(layout: str) -> None:
    result = grouped.check(entry(layout), right, CPU, seed=3)
    assert result.shapes_tested > 50 and 0 < result.max_rel_err < 2.0**-8


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_found(what: str) -> None:
    launch, words = WRONG[what]
    with pytest.raises(NumericError, match=words):
        grouped.check(entry(), launch, CPU, seed=3)


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_what_the_sanitizer_watches_is_right_and_seen_when_it_is_not(layout: str) -> None:
    errors = list(grouped.run_small(entry(layout), right, "cpu", 1))
    assert len(errors) == 2 and all(0 < each < 2.4e-3 for each in errors)
    late = told(lambda ends, rows: (ends - 1).clamp(0))
    # Rows that nobody writes may hold NaN, which is no smaller error.
    assert not any(each <= 0.1 for each in grouped.run_small(entry(layout), late, "cpu", 1))


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_large_groups_are_sampled(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups met no problem that fills a card: an index in 32 bits passed the gate."""
    monkeypatch.setattr(grouped, "LARGE", ((3, 100, 16, 8), (7, 31, 24, 40)))
    grouped.check_large(grouped.GroupedChecker(entry(layout), right, CPU, 1))

    def late(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
        """The last weight of many is another's."""
        other = torch.cat([w[:-1], w[:1]]) if len(w) == 7 else w
        right(x, other, ends, out)

    with pytest.raises(NumericError, match=r"^large, 7 groups of 31x24x40: \d+ elements wrong in"):
        grouped.check_large(grouped.GroupedChecker(entry(layout), late, CPU, 1))
    with pytest.raises(NumericError, match=r"^large, 3 groups of 100x16x8: 0 elements unwritten"):
        grouped.check_large(grouped.GroupedChecker(entry(layout), behind, CPU, 1))


def test_lists_of_the_size_gate_are_run() -> None:
    """A kernel that was wrong behind forty groups without rows passed: what the size gate saw of
    such a list ran on no GPU."""

    def launch(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, out: torch.Tensor) -> None:
        right(x, w, ends, out)
        if len(ends) > 40 and int(ends[39]) == 0 and int(ends[-1]) > 0:
            out[0] = 0

    with pytest.raises(NumericError, match=r"^list of N 8, K 8, 41 groups 64x8x8: 8 elements"):
        grouped.check(entry(), launch, CPU, seed=3)


def test_groups_within_fewer_ctas_are_right_too() -> None:
    grouped.check(entry(), right, CPU, 3, fewer=[right])
    with pytest.raises(NumericError, match=r"^many groups.*elements wrong"):
        grouped.check(entry(), right, CPU, 3, fewer=[right, WRONG["the next weight"][0]])


def test_groups_of_as_many_rows_are_expected_as_each_is() -> None:
    run, ends = grouped.GroupedChecker(entry(), right, CPU, 1), [2, 2, 5, 7, 10, 10]
    tokens, weights = run.operands(12, len(ends), 16, 24)
    exact, off = run.expect(tokens, weights, ends)
    wanted = [w for w, rows in zip(weights, (2, 0, 3, 2, 3, 0), strict=True) for _ in range(rows)]
    product = torch.stack([x.double() @ w.double() for x, w in zip(tokens, wanted, strict=False)])
    assert torch.allclose(exact, product, rtol=1e-12) and bool((off > 0).all())


def test_sizes_that_the_size_gate_asks_for_are_run() -> None:
    """A kernel of groups that left one row of tokens out, or many columns, passed: its gate asked
    nobody what the kernel compares."""

    def leaving(left_out: Callable[[torch.Tensor, torch.Tensor], bool]) -> GroupedLaunch:
        def launch(x: torch.Tensor, w: torch.Tensor, e: torch.Tensor, out: torch.Tensor) -> None:
            if not left_out(x, w):
                right(x, w, e, out)

        return launch

    one_row = leaving(lambda x, w: x.shape[0] == 1)
    wide = leaving(lambda x, w: w.shape[2] > 1 << 11)
    for launch in (one_row, wide):
        grouped.check(entry(), launch, CPU, seed=3)
    with pytest.raises(NumericError, match=r"^M 1, N 16, K 8, 3 groups 1x16x8: "):
        grouped.check(entry(), one_row, CPU, 3, planned=[(7, 16, 8), (1, 16, 8)])
    with pytest.raises(NumericError, match=r"^large, 1 groups of 9x2056x8: "):
        grouped.check(entry(), wide, CPU, 3, large=[(9, 2056, 8)])
    asked = {"planned": [(7, 16, 8), (1, 16, 8)], "large": [(9, 2056, 8)]}
    grouped.check(entry(), right, CPU, 3, **asked)  # type: ignore[arg-type]
