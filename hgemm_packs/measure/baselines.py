"""The strongest opponents of a pack: torch's own choice, and every algorithm cuBLASLt offers.

Called by the generator and `hgemm-packs bench`. cuBLASLt is torch's own loaded copy; its heuristic
is asked under several workspace limits because it returns at most eight algorithms a query.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .. import _cublaslt
from ..problem import Problem, columns_of
from ..settings import LOGGER
from .operands import operands
from .replay import Arm
from .timing import Protocol, is_alike, screen, torch_mm

__all__ = ["TunedCublasLt", "best_cublaslt", "cublaslt_version", "torch_mm", "tuned_cublaslt"]

LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12")
WORKSPACE_LIMITS = (0, 4 << 20, 32 << 20, 256 << 20)
MAX_ALIGNMENT = 256


@functools.cache
def _handle(device: int | None) -> object:
    """A cuBLASLt handle of a CUDA device (bound to it when made), for the life of the process."""
    with torch.cuda.device(device):
        return _cublaslt.handle(*LIBRARIES)


@functools.cache
def _workspace(device: torch.device) -> torch.Tensor:
    return torch.empty(max(WORKSPACE_LIMITS), dtype=torch.uint8, device=device)


def cublaslt_version(device: int = 0) -> str:
    """Version of the library in use, such as "13.1.0"."""
    number = _cublaslt.version(_handle(device))
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@dataclass(frozen=True, slots=True)
class CublasLtAlgorithm:
    """One algorithm of one problem, as an arm. Valid for operands of the same shapes, strides and
    pointer alignment as those it was made from."""

    plan: object
    index: int
    workspace: torch.Tensor
    workspace_bytes: int

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c = a @ b on the current stream. Raises RuntimeError with cuBLASLt's own status."""
        _cublaslt.matmul(
            self.plan,
            self.index,
            a.data_ptr(),
            b.data_ptr(),
            c.data_ptr(),
            self.workspace.data_ptr(),
            self.workspace_bytes,
            torch.cuda.current_stream(a.device).cuda_stream,
        )


def _read_storage(x: torch.Tensor) -> tuple[bool, int]:
    """(transposed, leading stride in elements) of a 2-D operand whose other stride is 1."""
    rows, cols = x.shape
    if x.stride(1) == 1 and (rows == 1 or x.stride(0) >= cols):
        return False, max(x.stride(0), cols)
    if x.stride(0) == 1 and (cols == 1 or x.stride(1) >= rows):
        return True, max(x.stride(1), rows)
    raise ValueError(f"neither dimension is contiguous: shape {tuple(x.shape)}, {x.stride()}")


def _alignment(tensors: Sequence[torch.Tensor]) -> int:
    """Largest power of two, at most 256, that divides every pointer (bytes)."""
    return math.gcd(MAX_ALIGNMENT, *(x.data_ptr() for x in tensors))


def tuned_cublaslt(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> list[Arm]:
    """Every distinct algorithm that the heuristic offers for `problem` on these operands.

    Raises RuntimeError when cuBLASLt is absent or refuses the problem.
    """
    a_transposed, lda = _read_storage(a)
    b_transposed, ldb = _read_storage(b)
    plan = _cublaslt.plan(
        _handle(a.device.index),
        problem.dtype == "bf16",
        problem.m,
        problem.n,
        problem.k,
        a_transposed,
        b_transposed,
        lda,
        ldb,
        max(c.stride(0), problem.n),
        _alignment((a, b, c)),
        WORKSPACE_LIMITS,
    )
    workspace = _workspace(a.device)
    return [
        CublasLtAlgorithm(plan, index, workspace, workspace_bytes)
        for index, (workspace_bytes, *_) in enumerate(_cublaslt.algorithms(plan))
    ]


@dataclass(frozen=True, slots=True)
class TunedCublasLt:
    """The fastest algorithm of each protocol by screening, and how many took part."""

    hot: Arm
    cold: Arm
    algorithms: int


def _into(arm: Arm, whole: torch.Tensor) -> Arm:
    return lambda a, b, c: arm(a, b, whole)


def best_cublaslt(
    problem: Problem, *, device: int = 0, seed: int = 0, replays: int = 3, target_us: float = 200.0
) -> TunedCublasLt | None:
    """Screen all of cuBLASLt's algorithms, hot and cold apart where these are two figures; None
    when it offers none."""
    one = operands(problem, device, seed=seed)[0]
    # Of a gated problem it makes the product alone, twice as wide as C.
    whole = one.c
    if columns_of(problem.n, problem.epilogue) < problem.n:
        whole = one.c.new_empty(problem.m, problem.n)
    arms: dict[str, Arm] = {}
    with torch.cuda.device(device):
        for index, arm in enumerate(tuned_cublaslt(problem, one.a, one.b, whole)):
            if whole is not one.c:
                arm = _into(arm, whole)
            try:
                arm(one.a, one.b, one.c)
            except RuntimeError as error:
                # The heuristic may offer what the library then refuses; one bad offer must not
                # hide the others.
                LOGGER.warning("cuBLASLt algorithm %d of %s: %s", index, problem, error)
                continue
            arms[str(index)] = arm
    if not arms:
        return None

    def pick(protocol: Protocol) -> Arm:
        medians = screen(
            arms,
            problem,
            protocol=protocol,
            replays=replays,
            target_us=target_us,
            device=device,
            seed=seed,
        )
        return arms[min(medians, key=medians.__getitem__)]

    hot = pick("hot")
    return TunedCublasLt(hot, hot if is_alike(problem, device) else pick("cold"), len(arms))
