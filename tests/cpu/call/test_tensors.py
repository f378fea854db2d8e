"""Tensors that look like plain memory and are not: freed, negated, all zero, or shared for now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from tests import fake_driver, reference
from tests.fake_driver import Started

SIZE = 32 * 32


def operands() -> dict[str, torch.Tensor]:
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    return {"input": a, "other": b, "out": torch.zeros(32, 32, dtype=torch.float16)}


def freed(offset: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A tensor whose storage has been given back, as sharded training does."""

    def of(x: torch.Tensor) -> torch.Tensor:
        room = torch.zeros(offset + SIZE, dtype=x.dtype)
        view = room[offset:].view(32, 32)
        room.untyped_storage().resize_(0)
        return view

    return of


def negated(x: torch.Tensor) -> torch.Tensor:
    view: torch.Tensor = torch._neg_view(x)
    return view


def imaginary(x: torch.Tensor) -> torch.Tensor:
    """-x as the imaginary part of a conjugate, with strides that a kernel takes."""
    z = torch.zeros(SIZE, dtype=torch.complex32)
    torch.view_as_real(z).view(-1)[1 : SIZE + 1].copy_(x.reshape(-1))
    return z.conj().imag.as_strided((32, 32), (32, 1))


def zero(x: torch.Tensor) -> torch.Tensor:
    view: torch.Tensor = torch._efficientzerotensor(x.shape, dtype=x.dtype)
    return view


FREED = {"freed": freed(0), "freed, a view": freed(SIZE)}
KINDS = FREED | {"zero": zero, "negated": negated, "imaginary part": imaginary}


def outcome(matmul: Callable[..., Any], tensors: dict[str, torch.Tensor]) -> Any:
    """The product, and what it left in the output, or torch's error."""
    try:
        result = matmul(**tensors)
    except RuntimeError as error:
        return type(error), str(error)
    return result.tolist()


@pytest.mark.parametrize("operand", ["input", "other", "out"])
@pytest.mark.parametrize("kind", KINDS)
def test_defect_02_03_torch_decides(fake: Started, kind: str, operand: str) -> None:
    """Freed ones were a segmentation fault; negated ones lost their sign."""
    fake.serve("ptr_v1")
    fake.matmul(**operands())
    found = []
    for matmul in (torch.matmul, fake.matmul):
        tensors = operands()
        tensors[operand] = KINDS[kind](tensors[operand])
        found.append(outcome(matmul, tensors))
    assert found[0] == found[1]
    assert kind not in FREED or found[0][0] is RuntimeError
    assert fake.fallbacks() == {"no_view": 1}


@pytest.mark.parametrize("operand", ["input", "other", "out"])
@pytest.mark.parametrize("kind", KINDS)
def test_defect_02_03_no_kernel_is_launched(bare: Started, kind: str, operand: str) -> None:
    image = fake_driver.image("kernel", "ptr_v1")
    kernel = launcher.load(0, fake_driver.entry("ptr_v1", cubin=image), image)
    tensors = operands()
    tensors[operand] = KINDS[kind](tensors[operand])
    name = {"input": "a", "other": "b"}.get(operand, operand)
    with pytest.raises(ValueError, match=f"^{name} must be"):
        launcher.launch(kernel, *tensors.values())
    assert bare.control.launches == 0


def test_defect_19_strides_beyond_the_integers(fake: Started) -> None:
    """Four rows 2**62 elements apart wrapped around to the next four, at no distance."""
    nothing = torch.empty(0, dtype=torch.float16)
    rows = nothing.as_strided((2, 4, 0), (0, 1 << 62, 1))
    columns = nothing.view(0, 8)
    assert launcher.describe(rows, columns) == "layout"
    assert torch.equal(fake.matmul(rows, columns), torch.matmul(rows, columns))


def test_defect_21_copies_that_are_not_made_yet(fake: Started) -> None:
    """To look at one, or to multiply it, made it."""
    fake.serve("ptr_v1")
    a, b, out = operands().values()
    lazy_a, lazy_b = torch._lazy_clone(a), torch._lazy_clone(b)
    assert not isinstance(launcher.describe(lazy_a, lazy_b), str)
    reference.assert_exact(fake.matmul(lazy_a, lazy_b, out=out), a, b)
    assert all(torch._C._is_cow_tensor(x) for x in (a, b, lazy_a, lazy_b))
    lazy_out = torch._lazy_clone(out)
    reference.assert_exact(fake.matmul(-a, b, out=lazy_out), -a, b)
    reference.assert_exact(out, a, b)
    assert launcher.counters()["hits"] == 2
