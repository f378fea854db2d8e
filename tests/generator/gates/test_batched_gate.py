"""The numeric gate of batched kernels: a right one passes, and each wrong one is found."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.gates import batched
from hgemm_packs.generator.gates.checker import Launch, NumericError
from hgemm_packs.pack.manifest import OF_BATCH, DimRange, GridRule, KernelEntry
from tests import fake_driver

CPU = torch.device("cpu")
LAYOUTS = ("nn", "nt", "tn", "tt")


def entry(layout: str = "nt", adds: bool = False) -> KernelEntry:
    genome = {"stages": 2, "tile_k": 64}
    rows = DimRange(*((8, 1 << 24, 8) if layout[0] == "t" else (1, 1 << 24, 1)))
    steps = DimRange(8, 1 << 24, 8)
    kind = OF_BATCH["tma2_v1_addend" if adds else "tma2_v1"]
    return fake_driver.entry(
        kind, layout, "bf16", genome=genome, grid=GridRule(16, 32, True), m=rows, n=steps, k=steps
    )


def right(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *added: torch.Tensor) -> None:
    product = a.float() @ b.float()
    c.copy_(product + added[0].float() if added else product)


def neighbour(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 0)


def first_again(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """The last product is the first one's."""
    right(a, b, c)
    c[-1] = c[0]


