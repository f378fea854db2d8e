"""Where C finds in a torch tensor what it would else ask torch's functions for at every call: the
dispatch keys, which tell plain memory from all else that is a tensor, sizes, strides, offset, type.

Asked by `torch_state` once, when the launcher starts. torch says what they are, not where they lie,
so they are looked for in tensors of different kinds, and only a place that is right in all of them
counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: torch's own bound on the size of its C++ tensors; the search ends before it gets there.
TENSOR_BYTES = 208
#: Sizes and strides of at most so many dimensions lie in the tensor, as INLINE_DIMS in tensor.c.
INLINE_DIMS = 5
#: How C is told that functions are to be asked.
UNKNOWN = (0, 0, 0)

Places = tuple[int, int, tuple[int, int], tuple[int, int, int]]


def places(backend: str) -> Places:
    """Bytes from a Python tensor to its C++ one, a pointer; from where that points to the keys; the
    keys of plain memory of a backend, and of such that was made in inference mode; bytes to the
    number of dimensions, to the offset and to the type, or `UNKNOWN`.

    In a thread of its own, since the caller's may have modes on. Raises AttributeError for a torch
    in which the keys are not to be found.
    """
    with ThreadPoolExecutor(1, "hgemm_packs") as thread:
        return thread.submit(_places, backend).result()


def _places(backend: str) -> Places:
    import torch

    plain = torch.zeros(1, device="cpu")
    with torch.inference_mode():
        made = torch.zeros(1, device="cpu")
    zeros = torch._efficientzerotensor(1, device="cpu")
    tensors = [plain, made, torch._neg_view(plain), zeros]
    keys = [torch._C._dispatch_keys(tensor).raw_repr() for tensor in tensors]
    if keys[:2] != [*_plain(torch, "CPU")]:
        raise AttributeError("tensors have other dispatch keys")
    addresses = [tensor._cdata for tensor in tensors]
    ends = object.__basicsize__, torch.Tensor.__basicsize__
    in_object = _place([id(tensor) for tensor in tensors], addresses, *ends)
    in_tensor = _place(addresses, keys, 8, TENSOR_BYTES)
    return in_object, in_tensor, _plain(torch, backend), _geometry(torch)


def _plain(torch: Any, backend: str) -> tuple[int, int]:
    names = [backend, f"Autocast{backend}", f"Autograd{backend}", "ADInplaceOrView"]
    of = torch._C.DispatchKeySet
    each = [of(getattr(torch._C.DispatchKey, name)) for name in names]
    made = each[0] | each[1]
    return (made | each[2] | each[3]).raw_repr(), made.raw_repr()


def _geometry(torch: Any) -> tuple[int, int, int]:
    """The places of the number of dimensions, of the offset and of the type."""
    # Numbers that torch keeps from version to version: its shim hands them to compiled models.
    types = {torch.float16: 5, torch.bfloat16: 15, torch.float32: 6, torch.int8: 1}
    shapes = [(3, 7), (2, 3, 5), (4, 2, 3, 2), (2, 2, 3, 2, 2), (6,), (3, 7)]
    probes = [
        torch.zeros(4096, dtype=[*types][i % len(types)], device="cpu").as_strided(
            shape, [11 + i, 5, 17, 2, 3][: len(shape)], 100 + i
        )
        for i, shape in enumerate(shapes)
    ]
    starts = [probe._cdata for probe in probes]
    try:
        dims = _place(starts, [probe.dim() for probe in probes], 8, TENSOR_BYTES)
        offset = _place(starts, [probe.storage_offset() for probe in probes], 8, TENSOR_BYTES)
        of_type = _place(
            starts, [types[probe.dtype] for probe in probes], 8, TENSOR_BYTES, ctypes.c_uint16
        )
    except AttributeError:
        return UNKNOWN
    found = all(_lies(start + dims + 8, probe) for start, probe in zip(starts, probes, strict=True))
    return (dims, offset, of_type) if found else UNKNOWN


def _lies(address: int, probe: torch.Tensor) -> bool:
    """Whether the sizes and behind them the strides of a tensor stand there."""
    strides = address + 8 * INLINE_DIMS
    return _words(address, probe.dim()) == [*probe.shape] and _words(strides, probe.dim()) == [
        *probe.stride()
    ]


def _words(address: int, count: int) -> list[int]:
    return [ctypes.c_int64.from_address(address + 8 * i).value for i in range(count)]


def _place(
    starts: Sequence[int], words: Sequence[int], first: int, end: int, kind: Any = ctypes.c_uint64
) -> int:
    """The offset at which each of `starts` has its word."""
    for offset in range(first, end, ctypes.sizeof(kind)):
        if [kind.from_address(start + offset).value for start in starts] == [*words]:
            return offset
    raise AttributeError("tensors are laid out in another way")
