"""torch's own samples of its products (OpInfo), each as torch runs it and as we do: under
`enabled()` and, where it is a product alone, through `matmul`.

Where torch served both, every bit must agree, gradients' too; where a kernel did, results are held
to torch's in float64. Used by tests on both devices and by benchmarks/gates/opinfo.py.
"""

from __future__ import annotations

import sys
import types
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import hgemm_packs
from hgemm_packs import launcher

NAMES = ("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear")
ACTIVATED = "_addmm_activation"
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
#: Samples are small: kernels are for sides that these numbers divide.
GROWN, LARGEST = 8, 1000
#: Of the largest result: what a kernel's order of summation and rounding may cost.
CLOSE = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}

Matmul = Callable[..., torch.Tensor]


@dataclass
class Tally:
    """What a run found."""

    run: int = 0
    hits: int = 0
    served: Counter[str] = field(default_factory=Counter)  # samples that a kernel ran, by operator
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def operators() -> list[Any]:
    """OpInfos of the products, in all their variants."""
    # torch's tests derive from a class of this package, which nothing here needs.
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        vars(stand_in)["TestCase"] = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    found = [op for op in op_db if op.name in NAMES]
    (sums,) = (op for op in found if op.name == "addmm" and not op.variant_test_name)
    return [*found, *(Activated(sums, use_gelu) for use_gelu in (False, True))]


@dataclass(frozen=True)
class Activated:
    """torch._addmm_activation, which torch has no samples of, on those of addmm."""

    sums: Any
    use_gelu: bool
    name: str = ACTIVATED

    @property
    def variant_test_name(self) -> str:
        return "gelu" if self.use_gelu else "relu"

    def supported_dtypes(self, device: str) -> Any:
        return self.sums.supported_dtypes(device)

    def sample_inputs(self, *given: Any, **named: Any) -> Any:
        return self.sums.sample_inputs(*given, **named)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch._addmm_activation(*args, **kwargs, use_gelu=self.use_gelu)


def check(device: str, matmul: Matmul, tally: Tally) -> None:
    """Run all samples on a device, "cpu" or "cuda"."""
    for op in operators():
        for name, dtype in DTYPES.items():
            title = f"{op.name}{op.variant_test_name and ' '}{op.variant_test_name} {name}"
            if dtype not in op.supported_dtypes(device):
                tally.skipped[f"{title}: torch has no samples of it here"] += 1
                continue
            for number, call in enumerate(_calls(op, device, dtype)):
                _check(f"{title} {number}", op, call, matmul, tally)


@dataclass
class _Call:
    """One sample's arguments."""

    args: list[Any]
    kwargs: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        given = [*self.args, *self.kwargs.values()]
        return [each for each in given if isinstance(each, torch.Tensor)]

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> _Call:
        def of(value: Any) -> Any:
            return change(value) if isinstance(value, torch.Tensor) else value

        return _Call([of(x) for x in self.args], {name: of(x) for name, x in self.kwargs.items()})


def _calls(op: Any, device: str, dtype: torch.dtype) -> Iterator[_Call]:
    for requires_grad in (False, True):
        torch.manual_seed(0)
        for sample in op.sample_inputs(device, dtype, requires_grad=requires_grad):
            call = _Call([sample.input, *sample.args], dict(sample.kwargs))
            for each in (call, *_variants(op.name, call)):
                yield each
                if max(x.numel() for x in each.tensors()) <= LARGEST:
                    yield each.mapped(_grown)


def _variants(name: str, call: _Call) -> Iterator[_Call]:
    """What torch's samples lack: batches of one matrix, and sums that add one row to each."""
    if "bmm" in name and all(x.dim() == 3 for x in call.tensors()):
        yield call.mapped(lambda x: _leaf(x[:1], x))
    added = call.args[0]
    if name in ("addmm", ACTIVATED) and added.dim() == 2:
        yield _Call([_leaf(added[0], added), *call.args[1:]], {})


def _leaf(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    return part.detach().clone().requires_grad_(whole.requires_grad)


def _grown(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        grown = tensor.repeat([GROWN if side > 1 else 1 for side in tensor.shape])
        grown = grown + torch.arange(grown.numel(), device=grown.device).view_as(grown) % 3
    return grown.to(tensor.dtype).requires_grad_(tensor.requires_grad)


def _check(title: str, op: Any, call: _Call, matmul: Matmul, tally: Tally) -> None:
    function = lambda *args, **kwargs: op(*args, **kwargs)  # noqa: E731
    wanted, _ = _seen(function, call)
    with hgemm_packs.enabled():
        seen = _seen(function, call)
    tally.served[op.name] += bool(seen[1])
    _hold(f"{title} enabled", call, wanted, seen, tally)
    alone = _alone(op.name, call, matmul)
    if isinstance(alone, str):
        tally.skipped[f"{op.name} through matmul: {alone}"] += 1
    else:
        _hold(f"{title} matmul", call, wanted, _seen(alone, call), tally)


def _alone(name: str, call: _Call, matmul: Matmul) -> Callable[..., torch.Tensor] | str:
    """The sample as a call of matmul, or why it is none."""
    if name in ("addmm", "baddbmm", ACTIVATED):
        return "a sum is no product alone"
    if name != "nn.functional.linear":
        return matmul
    if len(call.tensors()) > 2:
        return "a layer with a bias is no product alone"
    return lambda x, weight, **_: matmul(x, weight.t())


def _seen(function: Callable[..., Any], call: _Call) -> tuple[list[Any], int]:
    """What a call returned or raised, with its gradients, and how many kernels ran."""
    mine = call.mapped(lambda x: x.detach().clone().requires_grad_(x.requires_grad))
    hits = launcher.counters()["hits"]
    found: list[Any] = []
    try:
        result = function(*mine.args, **mine.kwargs)
        found.append(result.detach())
        if result.requires_grad:
            result.backward(torch.ones_like(result))
            found += [x.grad for x in mine.tensors()]
    except RuntimeError as error:
        found.append(str(error))
    return found, launcher.counters()["hits"] - hits


def _hold(
    title: str, call: _Call, wanted: list[Any], seen: tuple[list[Any], int], tally: Tally
) -> None:
    found, hits = seen
    tally.run += 1
    tally.hits += hits
    same = len(found) == len(wanted) and all(
        _is_same(x, y, exactly=not hits) for x, y in zip(found, wanted, strict=True)
    )
    if not same:
        shapes = [tuple(x.shape) for x in call.tensors()]
        tally.failures.append(f"{title} of {shapes}, {hits} kernels: {found} for {wanted}")


def _is_same(found: Any, wanted: Any, exactly: bool) -> bool:
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return found is wanted or found == wanted
    if (found.dtype, found.shape, found.stride()) != (wanted.dtype, wanted.shape, wanted.stride()):
        return False
    if exactly or not wanted.numel():
        return torch.equal(found, wanted)
    scale = wanted.double().abs().max().item()
    return bool(((found.double() - wanted.double()).abs() <= CLOSE[wanted.dtype] * scale).all())
