"""What goes on around a kernel under test on a GPU: kernels of ours that fill the SMs or keep the
device at work, and a product of torch's.

`Neighbours` is the `launches.Surroundings` of a CUDA device. Kernels are in neighbours.cu, compiled
by NVRTC behind the cache that all kernels have.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families.base import SMEM_LIMIT_BYTES
from hgemm_packs.generator.gates.state.mapped import call

FILLERS = 1024  # threads of a CTA
HAMMERS = 512
HAMMERED_BYTES = 1 << 27  # more than any L2 holds
MOST_NS = 30_000_000  # that a hammer works: a grid whose CTAs start together may wait for its end
SIDE = 192  # of the product between launches


def cubin(symbol: str) -> bytes:
    """One kernel of neighbours.cu. Raises BuildError."""
    text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    return compiler.build_source(text, {"symbol": symbol}).cubin


@cache
def _function(index: int, symbol: str) -> Any:
    """A loaded kernel, for good."""
    from cuda.bindings import driver

    del index  # of the current context
    module = call(driver.cuModuleLoadData, cubin(symbol))
    function = call(driver.cuModuleGetFunction, module, symbol.encode())
    if symbol == "fill":
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(driver.cuFuncSetAttribute, function, most, SMEM_LIMIT_BYTES)
    return function


class Neighbours:
    """Around launches on CUDA device `index`, which has `sm_count` SMs; `seed` decides what is
    random. Everything is queued on the current stream."""

    def __init__(self, index: int, sm_count: int, seed: int) -> None:
        self._index, self._sm_count, self._seed = index, sm_count, seed & 0xFFFFFFFF
        self._place = place = torch.device("cuda", index)
        self._sink = torch.zeros(1, dtype=torch.int32, device=place)
        self._one = torch.ones((SIDE, SIDE), dtype=torch.float16, device=place)
        self._product = torch.empty_like(self._one)
        self._stream = torch.cuda.Stream(place)
        _function(index, "fill"), _function(index, "hammer")  # ahead of a capture
        self.other()

    def fill(self, pattern: int | None) -> None:
        """See `launches.Surroundings`. A graph repeats its random bits."""
        self._seed = (self._seed * 1664525 + 1013904223) & 0xFFFFFFFF
        self._launch(
            "fill",
            (self._sm_count, FILLERS, SMEM_LIMIT_BYTES),
            torch.cuda.current_stream(self._place),
            (ctypes.c_uint32, pattern or 0),
            (ctypes.c_uint32, pattern is None),
            (ctypes.c_uint32, self._seed),
            (ctypes.c_uint32, SMEM_LIMIT_BYTES // 4),
            (ctypes.c_void_p, self._sink.data_ptr()),
        )

    def other(self) -> None:
        """See `launches.Surroundings`: a product by torch."""
        torch.mm(self._one, self._one, out=self._product)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """See `launches.Surroundings`."""
        current = torch.cuda.current_stream(self._place)
        memory = torch.zeros(HAMMERED_BYTES // 4, dtype=torch.int32, device=self._place)
        stop = torch.zeros(1, dtype=torch.int32, device=self._place)
        self._stream.wait_stream(current)
        self._launch(
            "hammer",
            # Half of the SMs: beside it there is no room for a CTA that takes all registers.
            (self._sm_count // 2, HAMMERS, 0),
            self._stream,
            (ctypes.c_void_p, memory.data_ptr()),
            (ctypes.c_uint64, memory.numel()),
            (ctypes.c_void_p, stop.data_ptr()),
            (ctypes.c_uint64, MOST_NS),
        )
        try:
            yield
        finally:
            stop.fill_(1)
            current.wait_stream(self._stream)

    def _launch(
        self,
        symbol: str,
        shape: tuple[int, int, int],
        stream: torch.cuda.Stream,
        *arguments: tuple[Any, Any],
    ) -> None:
        """`shape`: CTAs, threads of each, bytes of shared memory. `arguments`: type and value."""
        from cuda.bindings import driver

        ctas, threads, smem = shape
        types, values = zip(*arguments, strict=True)
        call(
            driver.cuLaunchKernel,
            _function(self._index, symbol),
            *(ctas, 1, 1, threads, 1, 1, smem),
            stream.cuda_stream,
            (values, types),
            0,
        )
