"""Where C finds a tensor's dispatch keys, which tell plain memory from all else that is a tensor.

Asked by `torch_state` once, when the launcher starts. torch says what the keys are, not where they
lie, so they are looked for in tensors of different kinds; nothing else of torch's objects is read.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: torch's own bound on the size of its C++ tensors; the search ends before it gets there.
TENSOR_BYTES = 208


def places(backend: str) -> tuple[int, int, int, int]:
    """Bytes from a Python tensor to its C++ one, a pointer; from where that points to the keys; the
    keys of plain memory of a backend, and of such that was made in inference mode.

    In a thread of its own, since the caller's may have modes on. Raises AttributeError for a torch
    in which they are not to be found.
    """
    with ThreadPoolExecutor(1, "hgemm_packs") as thread:
        return thread.submit(_places, backend).result()


def _places(backend: str) -> tuple[int, int, int, int]:
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
    return in_object, _place(addresses, keys, 8, TENSOR_BYTES), *_plain(torch, backend)


def _plain(torch: Any, backend: str) -> tuple[int, int]:
    names = [backend, f"Autocast{backend}", f"Autograd{backend}", "ADInplaceOrView"]
    of = torch._C.DispatchKeySet
    each = [of(getattr(torch._C.DispatchKey, name)) for name in names]
    made = each[0] | each[1]
    return (made | each[2] | each[3]).raw_repr(), made.raw_repr()


def _place(starts: list[int], words: list[int], first: int, end: int) -> int:
    """The offset at which each of `starts` has its word."""
    for offset in range(first, end, 8):
        if [ctypes.c_uint64.from_address(start + offset).value for start in starts] == words:
            return offset
    raise AttributeError("tensors are laid out in another way")