def leaky(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """What a box brings from beyond K is multiplied by zeros, and so not nothing."""
    right(a, b, c)
    c += (a.roll(-1, 0)[:, :1, :1] * 0).to(c.dtype)


def low(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Leaves the last row of each product."""
    kept = c[:, -1].clone()
    right(a, b, c)
    c[:, -1] = kept


def far(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Stores a row more than there is, of the last product."""
    right(a, b, c)
    c.as_strided((c.shape[2],), (1,), c.storage_offset() + c.numel()).zero_()


def packed_alone(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Believes that matrices follow each other, whatever their strides are."""
    e, m, k = a.shape
    rows, step = (a.mT, a.stride(2)) if a.stride(1) == 1 else (a, a.stride(1))
    lead = (1, step) if a.stride(1) == 1 else (step, 1)
    end = a.storage_offset() + (e - 1) * m * k + (rows.shape[1] - 1) * step + rows.shape[2]
    if end <= a.untyped_storage().nbytes() // 2:
        a = a.as_strided(a.shape, (m * k, *lead))
    right(a, b, c)


def half(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Adds up in the type of the operands, half of K after half of K."""
    k = a.shape[2] // 2
    first = torch.empty_like(c)
    right(a[..., :k], b[:, :k], first)
    right(a[..., k:], b[:, k:], c)
    c += first


def changing(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    right(a, b, c)
    a[0, 0, 0] += 1


WRONG: dict[str, tuple[Launch, str]] = {
    "another A": (lambda a, b, c: right(neighbour(a), b, c), "elements wrong"),
    "another B": (lambda a, b, c: right(a, neighbour(b), c), "elements wrong"),
    "another C": (lambda a, b, c: right(neighbour(a), neighbour(b), c), "elements wrong"),
    "the last is the first": (first_again, "elements wrong"),
    "rows left out": (low, "elements wrong"),
    "a row too many": (far, "guards touched"),
    "strides not obeyed": (packed_alone, "elements wrong"),
    "half sums": (half, "relative error|elements wrong"),
    "a neighbour's NaN": (leaky, "neighbours|edges"),
    "changes A": (changing, "input elements changed"),
}


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_kernel_passes(layout: str, adds: bool) -> None:
    result = batched.check(entry(layout, adds), right, CPU, seed=3)
    assert result.shapes_tested > 70 and 0 < result.max_rel_err < 2.0**-8


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_found(what: str) -> None:
    launch, words = WRONG[what]
    with pytest.raises(NumericError, match=words):
        batched.check(entry(), launch, CPU, seed=3)


def test_a_sum_of_another_product_is_found() -> None:
    def wrong(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, more: torch.Tensor) -> None:
        right(a, b, c, neighbour(more))

    with pytest.raises(NumericError, match="elements wrong"):
        batched.check(entry(adds=True), wrong, CPU, seed=3)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_the_sanitizer_watches_is_right_and_seen_when_it_is_not(
    layout: str, adds: bool
) -> None:
    errors = list(batched.run_small(entry(layout, adds), right, "cpu", 1))
    assert len(errors) == 2 and all(0 < each < 2.4e-3 for each in errors)

    def wrong(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *more: torch.Tensor) -> None:
        right(a, neighbour(b), c, *more)

    assert min(batched.run_small(entry(layout, adds), wrong, "cpu", 1)) > 0.1


def test_a_driver_that_maps_no_matrix_for_all_is_no_mistake_of_a_kernel() -> None:
    refused: list[int] = []

    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        for x in (a, b):
            if x.stride(0) == 0:
                refused.append(x.shape[1])
                raise ValueError("tensor map of A: invalid argument")
        right(a, b, c)

    assert batched.check(entry(), launch, CPU, seed=3).shapes_tested > 70
    assert len(refused) == 2


def test_one_matrix_for_all_is_looked_at() -> None:
    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        right(a, b, c)
        if b.stride(0) == 0:
            c[1:] = 0

    with pytest.raises(NumericError, match="A in turn, B one for all"):
        batched.check(entry(), launch, CPU, seed=3)


@pytest.mark.parametrize("way", [*batched.WAYS, batched.ONE])
def test_a_way_keeps_the_values_and_has_nan_between(way: str) -> None:
    x = torch.arange(60.0).view(3, 4, 5)
    placed = batched.place_at(way, x)
    wanted = x[:1].expand(3, 4, 5) if way == "one for all" else x
    assert torch.equal(placed, wanted)
    whole = torch.empty(0).set_(placed.untyped_storage())
    gaps = {"apart": 15, "with gaps": 192}.get(way, 0)
    assert int(whole.isnan().sum()) == gaps


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_batches_are_sampled(
    layout: str, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches met no problem that fills a card: an index in 32 bits passed the gate."""
    monkeypatch.setattr(batched, "LARGE", ((40, 5, 40, 72), (3, 37, 16, 8)))
    run = batched.BatchedChecker(entry(layout, adds), right, CPU, seed=1)
    batched.check_large(run)

    def late(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *added: torch.Tensor) -> None:
        """The last product is that of the one before, where there are many."""
        right(a, b, c, *added)
        if len(c) == 40:
            c[-1] = c[-2]

    def leaves(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *added: torch.Tensor) -> None:
        kept = c[1, 3].clone()
        right(a, b, c, *added)
        c[1, 3] = kept

    m = 8 if layout[0] == "t" else 5
    for launch, told in (
        (late, rf"^large, 40 products of {m}x40x72: \d+ elements wrong in some rows"),
        (leaves, f"^large, 40 products of {m}x40x72: 40 elements unwritten, 0 guards touched"),
    ):
        with pytest.raises(NumericError, match=told):
            batched.check_large(batched.BatchedChecker(entry(layout, adds), launch, CPU, seed=1))


def test_each_product_of_a_large_batch_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that gave 64 of 2064 products the B of their neighbour passed: 8 were looked at."""
    monkeypatch.setattr(batched, "LARGE", ((3001, 5, 8, 8),))
    monkeypatch.setattr(batched, "COMPUTED", 1 << 15)  # 190 products at a time
    for adds in (False, True):
        batched.check_large(batched.BatchedChecker(entry(adds=adds), right, CPU, seed=1))

    for wrong in (0, 189, 190, 2031, 3000):

        def once(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, at: int = wrong) -> None:
            right(a, b, c)
            right(a[at : at + 1], b[at - 1][None], c[at : at + 1])

        with pytest.raises(
            NumericError, match=r"^large, 3001 products of 5x8x8: \d+ elements wrong"
        ):
            batched.check_large(batched.BatchedChecker(entry(), once, CPU, seed=1))


def test_sizes_that_the_size_gate_asks_for_are_run() -> None:
    """A kernel of batches that left products of many rows out passed: its gate took the problems of
    no other."""

    def late(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        if a.shape[1] <= 4096:
            right(a, b, c)

    batched.check(entry(), late, CPU, 3, planned=[(4096, 8, 8)])
    with pytest.raises(NumericError, match=r"^M 4104, N 8, K 8, 2 products of "):
        batched.check(entry(), late, CPU, 3, planned=[(4104, 8, 8)])
    with pytest.raises(NumericError, match=r"^large, 2 products of 4104x8x8: "):
        batched.check(entry(), late, CPU, 3, large=[(4104, 8, 8)])
    batched.check(entry(), right, CPU, 3, planned=[(4104, 8, 8)], large=[(4104, 8, 8)])


def test_batches_within_fewer_ctas_are_right_too() -> None:
    batched.check(entry(), right, CPU, 3, fewer=[right])
    with pytest.raises(NumericError, match=r"^many products.*elements wrong"):
        batched.check(entry(), right, CPU, 3, fewer=[right, lambda a, b, c: right(-a, b, c)])
