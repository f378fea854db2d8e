"""Random calls of matmul and linear: sizes, dtypes, strides, outputs, spellings and states of torch
that fit together, nearly fit or do not.

`draw` makes the same call from the same key, with tensors of its own, so that two sides can have
identical clones. Nothing here calls what is tested.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from .states import STATES

T = TypeVar("T")

#: How likely each of a call's parts is to be an unusual one; a call has one of these.
UNUSUAL = (0.01, 0.03, 0.1, 0.4)
FLOATS = (torch.float16, torch.bfloat16)
OTHER_DTYPES = (torch.float32, torch.float64, torch.int32, torch.complex64, torch.bool)
POOL = 1 << 16


@functools.cache
def pool(dtype: torch.dtype, special: bool) -> torch.Tensor:
    """Where values come from; special ones are large, tiny or no numbers."""
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(POOL, generator=generator)
    if special:
        large = values * torch.exp2(torch.randint(-26, 16, (POOL,), generator=generator))
        odd = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0])
        values = torch.where(
            torch.rand(POOL, generator=generator) < 0.01,
            odd[torch.randint(0, 4, (POOL,), generator=generator)],
            large,
        )
    if not dtype.is_floating_point and not dtype.is_complex:
        values = torch.nan_to_num(values, 0, 9, -9).clamp(-9, 9)
    return values.to(dtype)


class Named(torch.Tensor):
    """A subclass with nothing of its own."""


@dataclass
class Call:
    """What is called, with what, in which state of torch."""

    function: str = "matmul"
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    state: str = "none"
    overlap: bool = False  # out shares memory with an input: torch promises no values
    parts: list[str] = field(default_factory=list)  # what is unusual

    def tensors(self) -> list[torch.Tensor]:
        given = [*self.args, *(self.kwargs[name] for name in sorted(self.kwargs))]
        return [each for each in given if isinstance(each, torch.Tensor)]

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both matrices of a call that a kernel served, the second as matmul takes it."""
        names = ("input", "other" if self.function == "matmul" else "weight")
        a, b = (*self.args, *(self.kwargs[name] for name in names[len(self.args) :]))[:2]
        return a.reshape(-1, a.shape[-1]), b if self.function == "matmul" else b.t()

    def __str__(self) -> str:
        shown = [
            f"{tuple(x.shape)} {tuple(x.stride())} {x.dtype}" if hasattr(x, "stride") else repr(x)
            for x in (*self.args, *self.kwargs.values())
        ]
        return f"{self.function} [{', '.join(self.parts)}] of {'; '.join(shown)}"


