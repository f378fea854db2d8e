"""Two sides of one story: what a caller can see when torch multiplies, and when we do.

A story is a function of a side and of `note`, which writes down what matters on the way. It makes
its own operands, of small integers, so that every product is exact and the sides agree to the bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hgemm_packs import launcher, nn
from hgemm_packs.problem import WITHOUT_ADDEND
from tests import reference
from tests.fake_driver import Started

Matmul = Callable[..., Any]
Note = Callable[[object], None]


class Side(Protocol):
    """Torch's functions, or a started launcher's."""

    matmul: Matmul
    linear: Matmul


TORCH: Side = SimpleNamespace(matmul=torch.matmul, linear=torch.nn.functional.linear)
Story = Callable[[Side, Note], object]

SIDE = 32
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
#: A kernel of every parameter layout is among those that serve.
KERNELS = {"nn": "ptr_v1", "nt": "tma2_v1", "tn": "tma3_v1", "tt": "tma2_ws_v2"}


def serve_all(fake: Started, *epilogues: str) -> None:
    """From now on whatever is aligned and packed has a kernel, with these epilogues too."""
    for dtype in DTYPES:
        for layout, param_layout in KERNELS.items():
            fake.serve(param_layout, layout, dtype)
            for epilogue in epilogues:
                added = param_layout if epilogue in WITHOUT_ADDEND else f"{param_layout}_addend"
                fake.serve(added, layout, dtype, epilogue=epilogue)


def half(*size: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Integers from -2 to 2: sums of 64 of their products are exact in every type."""
    generator = torch.Generator().manual_seed(seed + len(size))
    return torch.randint(-2, 3, size or (SIDE, SIDE), generator=generator).to(dtype)


class Counting(TorchDispatchMode):
    """Writes down every operator, and does something at each product."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.act = act
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.seen.append(str(func))
        if "mm" in str(func):
            self.act()
        return func(*args, **kwargs or {})


def seen(thing: object) -> Any:
    """Anything as plain data that can be compared: a tensor is its values and all else it is."""
    if isinstance(thing, torch.Tensor):
        return _seen_tensor(thing)
    if isinstance(thing, BaseException):
        return type(thing).__name__, str(thing)
    if isinstance(thing, list | tuple):
        return [seen(each) for each in thing]
    if isinstance(thing, dict):
        return {name: seen(each) for name, each in thing.items()}
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return type(thing).__name__


#: What a product is recorded as, by us, and by torch.
_RECORDS = {"ProductBackward": "MmBackward0"}


def facts(tensor: torch.Tensor) -> dict[str, Any]:
    """What a tensor is, but for its values."""
    grad_fn = type(tensor.grad_fn).__name__
    return {
        "type": type(tensor).__name__,
        "dtype": tensor.dtype,
        "device": str(tensor.device),
        "shape": tuple(tensor.shape),
        "requires_grad": tensor.requires_grad,
        "grad_fn": _RECORDS.get(grad_fn, grad_fn),
        "is_leaf": tensor.is_leaf,
        "inference": tensor.is_inference(),
        "negative": tensor.is_neg(),
        "version": None if tensor.is_inference() else tensor._version,
    }


def _seen_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    with torch._C.DisableTorchFunctionSubclass():
        found = facts(tensor)
        if tensor.layout is torch.strided:
            found |= {"stride": tensor.stride(), "offset": tensor.storage_offset()}
            found["copy_on_write"] = torch._C._is_cow_tensor(tensor)
        try:
            found["values"] = _values(tensor)
        except Exception as error:  # of a tensor without values, of a subclass
            found["values"] = type(error).__name__
    return found


def _values(tensor: torch.Tensor) -> Any:
    plain = tensor.layout is torch.strided and not tensor._is_zerotensor()
    if plain and tensor.numel() and not tensor.untyped_storage().nbytes():
        return "freed"  # torch crashes where it copies that
    return torch.nan_to_num(tensor.detach().clone().to("cpu").to_dense().double()).tolist()


def outcome(story: Story, side: Side) -> list[Any]:
    """Everything that a story lets one see, in order, ending with what it returned or raised."""
    notes: list[Any] = []
    note: Note = lambda thing: notes.append(seen(thing))  # noqa: E731
    with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        # Torch's own, where the first derivative of a process makes it load its rules.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        patch.setattr(nn, "linear", side.linear)
        try:
            note(story(side, note))
        except (Exception, KeyboardInterrupt, GeneratorExit) as error:
            note(error)
    notes.append(sorted((w.category.__name__, str(w.message)) for w in caught))
    return notes


def assert_same(ours: Started, story: Story) -> None:
    """Ours shows what torch shows, and is as able to serve after it as before."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # or the side that comes second would be spared a warning
    try:
        wanted, found = outcome(story, TORCH), outcome(story, ours)
    finally:
        torch.set_warn_always(before)
    assert found == wanted
    hits = launcher.counters()["hits"]
    a, b = half(seed=1), half(seed=2)
    reference.assert_exact(ours.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == hits + bool(ours.kernels)


@dataclass(frozen=True)
class _Layer:
    """The state of a replaced torch.nn.Linear without a bias."""

    weight: torch.Tensor
    bias: None = None


def _folded(side: Side, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = side.matmul(x.reshape(2, -1, x.shape[-1]), y)
    return product.reshape(-1, product.shape[-1])


def linear(side: Side, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The layer of a pack, which `outcome` has call this side's linear."""
    return nn.StatelessLinear.forward(_Layer(weight), x)  # type: ignore[arg-type]


#: Ways from two square matrices to a product.
PRODUCTS: dict[str, Callable[[Side, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "matrices": lambda side, x, y: side.matmul(x, y),
    "keywords": lambda side, x, y: side.matmul(other=y, input=x),
    "transposed": lambda side, x, y: side.matmul(x.t(), y.t()),
    "folded": _folded,
    "linear": linear,
}


def by_product(story: Callable[[Matmul, Note], object], way: str) -> Story:
    """A story of a product of two matrices, told with one of the ways to it."""
    product = PRODUCTS[way]
    return lambda side, note: story(lambda x, y: product(side, x, y), note)
