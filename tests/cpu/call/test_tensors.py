"""Tensors that look like plain memory and are not: freed, negated, all zero, or shared for now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, tensor_keys
from hgemm_packs.problem import Problem
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


def views() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of every kind of matrix that a call may bring: of few and many dimensions, offset,
    strided, transposed, of other types, of nothing."""
    room = torch.arange(1 << 14, dtype=torch.int32) % 7 - 3
    found = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8):
        all_of = room.to(dtype)
        b = all_of[:512].view(16, 32)
        for a in (
            all_of[:128].view(8, 16),
            all_of[24:152].view(8, 16),
            all_of[:192].view(8, 24)[:, 4:20],
            all_of[:128].view(16, 8).t(),
            all_of[:128].view(2, 4, 16),
            all_of[:128].view(2, 1, 2, 1, 2, 16),
            all_of[:128].view(2, 1, 2, 1, 1, 2, 16),
            all_of[:128].view(1, 2, 1, 2, 1, 1, 2, 16),
            all_of[:16].expand(8, 16),
            all_of[:16],
            all_of[0],
            all_of[:0].view(0, 16),
        ):
            found += [(a, b), (a, b.t().contiguous().t()), (b, a)]
    return found


def test_places_and_functions_say_the_same(
    monkeypatch: pytest.MonkeyPatch, driver_library: Path, clean_process: None
) -> None:
    """Sizes, strides, offsets and types are read where they lie; a torch that has them elsewhere is
    asked by functions."""
    assert tensor_keys.places("CPU")[3] != tensor_keys.UNKNOWN
    with monkeypatch.context() as patch:
        fake_driver.start(patch, driver_library)
        read = [launcher.describe(*pair) for pair in views()]
    with monkeypatch.context() as patch:
        patch.setattr(tensor_keys, "_geometry", lambda torch: tensor_keys.UNKNOWN)
        fake_driver.start(patch, driver_library)
        asked = [launcher.describe(*pair) for pair in views()]
    assert read == asked
    assert {"dtype", "shape", "layout", "mismatch"} <= {e for e in read if isinstance(e, str)}
    problems = [each for each in read if isinstance(each, Problem)]
    assert Problem(8, 32, 16, "nn", "f16") in problems
    assert Problem(8, 32, 16, "tt", "bf16") in problems


@pytest.mark.parametrize("number", [0, 3])
def test_places_that_are_wrong_in_one_tensor_do_not_count(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    found = tensor_keys._lies
    calls = iter(range(100))
    monkeypatch.setattr(tensor_keys, "_lies", lambda *of: found(*of) and next(calls) != number)
    assert tensor_keys._geometry(torch) == tensor_keys.UNKNOWN
