"""linear(input, weight, bias): a kernel that adds the bias, and torch in all that none serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from hgemm_packs import launcher, selftest
from hgemm_packs.errors import FallbackError, PackError
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import LAUNCHER_ABI, PLAIN_ABI, WITH_ADDEND
from hgemm_packs.problem import Problem
from tests import fake_driver, packs, reference
from tests.cpu.call.captured import loaded, zeros
from tests.cpu.call.served_packs import install
from tests.fake_driver import Started

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def operands(m: int = 32, n: int = 40, dtype: torch.dtype = torch.float16) -> Tensors:
    """x [M, 64], a weight [N, 64] and a bias [N] of which no two values are equal."""
    x, b = reference.cancelling(m, n, 64, "nt", dtype)
    return x, b.t(), (torch.arange(n) - 7).to(dtype)


def assert_added(c: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> None:
    """c is the float64 sum, rounded once: in every bit."""
    exact = reference.product(x, weight.t()) + bias.double()
    assert torch.equal(c, exact.to(c.dtype)) and not torch.equal(exact, exact - bias.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("param_layout", WITH_ADDEND.values())
def test_every_kind_of_kernel(fake: Started, param_layout: str, dtype: str) -> None:
    fake.serve(param_layout, "nt", dtype)
    x, weight, bias = operands(dtype=DTYPES[dtype])
    with torch.no_grad():
        for lead in ((32,), (2, 16), (4, 1, 8)):
            c = fake.linear(x.view(*lead, 64), weight, bias=torch.nn.Parameter(bias))
            assert c.shape == (*lead, 40) and not c.requires_grad
            assert_added(c.view(32, 40), x, weight, bias)
    assert launcher.counters() == {"hits": 3, "launches": 3, "fallbacks": 0}
    wanted = Problem(32, 40, 64, "nt", dtype, epilogue="bias")
    assert [each.key for each in fake.asked] == [wanted.key] and fake.control.loads == 1


def test_each_call_reads_its_own_bias(fake: Started) -> None:
    fake.serve("tma2_ws_v2_addend", "nt")
    x, weight, bias = operands()
    for factor in (1, -2, 3):
        assert_added(fake.linear(x, weight, bias * factor), x, weight, bias * factor)
    bias.zero_()[5] = 1
    assert_added(fake.linear(x, weight, bias), x, weight, bias)


def test_with_and_without_are_two_problems(fake: Started) -> None:
    """A kernel of one never runs the other, whichever is known."""
    x, weight, bias = operands()
    fake.serve("ptr_v1", "nt")
    reference.assert_exact(fake.linear(x, weight), x, weight.t())
    assert torch.equal(fake.linear(x, weight, bias), functional.linear(x, weight, bias))
    assert fake.fallbacks() == {"not_measured": 1}
    launcher.reset_table()
    fake.serve("ptr_v1_addend", "nt")
    for _ in range(2):
        assert_added(fake.linear(x, weight, bias), x, weight, bias)
        reference.assert_exact(fake.linear(x, weight), x, weight.t())
    assert launcher.counters()["hits"] == 5


UNFIT: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "strided": (lambda bias: torch.stack([bias, bias], 1)[:, 0], "bias"),
    "unaligned": (lambda bias: torch.cat([bias, bias])[39:79], "bias"),
    "one for all": (lambda bias: bias[:1], "bias"),
    "a row": (lambda bias: bias[None], "bias"),
    "a number": (lambda bias: bias[0], "bias"),
    "a subclass": (lambda bias: bias.as_subclass(Odd), "tensor_type"),
    "trains": (lambda bias: bias.clone().requires_grad_(), "autograd"),
}


class Odd(torch.Tensor):
    pass


@pytest.mark.parametrize("name", UNFIT)
def test_a_bias_that_no_kernel_adds(fake: Started, name: str) -> None:
    fake.serve("ptr_v1_addend", "nt")
    x, weight, bias = operands()
    change, why = UNFIT[name]
    odd = change(bias)
    found, wanted = fake.linear(x, weight, odd), functional.linear(x, weight, odd)
    assert torch.equal(found, wanted) and type(found) is type(wanted)
    assert found.requires_grad is wanted.requires_grad
    assert fake.fallbacks() == {why: 1} and fake.control.launches == 0


@pytest.mark.parametrize(
    "change", [lambda bias: bias[:8], lambda bias: bias.float(), lambda bias: bias.bfloat16()]
)
def test_a_bias_that_torch_refuses(fake: Started, change: Any) -> None:
    fake.serve("ptr_v1_addend", "nt")
    x, weight, bias = operands()
    with pytest.raises(RuntimeError) as wanted:
        functional.linear(x, weight, change(bias))
    with pytest.raises(RuntimeError) as found:
        fake.linear(x, weight, change(bias))
    assert str(found.value) == str(wanted.value)
    assert fake.fallbacks() == {"bias": 1} and fake.control.launches == 0


def test_strict(fake: Started) -> None:
    fake.serve("ptr_v1_addend", "nt")
    x, weight, bias = operands()
    launcher._extension().set_strict(True)
    assert_added(fake.linear(x, weight, bias), x, weight, bias)
    with pytest.raises(FallbackError, match="bias: what is added is nothing that a kernel adds"):
        fake.linear(x, weight, torch.cat([bias, bias])[39:79])
    with pytest.raises(FallbackError, match="32x40x64 nt bf16 bias on device 0"):
        fake.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16())


@pytest.mark.parametrize("param_layout", WITH_ADDEND.values())
def test_this_very_kernel(bare: Started, param_layout: str) -> None:
    kernel = loaded(0, False, param_layout, "nt")
    x, weight, bias = operands()
    out = torch.full((32, 40), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, x, weight.t(), out, addend=bias)
    assert_added(out, x, weight, bias)
    for wrong in (bias[:32], bias.bfloat16(), torch.cat([bias, bias])[39:79], bias[None]):
        with pytest.raises(ValueError, match="a packed bias of 40 of the kernel's dtype"):
            launcher.launch(kernel, x, weight.t(), out, addend=wrong)
    with pytest.raises(ValueError, match=f"{param_layout} has an addend"):
        launcher.launch(kernel, x, weight.t(), out)
    plain = loaded(0, False, param_layout.removesuffix("_addend"), "nt")
    with pytest.raises(ValueError, match="has no addend"):
        launcher.launch(plain, x, weight.t(), out, addend=bias)
    assert_added(out, x, weight, bias)


def test_what_a_kernel_with_a_bias_writes_is_known(bare: Started) -> None:
    """ldc is its last parameter but one: a kernel that reads ahead stays clear of all rows of C."""
    ahead = loaded(0, True, layout="nt", reads_ahead=True)
    memory = zeros(64, 128)
    for place, pdl in ((memory[32:, :64], 0), (memory[32:, 64:], 0), (zeros(32, 64), 1)):
        bare.capture(7)
        first = loaded(0, False, "ptr_v1_addend", "nt")
        out = memory[:, :40]
        launcher.launch(first, zeros(64, 64), zeros(40, 64).t(), out, addend=zeros(1, 40)[0])
        launcher.launch(ahead, place, zeros(40, 64).t(), zeros(32, 40))
        # Rows of C are 128 apart, so that what lies between them counts as written.
        assert bare.control.pdl == pdl


@pytest.mark.parametrize("right", [True, False])
def test_selftest(bare: Started, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that adds no bias does not prove itself."""
    entry = fake_driver.entry("ptr_v1_addend", "nt")
    kernel = loaded(0, False, "ptr_v1_addend", "nt")
    kept: list[str] = []
    monkeypatch.setattr(selftest, "keep_out", lambda root, kernel, reason: kept.append(reason))
    if not right:
        monkeypatch.setattr(
            launcher,
            "launch",
            lambda kernel, a, b, c, addend: c.copy_(a.float() @ b.float()),
        )
    problem = Problem(32, 40, 64, "nt", "f16", epilogue="bias")
    if right:
        selftest.prove(kernel, entry, problem, torch.device("cpu"))
    else:
        with pytest.raises(selftest.SelfTestError, match="values differ"):
            selftest.prove(kernel, entry, problem, torch.device("cpu"))
    assert len(kept) == (not right)


