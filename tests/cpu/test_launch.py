"""launcher.launch: this very kernel or an error, on the operands it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.manifest import WITH_ADDEND, DimRange, GridRule
from tests import fake_driver, reference
from tests.fake_driver import Started

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def loaded(param_layout: str, layout: str = "nn", dtype: str = "f16", **changes: Any) -> Any:
    image = fake_driver.image("kernel", param_layout, layout, dtype)
    return launcher.load(0, fake_driver.entry(param_layout, layout, dtype, image, **changes), image)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", WITH_ADDEND)
def test_packed_and_strided_operands(bare: Started, param_layout: str, layout: str) -> None:
    kernel = loaded(param_layout, layout)
    a, b = reference.cancelling(48, 40, 64, layout, torch.float16)
    out = torch.full((48, 40), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)

    def spread(x: torch.Tensor) -> torch.Tensor:
        """The same values with twice the leading stride."""
        rows = x if x.stride(1) == 1 else x.t()
        spaced = torch.cat([rows, rows], dim=1)[:, : rows.shape[1]]
        return spaced if x.stride(1) == 1 else spaced.t()

    target = torch.full((48, 80), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, spread(a), spread(b), target[:, 40:])
    reference.assert_exact(target[:, 40:], a, b)
    assert torch.isnan(target[:, :40]).all()
    assert launcher.counters() == {"hits": 0, "launches": 2, "fallbacks": 0}


REFUSED: dict[str, tuple[Callable[[Operands], Any], str]] = {
    "dtype": (lambda x: (x[0].bfloat16(), x[1], x[2]), "a must be a 2-D tensor of the kernel's"),
    "float": (lambda x: (x[0], x[1].float(), x[2]), "b must be"),
    "rank": (lambda x: (x[0], x[1], x[2][None]), "out must be"),
    "device": (lambda x: (x[0], x[1], x[2].to("meta")), "out must be"),
    "list": (lambda x: (x[0].tolist(), x[1], x[2]), "a must be"),
    "storage of a": (lambda x: (x[0].t().contiguous().t(), x[1], x[2]), "a is not stored"),
    "storage of b": (lambda x: (x[0], x[1].t().contiguous().t(), x[2]), "b is not stored"),
    "storage of out": (lambda x: (x[0], x[1], x[2].t().contiguous().t()), "out is not stored"),
    "shapes": (lambda x: (x[0][:, :32], x[1], x[2]), "do not fit"),
    "shape of out": (lambda x: (x[0], x[1], x[2][:8]), "do not fit"),
    "too few rows": (lambda x: (x[0][:8], x[1], x[2][:8]), "M=8: this kernel takes 16 to 64"),
    "steps of n": (lambda x: (x[0], x[1][:, :36], x[2][:, :36]), "N=36: .* in steps of 8"),
    "alignment": (lambda x: (x[0], x[1], torch.empty(48 * 40 + 1).half()[1:].view(48, 40)), "C is"),
    "leading stride": (lambda x: (torch.cat([x[0], x[0][:, :1]], 1)[:, :64], *x[1:]), "A is not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernel_does_not_take(bare: Started, name: str) -> None:
    kernel = loaded("tma2_v1", m=DimRange(16, 64, 1))
    a, b = reference.cancelling(48, 40, 64, "nn", torch.float16)
    out = torch.full((48, 40), torch.nan, dtype=torch.float16)
    change, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        launcher.launch(kernel, *change((a, b, out)))
    assert torch.isnan(out).all() and bare.control.launches == 0
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)


def test_a_kernel_of_another_sort(bare: Started) -> None:
    a, b = reference.cancelling(48, 40, 64, "nn", torch.float16)
    with pytest.raises(TypeError, match="a Kernel"):
        launcher.launch("kernel", a, b, a)  # type: ignore[arg-type]


def test_a_failed_launch_raises(bare: Started) -> None:
    kernel = loaded("ptr_v1")
    a, b = reference.cancelling(48, 40, 64, "nn", torch.float16)
    out = torch.full((48, 40), torch.nan, dtype=torch.float16)
    bare.control.fail_launches = 1
    with pytest.raises(RuntimeError, match="CUDA_ERROR_LAUNCH_FAILED"):
        launcher.launch(kernel, a, b, out)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)


@pytest.mark.parametrize(
    ("m", "persistent", "pdl", "cluster"),
    [(256, True, True, 2), (192, True, True, 1), (256, False, True, 1), (256, True, False, 1)],
    ids=["pairs", "odd grid", "not persistent", "not dependent"],
)
def test_persistent_kernels_are_launched_dependent_in_pairs(
    bare: Started, m: int, persistent: bool, pdl: bool, cluster: int
) -> None:
    image = fake_driver.image("kernel", "tma2_v1")
    rule = GridRule(64, 32, persistent, 1)
    kernel = launcher.load(0, fake_driver.entry("tma2_v1", cubin=image, grid=rule), image, pdl)
    a, b = reference.cancelling(m, 32, 64, "nn", torch.float16)
    out = torch.full((m, 32), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)
    assert (bare.control.grid, bare.control.cluster) == (m // 64, cluster)


def test_pairs_of_a_full_device_are_those_the_driver_fits(bare: Started) -> None:
    bare.control.clusters = 3
    image = fake_driver.image("kernel", "tma2_v1")
    entry = fake_driver.entry("tma2_v1", cubin=image, grid=GridRule(64, 32, True, 1))
    kernel = launcher.load(0, entry, image, True)
    a, b = reference.cancelling(7 * 64, 32, 64, "nn", torch.float16)
    launcher.launch(kernel, a, b, torch.empty(7 * 64, 32, dtype=torch.float16))
    assert (kernel.max_ctas, bare.control.grid, bare.control.cluster) == (6, 6, 2)


@pytest.mark.parametrize(
    ("persistent", "reads_ahead", "pdl", "tiles", "most", "grid"),
    [
        (True, True, False, 400, 264, 132),
        (True, True, True, 96, 62, 32),  # 16 of 31 pairs, of three tiles a CTA
        (True, True, True, 97, 62, 62),
        (True, True, True, 400, 62, 62),
        (True, False, False, 400, 264, 264),
        (True, False, True, 400, 62, 62),
        (False, True, False, 400, 264, 400),
        (False, True, True, 400, 264, 400),
    ],
)
def test_a_persistent_kernel_that_reads_ahead_leaves_half_of_the_room(
    bare: Started, persistent: bool, reads_ahead: bool, pdl: bool, tiles: int, most: int, grid: int
) -> None:
    """To the next one, which reads while this one still multiplies: it would have none. But where
    CTAs of a dependent grid have many tiles, SMs that none of them got would wait for long."""
    bare.control.clusters = 31
    image = fake_driver.image("kernel", "tma2_v1")
    changes = {"grid": GridRule(8, 8, persistent, 1), "reads_ahead": reads_ahead}
    entry = fake_driver.entry("tma2_v1", cubin=image, **changes)
    kernel = launcher.load(0, entry, image, pdl)
    a, b = reference.cancelling(8 * tiles, 8, 64, "nn", torch.float16)
    out = torch.full((8 * tiles, 8), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)
    assert (kernel.max_ctas, bare.control.grid) == (most, grid)


def test_a_kernel_within_fewer_ctas_is_launched_as_on_a_smaller_device(bare: Started) -> None:
    bare.control.clusters = 31
    image = fake_driver.image("kernel", "tma2_v1")
    changes = {"grid": GridRule(8, 8, True, 1), "cluster": (2, 1, 1)}
    kernel = launcher.load(0, fake_driver.entry("tma2_v1", cubin=image, **changes), image)
    few = kernel.within(7)
    a, b = reference.cancelling(800, 8, 64, "nn", torch.float16)
    for each, most in ((few, 6), (kernel, 62), (few, 6)):
        out = torch.full((800, 8), torch.nan, dtype=torch.float16)
        launcher.launch(each, a, b, out)
        reference.assert_exact(out, a, b)
        assert (each.max_ctas, bare.control.grid) == (most, most)
    for wrong in (1, 63):
        with pytest.raises(ValueError, match=f"^{wrong} of 62 CTAs"):
            kernel.within(wrong)
    with pytest.raises(TypeError):
        kernel.within("7")  # type: ignore[arg-type]


@pytest.mark.parametrize(("clusters", "grid"), [(1, 4), (2, 4), (5, 12)])
def test_half_of_the_room_is_of_whole_clusters(bare: Started, clusters: int, grid: int) -> None:
    bare.control.clusters = clusters
    image = fake_driver.image("kernel", "tma2_v1")
    rule = GridRule(64, 32, True, 1)
    changes = {"grid": rule, "cluster": (2, 2, 1), "reads_ahead": True}
    entry = fake_driver.entry("tma2_v1", cubin=image, **changes)
    a, b = reference.cancelling(6 * 64, 64, 64, "nn", torch.float16)
    for pdl in (False, True):
        kernel = launcher.load(0, entry, image, pdl)
        launcher.launch(kernel, a, b, torch.empty(6 * 64, 64, dtype=torch.float16))
        assert (kernel.max_ctas, bare.control.grid) == (4 * clusters, grid)
