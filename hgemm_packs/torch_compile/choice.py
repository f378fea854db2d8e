"""Which products of a graph get a kernel's node: asked of shapes, while there are no tensors.

Called while a graph is traced or lowered. The answer is the table's own; a call at run time asks
again, so a node that finds no kernel then is torch's product.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import dispatch, profiles, select
from ..launcher import device_info
from ..problem import DeviceInfo, Problem
from ..settings import is_off, read_switch

if TYPE_CHECKING:
    import torch

    from ..pack.manifest import Row

#: What a fused operation behind a product saves: a launch, and C written and read once more.
LAUNCH_US = 2.0
BYTES_PER_US = 3.0e6
#: Raised when this module or `lowering` decides otherwise: compiled graphs of before are not used.
RULES = 2
#: M of a problem whose M is not known before the call.
ANY_M = 1


class ServedProduct(NamedTuple):
    """A product that a kernel serves: [M, K] @ [K, N]. `gain_us` and `m` are None where M is not
    known before the call. With `adds_bias` the kernel adds one, and `gain_us` is of the sum."""

    gain_us: float | None
    m: int | None
    n: int
    adds_bias: bool = False

    def outweighs_fusion(self) -> bool:
        """Whether the kernel saves more than fusing an operation into torch's product would."""
        if self.gain_us is None or self.m is None:
            return False
        return self.gain_us > fusion_us(self.m, self.n)


def fusion_us(m: int, n: int) -> float:
    """What fusing the next operation into an [M, N] product saves, in microseconds."""
    return LAUNCH_US + 4.0 * m * n / BYTES_PER_US


def gain_us(row: Row) -> float:
    """What a row's kernel saves of torch's time, hot or cold, whichever is less."""
    return min(each.torch_us - each.us for each in (row.hot, row.cold))


def tables() -> str:
    """What decides which products get a node, as a word for keys of caches: "off" where nothing
    does. A graph that was compiled under one word is never used under another."""
    read_switch()
    if is_off():
        return "off"
    packs = [pack.manifest_sha256[:16] for pack in select.find_packs().packs]
    return f"rules {RULES}, packs {','.join(packs)}" if packs else "off"


def choose(a: torch.Tensor, b: torch.Tensor, *, biased: bool = False) -> ServedProduct | None:
    """The kernel's node for `a @ b`, [M, K] and [K, N], real or fake; None where torch multiplies.
    Sizes may be symbols: nothing is asked of them that would make a symbol a number. Where a bias
    is added, a kernel that does that comes before one of the product alone."""
    problem = _describe(a, b)
    if problem is None or a.device.type != dispatch.kind:
        return None
    wanted = [replace(problem, epilogue="bias"), problem] if biased else [problem]
    try:
        for each in wanted:
            found = _find(each, a.device.index or 0, isinstance(a.shape[0], int))
            if found is not None:
                return found
    except (RuntimeError, OSError):  # of a driver, device or file that cannot be used
        pass
    return None


def _find(problem: Problem, index: int, knows_m: bool) -> ServedProduct | None:
    adds_bias = problem.epilogue == "bias"
    if not knows_m:
        served = _serves_some(problem, index)
        return ServedProduct(None, None, problem.n, adds_bias) if served else None
    row = select.resolve(problem, index).row
    if row is None or row.kernel is None:
        return None
    return ServedProduct(gain_us(row), problem.m, problem.n, adds_bias)


def _describe(a: Any, b: Any) -> Problem | None:
    """The problem, as C describes tensors that are packed and aligned; or None."""
    dtype = {"torch.float16": "f16", "torch.bfloat16": "bf16"}.get(str(a.dtype))
    if dtype is None or a.dtype != b.dtype or a.device != b.device or (a.ndim, b.ndim) != (2, 2):
        return None
    (m, k), (inner, n) = a.shape, b.shape
    if not isinstance(k, int) or not isinstance(n, int) or not isinstance(inner, int) or k != inner:
        return None
    first, second = _storage(a), _storage(b)
    m = m if isinstance(m, int) else ANY_M
    if first is None or second is None or min(m, n, k) < 1:
        return None
    layout = first + second
    try:
        return Problem(m, n, k, layout, dtype)
    except ValueError:  # a side is too large
        return None


def _storage(matrix: Any) -> str | None:
    """ "n" where rows lie one after the other, "t" where columns do, None for neither."""
    (rows, cols), (row_stride, col_stride) = matrix.shape, matrix.stride()
    if (_is(col_stride, 1) or cols == 1) and (_is(row_stride, cols) or _is(rows, 1)):
        return "n"
    if (_is(row_stride, 1) or _is(rows, 1)) and (_is(col_stride, rows) or cols == 1):
        return "t"
    return None


def is_stored_by_column(matrix: torch.Tensor) -> bool:
    """Whether the columns of a matrix lie one after the other, as those of a layer's B do."""
    return _storage(matrix) == "t"


def _is(size: Any, number: Any) -> bool:
    """Equality that asks nothing of a symbol."""
    return isinstance(size, int) and isinstance(number, int) and size == number


def _serves_some(problem: Problem, index: int) -> bool:
    """Whether a kernel serves this weight at any M."""
    for m in _find_measured_m(tables(), problem.key[1:], device_info(index)):
        if select.resolve(replace(problem, m=m), index).kernel is not None:
            return True
    return False


@functools.cache
def _find_measured_m(tables: str, rest: tuple[Any, ...], device: DeviceInfo) -> tuple[int, ...]:
    """Each M that a table has of a weight, for this device."""
    found: set[int] = set()
    for manifest, profile in profiles.find_measured(select.find_packs().packs, device):
        rows = (row for row in manifest.table if row.profile == profile.name)
        found |= {row.m for row in rows if row.key[1:] == rest}
    return tuple(sorted(found))