def biased_pack(place: Path, abi: int) -> Pack:
    """A pack of one kernel that adds a bias and of the row that names it."""
    problem = Problem(72, 40, 96, "nt", "f16", epilogue="bias")
    cubin = fake_driver.image("k", "tma2_v1_addend", "nt")
    kernel = packs.built("k", "tma2_v1_addend", layout="nt", epilogue="bias", cubin=cubin)
    source = packs.source([kernel], [packs.row(problem, kernel)], launcher_abi=abi)
    return packs.write_pack(place, source, [kernel], generator_info=packs.GENERATOR)  # type: ignore[list-item]


def test_a_pack_from_disk(
    bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_process: None
) -> None:
    """Beside one of the older launcher ABI, whose rows are of plain products."""
    old = packs.write_good(tmp_path / "old")
    pack = biased_pack(tmp_path / "new", LAUNCHER_ABI)
    assert (old.manifest.launcher_abi, pack.manifest.launcher_abi) == (PLAIN_ABI, LAUNCHER_ABI)
    install(monkeypatch, old.path, pack.path)
    x, b = reference.cancelling(72, 40, 96, "nt", torch.float16)
    bias = (torch.arange(40) - 7).half()
    assert_added(bare.linear(x, b.t(), bias), x, b.t(), bias)
    assert torch.equal(bare.linear(x, b.t()), functional.linear(x, b.t()))
    assert launcher.counters() == {
        **{"hits": 1, "launches": 1, "fallbacks": 1},
        "fallback not_measured": 1,
    }


def test_a_pack_that_says_too_old_an_abi(tmp_path: Path) -> None:
    """An older launcher would read it, and not know its kernels."""
    with pytest.raises(PackError, match="bias needs launcher ABI 5, the document says 4"):
        biased_pack(tmp_path / "new", PLAIN_ABI)
