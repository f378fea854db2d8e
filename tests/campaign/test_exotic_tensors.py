"""Tensors that are not what they look like, as every operand and as the output: torch's matmul and
ours give the same values, the same refusals and leave the same behind.

Those with a number are of defects: freed storages crashed, the negative bit was not asked for, what
copies on write was copied, a subclass as output saw mm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tests.fake_driver import Started

from .sides import SIDE, Note, Side, Story, assert_same, half, linear

Make = Callable[[torch.Tensor, Note], Any]


class Named(torch.Tensor):
    """Has nothing of its own."""


class NamedParameter(torch.nn.Parameter):
    pass


class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Foreign:
    """No tensor, but one that answers for itself."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        return [func.__name__, len(args), sorted(kwargs or {})]


class Wrapper(torch.Tensor):
    """A tensor in a tensor, which has no data of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        bare = lambda x: x.inner if isinstance(x, Wrapper) else x  # noqa: E731
        return func(*map(bare, args), **{k: bare(v) for k, v in (kwargs or {}).items()})


def watched(values: torch.Tensor, note: Note, answer: Callable[..., object]) -> torch.Tensor:
    """A tensor of a class that writes down which functions it sees, and answers so."""

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            note(getattr(func, "__name__", str(func)))
            return answer(super().__torch_function__, func, types, args, kwargs or {})

    return values.as_subclass(Watched)


def refuse(*_: object) -> object:
    raise PermissionError("of the subclass")


def freed(values: torch.Tensor) -> torch.Tensor:
    values.untyped_storage().resize_(0)
    return values


def inside(values: torch.Tensor, before: int, after: int = 8) -> torch.Tensor:
    """The same values so many elements inside another tensor."""
    room = torch.zeros(before + values.numel() + after, dtype=values.dtype)
    return room[before : before + values.numel()].view(values.shape).copy_(values)


def inference(values: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return values.clone()


def swapped(values: torch.Tensor) -> torch.Tensor:
    tensor = torch.zeros(3, dtype=values.dtype)
    tensor.data = values
    return tensor


def replaced(values: torch.Tensor) -> torch.Tensor:
    tensor = torch.empty(0, dtype=values.dtype)
    return tensor.set_(values.untyped_storage(), 0, values.shape, values.stride())


def conjugate(values: torch.Tensor) -> torch.Tensor:
    """Neighbours in memory, which the imaginary part of a conjugate has not by itself."""
    pairs = torch.view_as_complex(values.reshape(-1, 16, 2))
    return pairs.conj().imag.as_strided(values.shape, values.stride(), 0)


def read_only(values: torch.Tensor) -> torch.Tensor:
    array = values.numpy()
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def fake_tensor(values: torch.Tensor) -> torch.Tensor:
    return FakeTensorMode().from_tensor(values)


def uninitialized(values: torch.Tensor) -> torch.Tensor:
    return torch.nn.UninitializedParameter(dtype=values.dtype, requires_grad=False)


KINDS: dict[str, Make] = {
    "plain": lambda x, note: x,
    "defect_02_freed": lambda x, note: freed(x),
    "defect_02_freed_inside": lambda x, note: freed(inside(x, 64)),
    "defect_02_zero_tensor": lambda x, note: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "defect_03_negative": lambda x, note: torch._neg_view(x),
    "defect_03_negative_transposed": lambda x, note: torch._neg_view(x).t(),
    "defect_03_negative_twice": lambda x, note: torch._neg_view(torch._neg_view(x)),
    "defect_03_conjugate": lambda x, note: conjugate(x),
    "conjugate_resolved": lambda x, note: conjugate(x).resolve_neg(),
    "imaginary_part": lambda x, note: torch.view_as_complex(torch.stack([x, -x], -1)).imag,
    "complex": lambda x, note: torch.complex(x.float(), x.float()).conj(),
    "defect_21_copy_on_write": lambda x, note: torch._lazy_clone(x),
    "defect_21_copy_on_write_with_its_source": lambda x, note: (torch._lazy_clone(x), x)[1],
    "defect_21_copy_on_write_view": lambda x, note: torch._lazy_clone(inside(x, 64)).view(x.shape),
    "defect_13_subclass": lambda x, note: x.as_subclass(Named),
    "defect_13_watched": lambda x, note: watched(x, note, lambda f, *call: f(*call)),
    "watched_that_raises": lambda x, note: watched(x, note, refuse),
    "watched_that_declines": lambda x, note: watched(x, note, lambda *_: NotImplemented),
    "subclass_without_functions": lambda x, note: x.as_subclass(Disabled),
    "wrapper": lambda x, note: Wrapper(x),
    "foreign": lambda x, note: Foreign(),
    "parameter": lambda x, note: torch.nn.Parameter(x),
    "parameter_without_gradient": lambda x, note: torch.nn.Parameter(x, requires_grad=False),
    "parameter_subclass": lambda x, note: NamedParameter(x),
    "uninitialized": lambda x, note: uninitialized(x),
    "buffer": lambda x, note: torch.nn.Buffer(x),
    "wants_gradient": lambda x, note: x.requires_grad_(),
    "of_a_gradient": lambda x, note: x.requires_grad_() * 2,
    "detached": lambda x, note: (x.requires_grad_() * 2).detach(),
    "with_a_hook": lambda x, note: (x.requires_grad_().register_hook(lambda g: g), x)[1],
    "inference": lambda x, note: inference(x),
    "inference_view": lambda x, note: inference(x)[:],
    "swapped_data": lambda x, note: swapped(x),
    "replaced_storage": lambda x, note: replaced(x),
    "numpy": lambda x, note: torch.from_numpy(x.numpy()),
    "read_only": lambda x, note: read_only(x),
    "bytes": lambda x, note: torch.frombuffer(bytearray(x.numpy().tobytes()), dtype=x.dtype),
    "shared": lambda x, note: x.share_memory_(),
    "dlpack": lambda x, note: torch.from_dlpack(x),
    "inside": lambda x, note: inside(x, 64),
    "unaligned": lambda x, note: inside(x, 1),
    "transposed": lambda x, note: x.t(),
    "padded": lambda x, note: torch.cat([x, x], 1)[:, :SIDE],
    "every_other": lambda x, note: torch.cat([x, x], 1)[:, ::2],
    "expanded": lambda x, note: x[:1].expand(SIDE, SIDE),
    "one_element": lambda x, note: x[:1, :1].expand(SIDE, SIDE),
    "sliding": lambda x, note: x.as_strided((SIDE, SIDE), (1, 1)),
    "sliding_by_rows": lambda x, note: x.as_strided((SIDE, SIDE), (8, 1)),
    "vector": lambda x, note: x[0],
    "number": lambda x, note: x[0, 0],
    "column": lambda x, note: x[:, :1],
    "empty": lambda x, note: x[:0],
    "without_columns": lambda x, note: x[:, :0],
    "narrow": lambda x, note: x[:, :16],
    "batch_of_one": lambda x, note: x[None],
    "batch": lambda x, note: torch.stack([x, x]),
    "meta": lambda x, note: x.to("meta"),
    "sparse": lambda x, note: x.to_sparse(),
    "compressed": lambda x, note: x.to_sparse_csr(),
    "mkldnn": lambda x, note: x.bfloat16().to_mkldnn(),
    "nested": lambda x, note: torch.nested.nested_tensor([x, x]),
    "fake_tensor": lambda x, note: fake_tensor(x),
    "functional": lambda x, note: torch._to_functional_tensor(x),
    "bf16": lambda x, note: x.bfloat16(),
    "float": lambda x, note: x.float(),
    "integer": lambda x, note: x.int(),
    "boolean": lambda x, note: x.bool(),
    "list": lambda x, note: x.tolist(),
    "array": lambda x, note: x.numpy(),
    "none": lambda x, note: None,
}
#: With no data at one side torch leaves the result as its memory was.
UNWRITTEN = ("meta",)
GUARDS: tuple[Callable[[], Any], ...] = (nullcontext, torch.no_grad, torch.inference_mode)


def story(kind: str, place: str, guard: Callable[[], Any]) -> Story:
    """A product with such a tensor at this place, and all operands afterwards."""

    def tell(side: Side, note: Note) -> object:
        x, y, out = half(seed=1), half(seed=2), half(seed=3)
        kept = {"a": x, "b": y, "weight": y, "out": out}[place]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of prototypes
            made = KINDS[kind](kept, note)
        try:
            if place == "weight":
                result: Any = linear(side, x, made)
            elif place == "out":
                result = side.matmul(x, y, out=made)
            else:
                result = side.matmul(made, y) if place == "a" else side.matmul(x, made)
            note(result is made)
            return result.shape if kind in UNWRITTEN else result
        finally:
            note([x, y, made, kept])

    def guarded(side: Side, note: Note) -> object:
        with guard():
            return tell(side, note)

    return guarded


@pytest.mark.parametrize("place", ["a", "b", "weight", "out"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_torch(ours: Started, kind: str, place: str) -> None:
    for guard in GUARDS:
        assert_same(ours, story(kind, place, guard))


def shared_operands(side: Side, note: Note) -> object:
    """Operands of one storage, which meet or do not."""
    room = torch.cat([half(seed=seed) for seed in range(4)])
    x, y = room[:SIDE], room[SIDE : 2 * SIDE]
    note(side.matmul(x, x))
    note(side.matmul(x, x.t()))
    note(side.matmul(x, y, out=room[2 * SIDE : 3 * SIDE]))
    note(room._version)
    return room


def an_output_is_watched_by_its_base(side: Side, note: Note) -> object:
    """An output that is part of what autograd keeps."""
    leaf, base = half(seed=1).requires_grad_(), torch.cat([half(seed=2), half(seed=3)])
    kept = leaf * base[:SIDE]
    side.matmul(half(seed=4), half(seed=5), out=base[SIDE:])
    note([base, base._version])
    return kept.sum().backward()


def an_output_is_part_of_a_leaf(side: Side, note: Note) -> object:
    leaf = torch.cat([half(seed=2), half(seed=3)]).requires_grad_()
    with torch.no_grad():
        note(side.matmul(half(seed=4), half(seed=5), out=leaf[:SIDE]))
    note(leaf)
    return side.matmul(half(seed=4), half(seed=5), out=leaf[SIDE:])


def an_output_is_resized(side: Side, note: Note) -> object:
    x, y = half(seed=1), half(seed=2)
    for out in (
        torch.empty(0, dtype=x.dtype),
        torch.zeros(64, 64, dtype=x.dtype),
        torch.zeros(SIDE, 8, dtype=x.dtype).t(),
        half(seed=3)[:4],
        torch.from_numpy(half(seed=3).numpy())[:4],
    ):
        try:
            note(side.matmul(x, y, out=out))
        except RuntimeError as error:
            note(error)
        note([out, out.untyped_storage().nbytes()])
    return None


def a_storage_is_freed_between_calls(side: Side, note: Note) -> object:
    """The table knows the problem by then, and the storage comes back elsewhere."""
    x, y, room = half(seed=1), half(seed=2), torch.cat([half(seed=3), half(seed=4)])
    part = room[SIDE:]
    note(side.matmul(x, y, out=part))
    bytes_ = room.untyped_storage().nbytes()
    room.untyped_storage().resize_(0)
    for call in (
        lambda: side.matmul(x, y, out=part),
        lambda: side.matmul(part, y),
        lambda: side.matmul(x, part),
    ):
        try:
            note(call())
        except RuntimeError as error:
            note(error)
    room.untyped_storage().resize_(bytes_)
    room.fill_(1)
    note(side.matmul(part, y))
    return side.matmul(x, y, out=part)


def a_copy_on_write_output(side: Side, note: Note) -> object:
    source = half(seed=3)
    copy = torch._lazy_clone(source)
    note(side.matmul(half(seed=1), half(seed=2), out=copy))
    return source, copy


SHARED: dict[str, Story] = {
    "shared_operands": shared_operands,
    "output_watched_by_its_base": an_output_is_watched_by_its_base,
    "output_of_a_leaf": an_output_is_part_of_a_leaf,
    "output_resized": an_output_is_resized,
    "defect_02_freed_between_calls": a_storage_is_freed_between_calls,
    "defect_21_copy_on_write_output": a_copy_on_write_output,
}


@pytest.mark.parametrize("name", SHARED)
def test_storages_with_a_story(ours: Started, name: str) -> None:
    assert_same(ours, SHARED[name])
