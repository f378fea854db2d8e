"""The C extension (csrc/launcher). Only hgemm_packs.launcher uses it."""

from collections.abc import Callable
from typing import Any, TypedDict, final

import torch

_Described = tuple[int, int, int, str, str, int, int, str]
_Range = tuple[int, int, int]

@final
class Kernel:
    """A kernel loaded on one device."""

    @property
    def device(self) -> int: ...
    @property
    def max_ctas(self) -> int: ...
    def workspace(self, m: int, n: int, /) -> int: ...
    def within(self, ctas: int, /) -> Kernel: ...

class _Counters(TypedDict):
    hits: int
    launches: int
    predicted: int
    fallbacks: dict[str, int]

def matmul(
    input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor: ...
def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor: ...
def addmm(
    input: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor: ...
def fused_linear(
    input: torch.Tensor, weight: torch.Tensor, addend: torch.Tensor | None, epilogue: str, /
) -> torch.Tensor | None: ...
def init(
    *,
    driver: str,
    device_type: int,
    tensor: type,
    parameter: type,
    matmul: Callable[..., Any],
    mm: Callable[..., Any],
    linear: Callable[..., Any],
    addmm: Callable[..., Any],
    empty: Callable[..., Any],
    empty_current: Callable[..., Any] | None,
    f16: torch.dtype,
    bf16: torch.dtype,
    bump_version: Callable[..., Any],
    grad_enabled: Callable[[], bool],
    probes: tuple[tuple[Any, ...], ...],
    covered: int,
    places: tuple[int, int, tuple[int, int], tuple[int, int, int]],
    keep: Callable[[int, int, int], tuple[int, object] | None],
    resolve: Callable[[_Described, int, int, int, int], tuple[Kernel, Kernel | None, bool] | str],
    refuse: Callable[[str, _Described | None, int], None],
    record: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor | None],
    least_recorded: float,
    strict: bool,
) -> bool: ...
def use_torch(
    matmul: Callable[..., Any],
    linear: Callable[..., Any],
    addmm: Callable[..., Any],
    refuse: Callable[[str, _Described | None, int], None],
    strict: bool,
    /,
) -> None: ...
def on_first_call(start: Callable[[], None], /) -> None: ...
def remember_quiet() -> None: ...
def load(
    *,
    device: int,
    image: bytes,
    symbol: str,
    param_layout: str,
    param_sizes: tuple[int, ...],
    maps: tuple[tuple[tuple[int, int], int, int, int], ...],
    block: int,
    cluster: tuple[int, int, int],
    tile: tuple[int, int],
    slices: int,
    persistent: bool,
    pdl: bool,
    cooperative: bool,
    reads_ahead: bool,
    smem_bytes: int,
    workspace_bytes: int,
    layout: str,
    dtype: str,
    align: tuple[int, int, int],
    dims: tuple[_Range, ...],
    epilogue: str,
) -> Kernel: ...
def launch(
    kernel: Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    workspace: tuple[int, int] | None,
    addend: torch.Tensor | None,
    /,
) -> None: ...
def describe_grouped(
    tokens: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, /
) -> tuple[int, int, int, int, str, str, int] | str: ...
def launch_grouped(
    kernel: Kernel,
    tokens: torch.Tensor,
    weights: torch.Tensor,
    ends: torch.Tensor,
    out: torch.Tensor,
    /,
) -> None: ...
def fall_back_grouped(reason: str, /) -> None: ...
def relaxed(function: Callable[[], object], /) -> object: ...
def override(find: Callable[[str, str], int], /) -> bool | None: ...
def serve_program(on: bool, /) -> None: ...
def describe(
    a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, epilogue: str, /
) -> _Described | str: ...
def device_info(
    index: int, /
) -> tuple[str, int, int, int, int, int, int, int, tuple[int, int, int]]: ...
def counters() -> _Counters: ...
def reset_table() -> None: ...
def set_strict(strict: bool, /) -> None: ...
def set_off(off: bool, /) -> None: ...
def set_invariant(invariant: bool, /) -> None: ...
def on_fallback(note: Callable[[str], None], /) -> None: ...
def record_calls(record: Callable[[_Described], object] | None, /) -> None: ...
def know_rows(device: int, lines: bytes, start: int, end: int, /) -> None: ...
def know_predictor(device: int, predictor: object | None, /) -> None: ...
def forget_predictors() -> None: ...
def predictor(
    sm_count: int,
    gbps: float,
    margin: float,
    candidates: bytes,
    ours: tuple[float, bytes, bytes, bytes, bytes],
    torch: tuple[float, bytes, bytes, bytes, bytes],
    doubt: tuple[float, bytes, bytes, bytes, bytes],
    /,
) -> object: ...
def predict(
    predictor: object, m: int, n: int, k: int, layout: str, dtype: str, /
) -> tuple[int, float, float, float, int] | None: ...
def features(
    predictor: object, m: int, n: int, k: int, layout: str, dtype: str, candidate: int, /
) -> tuple[float, ...] | None: ...
def floor_us(predictor: object, m: int, n: int, k: int, layout: str, dtype: str, /) -> float: ...
