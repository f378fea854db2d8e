"""matmul of batches, run by kernels of the stand-in driver, against float64: which calls get a
kernel, however their operands lie, and which stay torch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.errors import FallbackError, InvariantError
from hgemm_packs.problem import Problem
from tests.cpu.batches.made import (
    DTYPES,
    WAYS,
    E,
    K,
    M,
    N,
    assert_batch,
    operands,
    stored,
    whole,
)
from tests.cpu.common.strictly import strict
from tests.fake_driver import Started

LAYOUTS = ("nn", "nt", "tn", "tt")
PRODUCTS = ("tma2_batched_v1", "tma3_batched_v1")


def serve_all(fake: Started, layout: str = "tma2_batched_v1") -> None:
    for kind in LAYOUTS:
        for dtype in DTYPES:
            fake.serve(layout, kind, dtype)


def hits(count: int = 1) -> bool:
    return launcher.counters() == {"hits": count, "launches": count, "fallbacks": 0}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("param_layout", PRODUCTS)
def test_every_kind_of_kernel(fake: Started, param_layout: str, layout: str, dtype: str) -> None:
    fake.serve(param_layout, layout, dtype)
    ways = ["packed" + (" by column" if each == "t" else "") for each in layout]
    a, b = operands(*ways, DTYPES[dtype])
    assert_batch(fake.matmul(a, b), a, b)
    out = torch.full((E, M, N), torch.nan, dtype=a.dtype)
    assert fake.matmul(a, b, out=out) is out
    assert_batch(out, a, b)
    assert hits(2)
    assert fake.asked == [Problem(M, N, K, layout, dtype, batches=E)]


@pytest.mark.parametrize("b_lies", WAYS)
@pytest.mark.parametrize("a_lies", WAYS)
def test_operands_may_lie_anyhow(fake: Started, a_lies: str, b_lies: str) -> None:
    serve_all(fake)
    a, b = operands(a_lies, b_lies)
    assert_batch(fake.matmul(a, b), a, b)
    assert hits()
    packed = all(way.startswith("packed") for way in (a_lies, b_lies))
    assert [each.packed for each in fake.asked] == [packed]


def test_other_strides_of_the_same_sizes_get_a_plan_of_their_own(fake: Started) -> None:
    serve_all(fake)
    for _ in range(2):
        for way in WAYS[::2]:
            a, b = operands(way, "packed")
            assert_batch(fake.matmul(a, b), a, b)
    assert hits(8) and len(fake.asked) == 4


def test_a_batch_is_another_problem_than_one_product_or_another_batch(fake: Started) -> None:
    serve_all(fake)
    for e in (2, 3, 2, 3):
        a, b = operands(e=e)
        assert_batch(fake.matmul(a, b), a, b)
    assert [each.batches for each in fake.asked] == [2, 3]
    one = fake.matmul(a[0], b[0])
    assert torch.equal(one.double(), (a[0].double() @ b[0].double()).half().double())
    assert launcher.counters()["hits"] == 4 and fake.fallbacks() == {"not_measured": 1}


def test_one_matrix_for_all_is_not_copied(fake: Started) -> None:
    serve_all(fake)
    a, b = operands()
    assert_batch(fake.matmul(a[:1], b), a[:1], b)
    assert_batch(fake.matmul(a, b[:1]), a, b[:1])
    assert_batch(fake.matmul(a, b[:1].expand(E, K, N)), a, b[:1])
    assert hits(3)


def test_more_leading_dimensions_are_one_where_strides_allow_it(fake: Started) -> None:
    serve_all(fake)
    a, b = operands(e=6)
    four = fake.matmul(a.view(2, 3, M, K), b.view(2, 3, K, N))
    assert four.shape == (2, 3, M, N)
    assert_batch(four.view(6, M, N), a, b)
    assert hits()


def test_results_stay_within_their_matrices(fake: Started) -> None:
    serve_all(fake)
    a, b = operands()
    a[2], b[3] = torch.nan, torch.inf
    found, exact = fake.matmul(a, b), (a.double() @ b.double()).half()
    assert torch.equal(found.isnan(), exact.isnan())
    assert torch.equal(found[:2], exact[:2]) and torch.equal(found[4], exact[4])
    assert hits()


def test_the_grid_is_that_of_all_products(fake: Started) -> None:
    """Tiles of 64 x 32, an SM each: two for a product of 12 x 40 until the device is full."""
    fake.serve("tma2_batched_v1")
    a, b = whole(30, M, K), whole(30, K, 40)
    fake.matmul(a, b)
    assert fake.control.grid == 60
    a, b = whole(2000, 1, K), whole(2000, K, 40)
    fake.matmul(a, b)
    assert fake.control.grid < 4000 and hits(2)


Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
TORCHS: dict[str, tuple[Call, str]] = {
    "one product": (lambda a, b: launcher.matmul(a[:1], b[:1]), "shape"),
    "a matrix and a batch": (lambda a, b: launcher.matmul(a[0], b), "shape"),
    "leading dimensions with gaps": (
        lambda a, b: launcher.matmul(torch.stack([a, a])[:, :3], torch.stack([b, b])[:, :3]),
        "layout",
    ),
    "other leading dimensions": (
        lambda a, b: launcher.matmul(a[:4].view(2, 2, M, K), b[:2].view(1, 2, K, N)),
        "mismatch",
    ),
    "unaligned steps": (lambda a, b: launcher.matmul(apart(a), b), "strided"),
    "K of no unit": (lambda a, b: launcher.matmul(a[..., :33], b[:, :33]), "not_measured"),
    "float32": (lambda a, b: launcher.matmul(a.float(), b.float()), "dtype"),
    "two types": (lambda a, b: launcher.matmul(a, b.bfloat16().half()), ""),
    "an output with gaps": (
        lambda a, b: launcher.matmul(a, b, out=a.new_empty(E, M, N + 8)[..., :N]),
        "strided",
    ),
    "a gradient": (
        lambda a, b: launcher.matmul(a.clone().requires_grad_(), b).detach(),
        "autograd",
    ),
    "a weight's gradient": (
        lambda a, b: launcher.matmul(a, b.clone().requires_grad_()).detach(),
        "autograd",
    ),
}


def apart(a: torch.Tensor) -> torch.Tensor:
    """Four elements from each matrix to the next one's beginning."""
    e, rows, columns = a.shape
    step = rows * columns + 4
    memory = a.new_zeros(e * step)
    view = memory.as_strided(a.shape, (step, columns, 1))
    return view.copy_(a)


