"""Values of matmul, run by kernels of the stand-in driver from real torch tensors, against the
float64 product; and which calls get a kernel at all.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.manifest import MAPPED, WITH_ADDEND, GridRule, TensorMapSpec
from tests import reference, shapes
from tests.fake_driver import Started

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
PARAM_LAYOUTS = tuple(WITH_ADDEND)


def hits(fake: Started, count: int = 1) -> None:
    """All calls so far were run by a kernel."""
    assert launcher.counters() == {"hits": count, "launches": count, "fallbacks": 0}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", PARAM_LAYOUTS)
def test_every_kind_of_kernel(fake: Started, param_layout: str, layout: str, dtype: str) -> None:
    fake.serve(param_layout, layout, dtype)
    a, b = reference.cancelling(72, 40, 96, layout, DTYPES[dtype])
    c = fake.matmul(a, b)
    assert type(c) is torch.Tensor and c.dtype == a.dtype and c.is_contiguous()
    reference.assert_exact(c, a, b)

    a, b = reference.normal(72, 40, 96, layout, DTYPES[dtype])
    out = torch.full((72, 40), torch.nan, dtype=DTYPES[dtype])
    assert fake.matmul(a, b, out=out) is out
    reference.assert_product(out, a, b)
    hits(fake, 2)


@pytest.mark.parametrize("param_layout", PARAM_LAYOUTS)
def test_grouped_rows_of_a_map(fake: Started, param_layout: str) -> None:
    maps = tuple(
        TensorMapSpec(x, (64, 64), 128, 32 if x == "b" else 0, 256) for x in MAPPED[param_layout]
    )
    fake.serve(param_layout, "nt", tma=maps)
    a, b = reference.cancelling(64, 96, 64, "nt", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    hits(fake)


def test_new_tensors_re_point_the_maps(fake: Started) -> None:
    fake.serve("tma3_v1")
    for seed in range(5):
        a, b = reference.cancelling(64, 64, 64, "nn", torch.float16, seed=seed)
        reference.assert_exact(fake.matmul(a, b), a, b)
    hits(fake, 5)
    assert fake.control.encodes == 3 and fake.control.loads == 1 and len(fake.asked) == 1


@pytest.mark.parametrize(
    ("changes", "mn", "grid", "cluster"),
    [
        ({}, (100, 72), 2 * 3, 1),
        ({"cluster": (2, 1, 1)}, (130, 72), 4 * 3, 2),
        ({"cluster": (1, 2, 1)}, (100, 72), 2 * 4, 2),
        ({"cluster": (1, 1, 4)}, (100, 72), 2 * 3 * 4, 4),
        ({"cluster": (4, 4, 1)}, (100, 72), 4 * 4, 16),
        ({"grid": GridRule(8, 8, True)}, (800, 96), 264, 1),
        ({"grid": GridRule(8, 8, True), "cluster": (2, 1, 1)}, (800, 96), 132, 2),
        ({"grid": GridRule(8, 8, True), "cluster": (2, 1, 1)}, (80, 96), 10 * 12, 2),
    ],
)
def test_grid_rule(
    fake: Started, changes: dict[str, object], mn: tuple[int, int], grid: int, cluster: int
) -> None:
    fake.serve("tma2_v1", **changes)
    a, b = reference.cancelling(*mn, 16, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert (fake.control.grid, fake.control.cluster) == (grid, cluster)


def test_launch_attributes(fake: Started) -> None:
    fake.serve("tma2_v1", block=384, smem_bytes=200000)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    control = fake.control
    assert (control.pdl, control.block, control.smem_bytes) == (0, 384, 200000)


def test_a_row_says_how_its_kernel_is_launched(fake: Started) -> None:
    """One kernel, loaded once for each way of launching it and not for each problem."""
    fake.serve("tma2_v1")
    fake.dependent = lambda problem: problem.m >= 64
    sizes = (64, 32, 64, 96, 16, 96)
    for number in (0, 1):
        fake.capture(number)
        for i, m in enumerate(sizes):
            a, b = reference.cancelling(m, 64, 64, "nn", torch.float16)
            reference.assert_exact(fake.matmul(a, b), a, b)
            assert fake.control.pdl == (number and i and m >= 64)
    assert fake.control.loads == 2 and len(fake.asked) == len(set(sizes))
    hits(fake, 2 * len(sizes))


def test_a_capture_waits_for_its_own_way_of_launching(fake: Started) -> None:
    """What is loaded to be launched plainly is not there to be launched dependently."""
    fake.serve("tma2_v1")
    fake.dependent = lambda problem: problem.m >= 64
    few, many = (reference.cancelling(m, 64, 64, "nn", torch.float16) for m in (32, 64))
    reference.assert_exact(fake.matmul(*few), *few)
    fake.capture(1)
    reference.assert_exact(fake.matmul(*many), *many)
    assert fake.control.loads == 1 and fake.fallbacks() == {"cold_capture": 1}
    fake.capture(0)
    reference.assert_exact(fake.matmul(*many), *many)
    fake.capture(2)
    for one in (few, many):
        reference.assert_exact(fake.matmul(*one), *one)
    assert fake.control.loads == 2 and fake.control.pdl == 1


@pytest.mark.parametrize("lead", [(3,), (2, 3), (1, 3), (3, 1), (2, 1, 3), (1, 1)])
@pytest.mark.parametrize("with_out", [False, True])
def test_leading_dimensions(fake: Started, lead: tuple[int, ...], with_out: bool) -> None:
    fake.serve("tma3_v1", "nt")
    m = torch.Size(lead).numel()
    a, b = reference.cancelling(m * 8, 32, 64, "nt", torch.float16)
    x = a.view(*lead, 8, 64)
    out = torch.full((*lead, 8, 32), torch.nan, dtype=torch.float16) if with_out else None
    c = fake.matmul(x, b, out=out)
    assert c.shape == (*lead, 8, 32) and c.is_contiguous()
    assert out is None or c is out
    reference.assert_exact(c.view(-1, 32), a, b)
    hits(fake)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda x: x.transpose(0, 1), "layout"),
        (lambda x: x[:, ::2], "strided"),
        (lambda x: x[:, :, :32], "strided"),
        (lambda x: x[:1], None),
        (lambda x: x[:, :1], "strided"),
        (lambda x: x.expand(4, 8, 64) if x.shape[0] == 1 else x[:1].expand(4, 8, 64), "layout"),
    ],
    ids=["transposed", "every other row", "part of k", "one batch", "one row each", "expanded"],
)
def test_leading_dimensions_that_fold_or_not(
    fake: Started, make: Callable[[torch.Tensor], torch.Tensor], reason: str | None
) -> None:
    fake.serve("ptr_v1", "nn")
    x = make(reference.cancelling(32, 64, 64, "nn", torch.float16)[0].view(4, 8, 64))
    b = reference.cancelling(8, 24, x.shape[-1], "nn", torch.float16)[1]
    c = fake.matmul(x, b)
    assert c.shape == (*x.shape[:-1], 24)
    reference.assert_product(c.reshape(-1, 24), x.reshape(-1, x.shape[-1]), b)
    assert fake.fallbacks() == ({reason: 1} if reason else {})


@pytest.mark.parametrize("shape", shapes.EDGES, ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_degenerate_shapes(fake: Started, shape: shapes.Shape, layout: str) -> None:
    for each in ("nn", "nt", "tn", "tt"):
        fake.serve("ptr_v1", each)
    a, b = reference.normal(*shape, layout, torch.float16)
    out = torch.full(shape[:2], torch.nan, dtype=torch.float16)
    for c in (fake.matmul(a, b), fake.matmul(a, b, out=out)):
        assert c.shape == shape[:2]
        reference.assert_product(c, a, b)


def test_a_vector_has_one_layout(fake: Started) -> None:
    # Strides of a size-1 dimension mean nothing, so however a row came to be it is one problem.
    fake.serve("tma2_v1", "nn")
    a, b = reference.cancelling(1, 64, 128, "nn", torch.float16)
    rows = [a, a.t().contiguous().t(), a.as_strided((1, 128), (7, 1)), a.view(128, 1).t()]
    for row in rows:
        reference.assert_exact(fake.matmul(row, b), a, b)
    hits(fake, len(rows))
    assert len(fake.asked) == 1


def off_by_one(x: torch.Tensor) -> torch.Tensor:
    """The same values one element further, hence 2-byte aligned."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype)
    return room[1:].view(x.shape).copy_(x)


