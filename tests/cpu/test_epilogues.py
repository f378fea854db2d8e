"""Single launches of kernels that add a residual, or whose C is of two halves of the columns."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.manifest import WITH_ADDEND
from tests import fake_driver, reference
from tests.cpu.call.captured import loaded, zeros
from tests.fake_driver import Started


def strided(rows: int, columns: int, lead: int, first: int) -> torch.Tensor:
    """Integers of which neighbours differ, rows `lead` apart."""
    values = torch.arange(first, first + rows * lead) % 61 - 30
    return values.half().view(rows, lead)[:, :columns]


@pytest.mark.parametrize("param_layout", WITH_ADDEND.values())
def test_a_residual_is_packed_whatever_c_is(bare: Started, param_layout: str) -> None:
    kernel = loaded(0, False, param_layout, "nt", epilogue="residual")
    a, b = reference.cancelling(32, 40, 64, "nt", torch.float16)
    residual = strided(32, 40, 40, 7)
    for lead in (40, 56):
        out = torch.full((32, lead), torch.nan, dtype=torch.float16)
        launcher.launch(kernel, a, b, out[:, :40], addend=residual)
        exact = reference.product(a, b) + residual.double()
        assert torch.equal(out[:, :40], exact.half()) and bool(out[:, 40:].isnan().all())
    said = "a packed residual of 32x40 of the kernel's dtype"
    for wrong in (
        *(residual[:8], residual[0], strided(32, 40, 56, 7), residual.bfloat16()),
        strided(33, 40, 40, 0).reshape(-1)[4 : 32 * 40 + 4].view(32, 40),
    ):
        with pytest.raises(ValueError, match=said):
            launcher.launch(kernel, a, b, out[:, :40], addend=wrong)
    with pytest.raises(ValueError, match=f"{param_layout} has an addend"):
        launcher.launch(kernel, a, b, out[:, :40])


@pytest.mark.parametrize("param_layout", WITH_ADDEND)
def test_a_gated_product_is_half_as_wide(bare: Started, param_layout: str) -> None:
    kernel = loaded(0, False, param_layout, "nt", epilogue="gated_silu")
    a, b = reference.cancelling(32, 96, 64, "nt", torch.float16)
    b = (b / 64).contiguous().t().contiguous().t()
    product = reference.product(a, b)
    exact = torch.nn.functional.silu(product[:, :48]) * product[:, 48:]
    out = torch.full((32, 64), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out[:, :48])
    assert torch.equal(out[:, :48], exact.half()) and bool(out[:, 48:].isnan().all())
    assert int((exact != 0).sum()) > 500
    with pytest.raises(ValueError, match="the shapes of a, b and out do not fit"):
        launcher.launch(kernel, a, b, zeros(32, 96))
    with pytest.raises(ValueError, match="has no addend"):
        launcher.launch(kernel, a, b, out[:, :48], addend=zeros(32, 48))


@pytest.mark.parametrize("param_layout", ["ptr_v1", "tma3_v1"])
def test_what_a_gated_kernel_writes_is_known(bare: Started, param_layout: str) -> None:
    """A kernel that reads ahead stays clear of its C and of nothing behind that."""
    ahead = loaded(0, True, layout="nt", reads_ahead=True)
    memory = zeros(64, 64).view(2, 32, 64)
    for place, pdl in ((memory[0], 0), (memory[1], 1)):
        bare.capture(7)
        first = loaded(0, False, param_layout, "nt", epilogue="gated_silu")
        launcher.launch(first, zeros(32, 64), zeros(128, 64).t(), memory[0])
        launcher.launch(ahead, place, zeros(40, 64).t(), zeros(32, 40))
        assert bare.control.pdl == pdl


@pytest.mark.parametrize(
    ("param_layout", "changes", "message"),
    [
        ("ptr_v1", {"epilogue": "residual"}, "ptr_v1 has no addend, the epilogue is residual"),
        ("ptr_v1_addend", {"epilogue": "gated_silu"}, "ptr_v1_addend has an addend"),
        ("ptr_v1_addend", {"epilogue": "relu"}, "epilogue relu is not known to this launcher"),
        (
            "ptr_v1",
            {"epilogue": "gated_silu", "n": fake_driver.DimRange(3, 9, 3)},
            "a gated kernel takes an even N",
        ),
    ],
)
def test_records_that_the_launcher_refuses(
    bare: Started, param_layout: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loaded(0, False, param_layout, "nt", **changes)