@pytest.mark.parametrize("what", TORCHS)
def test_what_stays_torchs_has_its_values_and_a_reason(fake: Started, what: str) -> None:
    serve_all(fake)
    call, reason = TORCHS[what]
    a, b = operands()
    found = call(a, b)
    if not reason:
        assert_batch(found, a, b)
        assert hits()
        return
    assert fake.fallbacks() == {reason: 1} and launcher.counters()["hits"] == 0
    with hgemm_packs.disabled():
        assert torch.equal(found, call(a, b))


def test_sizes_that_do_not_fit_are_torchs_error(fake: Started) -> None:
    serve_all(fake)
    a, b = operands()
    for x, y in ((a, b[:3]), (a, b[:, :8]), (a[:0], b[:0])):
        try:
            wanted: object = torch.matmul(x, y)
        except RuntimeError as error:
            wanted = str(error)
        if isinstance(wanted, str):
            with pytest.raises(RuntimeError) as found:
                fake.matmul(x, y)
            assert str(found.value) == wanted
        else:
            assert torch.equal(fake.matmul(x, y), wanted)  # type: ignore[arg-type]
    assert launcher.counters()["hits"] == 0


def test_an_output_that_overlaps_an_operand_is_torchs(fake: Started) -> None:
    serve_all(fake)
    b, size = whole(E, K, K, seed=3), K * K

    def product() -> torch.Tensor:
        memory = whole(2 * E, K, K)
        fake.matmul(memory[:E], b, out=memory[E - 1 : 2 * E - 1])  # from the last of A on
        return memory

    found = product()
    assert fake.fallbacks() == {"out": 1}
    with hgemm_packs.disabled():
        assert torch.equal(found, product())
    memory = whole(2 * E * size)
    a, behind = memory[: E * size].view(E, K, K), memory[E * size :].view(E, K, K)
    assert_batch(fake.matmul(a, b, out=behind), a, b)
    assert launcher.counters()["hits"] == 1


def test_strict_and_the_batch_invariant_mode_raise(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.serve("tma2_batched_v1")
    a, b = operands("packed", "packed by column")
    strict(monkeypatch)
    with pytest.raises(FallbackError, match=rf"{E} of {M}x{N}x{K} nt f16"):
        fake.matmul(a, b)
    with hgemm_packs.options(batch_invariant=True), pytest.raises(InvariantError):
        fake.matmul(a, b)


def test_a_kernel_launched_alone_takes_three_dimensions(fake: Started) -> None:
    fake.serve("tma2_batched_v1_addend", epilogue="residual")
    entry = fake.kernels["nn", "f16", "residual"]
    kernel = launcher.load(0, entry, fake.pack.image(entry))
    a, b = operands("in turn", "apart")
    more, out = whole(E, M, N, seed=2), torch.full((E, M, N), torch.nan).half()
    launcher.launch(kernel, a, b, out, addend=more)
    assert_batch(out, a, b, more)
    for bad in (
        (a[0], b[0], out[0], more[0]),
        (a[:3], b, out, more),
        (a, b, out.mT.contiguous().mT, more),
        (a, b, out, more[:3]),
        (a, b, torch.empty(E, M, N + 8).half()[..., :N], more),
    ):
        with pytest.raises(ValueError):
            launcher.launch(kernel, *bad[:3], addend=bad[3])


def test_stored_is_what_it_says() -> None:
    x = whole(E, M, K)
    strides = {way: stored(x, way).stride() for way in WAYS[::2]}
    assert strides == {
        "packed": (M * K, K, 1),
        "apart": ((M + 3) * K, K, 1),
        "in turn": (K, E * K, 1),
        "with gaps": (M * (K + 8), K + 8, 1),
    }
    assert all(torch.equal(stored(x, way), x) for way in WAYS)
