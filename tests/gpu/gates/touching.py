"""What an isolated process does with mapped memory: each function runs in a child alone."""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.state.mapped import Mappings


def touch(element: int) -> int:
    """Write one element of a mapping of at least 1000, counted from its end where negative; the
    sum of the mapping afterwards."""
    torch.cuda.init()
    with Mappings(0) as memory:
        words = memory.words(1000)
        words.zero_()
        memory.wait()
        at = element if element >= 0 else words.numel() + element
        words[:1].as_strided((1,), (1,), at).fill_(7)
        memory.wait()
        return int(words.sum())


def touch_behind() -> int:
    """Write the element behind a mapping."""
    return _beyond(0)


def touch_before() -> int:
    """Write the element before a mapping."""
    return _beyond(-1)


def _beyond(at: int) -> int:
    """By a copy of the driver's: torch refuses such a view."""
    from cuda.bindings import driver

    from hgemm_packs.generator.gates.state.mapped import call

    torch.cuda.init()
    with Mappings(0) as memory:
        words = memory.words(1000)
        words.zero_()
        memory.wait()
        end = words.data_ptr() + (2 * words.numel() if at == 0 else 2 * at)
        call(driver.cuMemsetD16, end, 7, 1)
        memory.wait()
        return int(words.sum())


def again(count: int) -> bool:
    """Whether the same memory comes back, for as many elements and for more."""
    torch.cuda.init()
    with Mappings(0) as memory:
        first = memory.words(count)
        second = memory.words(count - 1)
        larger = memory.words(first.numel() + 1)
        same = first.data_ptr() == second.data_ptr()
        return same and larger.numel() > first.numel() and larger.data_ptr() != first.data_ptr()
