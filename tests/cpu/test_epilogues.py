"""Single launches of kernels that add a residual, or whose C is of two halves of the columns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgemm_packs import launcher, selftest
from hgemm_packs.pack.manifest import MAPPED, WITH_ADDEND, TensorMapSpec
from hgemm_packs.problem import Problem
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


def test_the_map_of_b_brings_both_halves_by_turns(bare: Started) -> None:
    """The stand-in takes each row from where such a map says that it lies."""
    maps = tuple(
        TensorMapSpec(x, (64, 32), 128, 16 if x == "b" else 0, 128) for x in MAPPED["tma2_v1"]
    )
    kernel = loaded(0, False, "tma2_v1", "nt", epilogue="gated_silu", tma=maps)
    a, b = reference.cancelling(24, 96, 64, "nt", torch.float16)
    b = (b.t() / 64).contiguous().t()
    product = reference.product(a, b)
    exact = torch.nn.functional.silu(product[:, :48]) * product[:, 48:]
    out = torch.full((24, 48), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    assert torch.equal(out, exact.half())


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("epilogue", ["residual", "gated_silu"])
def test_selftest(
    bare: Started, epilogue: str, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that forgets the residual, or whose halves are exchanged, does not prove itself."""
    layout = "tma2_v1_addend" if epilogue == "residual" else "tma2_v1"
    entry = fake_driver.entry(layout, "nt", epilogue=epilogue)
    kernel = loaded(0, False, layout, "nt", epilogue=epilogue)
    problem = Problem(32, 96, 64, "nt", "f16", epilogue=epilogue)
    kept: list[str] = []
    monkeypatch.setattr(selftest, "keep_out", lambda root, kernel, reason: kept.append(reason))

    def wrong(kernel: object, a: Any, b: Any, c: Any, addend: Any) -> None:
        product = a.float() @ b.float()
        if epilogue == "gated_silu":
            product = torch.nn.functional.silu(product[:, 48:]) * product[:, :48]
        c.copy_(product)

    if right:
        selftest.prove(kernel, entry, problem, torch.device("cpu"))
    else:
        monkeypatch.setattr(launcher, "launch", wrong)
        with pytest.raises(selftest.SelfTestError, match=r"values differ") as error:
            selftest.prove(kernel, entry, problem, torch.device("cpu"))
        assert f" of {32 * 48 if epilogue == 'gated_silu' else 32 * 96} values" in str(error.value)
    assert len(kept) == (not right)


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