class Draw:
    """One call in the making."""

    def __init__(self, key: int) -> None:
        self.rng = random.Random(key)
        self.likely = self.rng.choice(UNUSUAL)
        self.call = Call()

    def unusual(self, what: str) -> bool:
        found = self.rng.random() < self.likely
        if found:
            self.call.parts.append(what)
        return found

    def one_of(self, choices: dict[str, T]) -> T:
        name = self.rng.choice(list(choices))
        self.call.parts.append(name)
        return choices[name]

    def values(self, count: int, dtype: torch.dtype, special: bool = False) -> torch.Tensor:
        start = self.rng.randrange(POOL - count)
        return pool(dtype, special)[start : start + count].clone()

    def size(self) -> int:
        if not self.unusual("size"):
            return 8 * self.rng.randint(1, 4)
        return self.rng.choice((0, 1, 2, 3, 7, 9, 15, 17, 31, 33))

    def dtype(self) -> torch.dtype:
        return self.rng.choice(OTHER_DTYPES if self.unusual("dtype") else FLOATS)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Values of this shape, stored in one of many ways."""
        count = 1
        for each in shape:
            count *= each
        special = self.unusual("special values")
        make = functools.partial(self.values, dtype=dtype, special=special)
        if self.unusual("strides"):
            return self.one_of(STRIDES)(self, make, shape, count)
        if len(shape) == 2 and self.rng.random() < 0.5:
            return make(count).view(shape[::-1]).t()
        return make(count).view(shape)

    def wrapped(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.one_of(WRAPS)(tensor) if self.unusual("wrap") else tensor


Make = Callable[[int], torch.Tensor]
Stride = Callable[[Draw, Make, tuple[int, ...], int], torch.Tensor]


def _inside(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    before = draw.rng.choice((1, 2, 4, 8, 64, 128))
    return make(count + before + 8)[before : before + count].view(shape)


def _padded(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    if not shape or not count:
        return make(count).view(shape)
    wide = shape[-1] + draw.rng.choice((1, 8, 16))
    return make(count // shape[-1] * wide).view(*shape[:-1], wide)[..., : shape[-1]]


def _stepped(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    if not shape:
        return make(1).view(())
    step = draw.rng.choice((2, 3))
    return make(count * step).view(*shape[:-1], shape[-1] * step)[..., ::step]


def _expanded(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    kept = tuple(each if draw.rng.random() < 0.5 else 1 for each in shape)
    size = 1
    for each in kept:
        size *= each
    return make(size).view(kept).expand(shape)


def _sliding(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    strides = tuple(draw.rng.choice((0, 1, 1, 2, 8)) for _ in shape)
    return make(2048).as_strided(shape, strides, draw.rng.choice((0, 1, 8)))


def _permuted(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    order = draw.rng.sample(range(len(shape)), len(shape))
    back = sorted(range(len(shape)), key=order.__getitem__)
    return make(count).view([shape[i] for i in order]).permute(back)


def _negative(draw: Draw, make: Make, shape: tuple[int, ...], count: int) -> torch.Tensor:
    made = make(count).view(shape)
    return made if made.dtype is torch.bool else torch._neg_view(made)


STRIDES: dict[str, Stride] = {
    "inside": _inside,
    "padded": _padded,
    "stepped": _stepped,
    "expanded": _expanded,
    "sliding": _sliding,
    "permuted": _permuted,
    "negative": _negative,
    "backwards": lambda draw, make, shape, count: (
        make(count).view(shape).flip(-1) if shape else make(1).view(())
    ),
}


def _wanting(tensor: torch.Tensor) -> torch.Tensor:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return tensor.requires_grad_() if floating else tensor


def _inference(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor.clone()


WRAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "parameter": lambda x: torch.nn.Parameter(x, requires_grad=x.is_floating_point()),
    "fixed parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "wants gradient": _wanting,
    "of a gradient": lambda x: _wanting(x) * 1,
    "subclass": lambda x: x.as_subclass(Named),
    "inference tensor": _inference,
    "copy on write": lambda x: torch._lazy_clone(x),
    "zero tensor": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "meta": lambda x: x.to("meta"),
}


def _shapes(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, n, k = draw.size(), draw.size(), draw.size()
    a, b = (m, k), (k, n)
    if draw.unusual("rank"):
        batch = draw.rng.choice((1, 2, 3))
        a, b = draw.one_of(
            {
                "folded": ((batch, m, k), b),
                "folded twice": ((batch, 2, m, k), b),
                "vector": ((k,), b),
                "by a vector": (a, (k,)),
                "vectors": ((k,), (k,)),
                "batched": ((batch, m, k), (batch, k, n)),
                "broadcast": (a, (batch, k, n)),
                "number": ((), b),
            }
        )
    if draw.unusual("misfit"):
        b = (*b[:-2], draw.size(), b[-1])
    return a, b


def _aliased(draw: Draw, inputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """An output in the memory of an input."""
    draw.call.overlap = True
    of = draw.rng.choice(inputs)
    return draw.rng.choice((of, of.detach(), of.detach().t() if of.ndim == 2 else of.detach()))


def _output(
    draw: Draw,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    inputs: tuple[torch.Tensor, torch.Tensor],
) -> Any:
    """What a call is given as out: mostly what fits."""
    if draw.rng.random() < 0.6:
        return draw.tensor(shape, dtype).contiguous()
    other = torch.float32 if dtype is torch.float16 else torch.float16
    kind: Callable[[], Any] = draw.one_of(
        {
            "out strides": lambda: draw.tensor(shape, dtype),
            "out transposed": lambda: (
                draw.tensor(shape[::-1], dtype).contiguous().t()
                if len(shape) == 2
                else draw.tensor(shape, dtype)
            ),
            "out inside": lambda: _inside(
                draw, lambda count: draw.values(count, dtype), shape, torch.Size(shape).numel()
            ),
            "out expanded": lambda: draw.tensor(shape[-1:], dtype).expand(shape),
            "out shape": lambda: draw.values(24, dtype).view(3, 8),
            "out empty": lambda: draw.values(0, dtype),
            "out dtype": lambda: draw.tensor(shape, other),
            "out wrapped": lambda: draw.one_of(WRAPS)(draw.tensor(shape, dtype)),
            "out aliased": lambda: _aliased(draw, inputs),
            "out none": lambda: None,
            "out list": lambda: [],
        }
    )
    return kind()


def _spelled(draw: Draw, a: Any, b: Any, second: str) -> None:
    call = draw.call
    if not draw.unusual("spelling"):
        call.args += [a, b]
        return
    call.args, named = draw.one_of(
        {
            "by name": ([], {"input": a, second: b}),
            "second by name": ([a], {second: b}),
            "swapped names": ([], {second: b, "input": a}),
            "unknown name": ([a, b], {"alpha": 1}),
            "twice": ([a, b], {"input": a}),
            "one": ([a], {}),
            "three": ([a, b, None], {}),
            "no tensor": ([a, 3], {}),
        }
    )
    call.kwargs |= named


def _freed(draw: Draw) -> None:
    """Of nothing else that is unusual: torch itself crashes where it copies what has been freed."""
    dtype, call = draw.rng.choice(FLOATS), draw.call
    given = [draw.values(32 * 16 + 64, dtype)[64 * i :][:512].view(32, 16) for i in (0, 1, 1)]
    a, b, out = given[0], given[1].t(), draw.values(1088, dtype)[64:].view(32, 32)
    freed = draw.rng.choice((a, b, out))
    freed.untyped_storage().resize_(0)
    call.args, call.kwargs = [a, b], {"out": out} if freed is out else {}
    call.parts, call.state = ["freed"], draw.rng.choice(("none", "no_grad", "inference"))


def draw(key: int) -> Call:
    """The call of this key, of tensors that are nobody else's."""
    one = Draw(key)
    call = one.call
    if one.rng.random() < 0.005:
        _freed(one)
        return call
    a_shape, b_shape = _shapes(one)
    dtype = one.dtype()
    a = one.wrapped(one.tensor(a_shape, dtype))
    b_dtype = one.dtype() if one.unusual("mixed") else dtype
    if one.rng.random() < 0.15:
        call.function = "linear"
        weight = b_shape[::-1] if len(b_shape) == 2 else b_shape
        _spelled(one, a, one.wrapped(one.tensor(weight, b_dtype)), "weight")
        if one.unusual("bias"):
            call.kwargs["bias"] = one.tensor(weight[:1], dtype)
    else:
        b = one.wrapped(one.tensor(b_shape, b_dtype))
        _spelled(one, a, b, "other")
        if one.rng.random() < 0.3:
            call.kwargs["out"] = _output(one, (*a_shape[:-1], b_shape[-1]), dtype, (a, b))
    if one.unusual("state"):
        call.state = one.one_of({name: name for name in STATES})
    elif one.rng.random() < 0.3:
        call.state = one.rng.choice(("no_grad", "inference"))
    return call