@pytest.mark.parametrize("operand", ["a", "b", "out"])
@pytest.mark.parametrize("kind", ["strided", "unaligned"])
def test_strided_and_unaligned_go_to_torch(fake: Started, operand: str, kind: str) -> None:
    fake.serve("ptr_v1", "nn")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    tensors = {"a": a, "b": b, "out": torch.full((64, 64), torch.nan, dtype=torch.float16)}
    x = tensors[operand]
    wide = torch.cat([x, x], dim=1)[:, :64]
    tensors[operand] = wide if kind == "strided" else off_by_one(x)
    reference.assert_exact(fake.matmul(tensors["a"], tensors["b"], out=tensors["out"]), a, b)
    assert fake.fallbacks() == {kind: 1}


def test_an_unaligned_leading_stride(fake: Started) -> None:
    fake.serve("ptr_v1", "nn")
    a, b = reference.cancelling(64, 64, 60, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    a, b = reference.cancelling(64, 60, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)  # C's rows are what is unaligned here
    assert fake.fallbacks() == {"unaligned": 2}
    assert [problem.align for problem in fake.asked] == [8, 8]


def test_keywords_and_none(fake: Started) -> None:
    fake.serve("ptr_v1", "nn")
    a, b = reference.cancelling(16, 16, 16, "nn", torch.float16)
    out = torch.empty(16, 16, dtype=torch.float16)
    for c in (
        fake.matmul(input=a, other=b),
        fake.matmul(a, other=b, out=None),
        fake.matmul(other=b, out=out, input=a),
        fake.matmul(**{"".join(["o", "ut"]): out}, input=a, other=b),
    ):
        reference.assert_exact(c, a, b)
    hits(fake, 4)


def test_parameters_are_tensors(fake: Started) -> None:
    fake.serve("ptr_v1", "nt")
    linear = torch.nn.Linear(64, 32, bias=False, dtype=torch.float16)
    a, b = reference.cancelling(16, 32, 64, "nt", torch.float16)
    with torch.no_grad():
        linear.weight.copy_(b.t())
        reference.assert_exact(fake.matmul(a, linear.weight.t()), a, b)
    hits(fake)


def test_the_context_follows_the_tensor(fake: Started) -> None:
    # No current context is what a fresh thread has; another device's is torch.cuda.device(1).
    fake.serve("tma3_v1", "nn")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    out = torch.empty(32, 32, dtype=torch.float16)
    fake.matmul(a, b)
    assert fake.control.pushes == 0
    for device in (-1, 1):
        fake.set_device(device)
        reference.assert_exact(fake.matmul(a, b), a, b)
        reference.assert_exact(fake.matmul(a, b, out=out), a, b)
        assert fake.current_device() == device
    hits(fake, 5)
    assert fake.control.pushes == 4


def test_a_thread_without_a_context_may_be_the_first_to_ask(fake: Started) -> None:
    """The driver encodes no tensor map without a context, so that torch ran the product: the first
    gradient of a thread of autograd's that had touched no device."""
    fake.serve("tma3_v1", "nn")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    fake.set_device(-1)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.current_device() == -1
    hits(fake)


def test_a_failed_launch_is_torchs_from_then_on(fake: Started) -> None:
    fake.serve("tma3_v1", "nn")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    fake.control.fail_launches = 1
    for _ in range(3):
        out = torch.full((32, 32), torch.nan, dtype=torch.float16)
        reference.assert_exact(fake.matmul(a, b, out=out), a, b)
    assert fake.fallbacks() == {"launch_failed": 3} and fake.control.launches == 0
    launcher.reset_table()
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 1


def test_a_spoilt_capture_spoils_no_kernel(fake: Started) -> None:
    fake.serve("tma3_v1", "nn")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    fake.control.capturing = 2
    reference.assert_exact(fake.matmul(a, b), a, b)
    fake.control.capturing = 0
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"launch_failed": 1} and launcher.counters()["hits"] == 2


def test_more_problems_than_the_table_holds(fake: Started) -> None:
    # Shapes that change at every call make the table start afresh; no two problems get confused.
    fake.serve("ptr_v1", "nn")
    side, runs = 33, 2
    a, b = reference.cancelling(side, side, side, "nn", torch.float16)
    a, b = a.flatten(), b.flatten()
    kernels = 0
    for run, m, n, k in product(range(runs), *[range(1, side + 1)] * 3):
        mine = n % 8 == k % 8 == 0
        if run and not mine:
            continue
        x, y = a[: m * k].view(m, k), b[: k * n].view(k, n)
        c = fake.matmul(x, y)
        if mine:
            kernels += 1
            assert torch.equal(c, (x.double() @ y.double()).half())
    assert len(fake.asked) > side**3 > 32768
    assert launcher.counters()["hits"] == kernels == runs * side * 4 * 4
