"""Exactly torch's behaviour for what is not a product of fitting tensors: same exception type, same
message, same warning, same result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.fake_driver import Started

Call = Callable[[Callable[..., Any]], Any]


def half(*size: int, **options: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(size))
    return torch.randn(size, generator=generator).to(options.get("dtype", torch.float16))


def outcome(call: Call, matmul: Callable[..., Any]) -> tuple[Any, ...]:
    """What a caller can see of a call: result or error, and warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(matmul)
        except Exception as error:
            return type(error), str(error), len(caught)
    seen = sorted((w.category.__name__, str(w.message)) for w in caught)
    return result.dtype, result.shape, result.stride(), result.double().tolist(), seen


WRONG: dict[str, Call] = {
    "inner sizes": lambda f: f(half(8, 16), half(8, 16)),
    "inner sizes, 3-d": lambda f: f(half(2, 8, 16), half(8, 16)),
    "batch sizes": lambda f: f(half(2, 8, 16), half(3, 16, 8)),
    "0-d": lambda f: f(half(8, 16), torch.tensor(1.0, dtype=torch.float16)),
    "dtypes": lambda f: f(half(8, 16), half(16, 8, dtype=torch.bfloat16)),
    "half and float": lambda f: f(half(8, 16), half(16, 8, dtype=torch.float32)),
    "out dtype": lambda f: f(half(8, 16), half(16, 8), out=half(8, 8, dtype=torch.bfloat16)),
    "out float": lambda f: f(half(8, 16), half(16, 8), out=half(8, 8, dtype=torch.float32)),
    "out device": lambda f: f(half(8, 16), half(16, 8), out=half(8, 8).to("meta")),
    "out expanded": lambda f: f(half(8, 16), half(16, 8), out=half(1, 8).expand(8, 8)),
    "out requires grad": lambda f: f(half(8, 8), half(8, 8), out=half(8, 8).requires_grad_()),
    "a requires grad, out": lambda f: f(half(8, 8).requires_grad_(), half(8, 8), out=half(8, 8)),
    "no arguments": lambda f: f(),
    "one argument": lambda f: f(half(8, 8)),
    "too many arguments": lambda f: f(half(8, 8), half(8, 8), half(8, 8)),
    "unknown keyword": lambda f: f(half(8, 8), half(8, 8), alpha=2),
    "twice": lambda f: f(half(8, 8), half(8, 8), other=half(8, 8)),
    "not tensors": lambda f: f([[1.0]], half(1, 1)),
    "None": lambda f: f(half(8, 8), None),
    "out not a tensor": lambda f: f(half(8, 8), half(8, 8), out=3),
}

UNUSUAL: dict[str, Call] = {
    "out is a": lambda f: f(a := half(8, 8), half(8, 8), out=a),
    "out overlaps b": lambda f: f(half(8, 8), (x := half(9, 8))[:8], out=x[1:]),
    "resized out": lambda f: f(half(8, 16), half(16, 8), out=torch.zeros(3, dtype=torch.float16)),
    "empty out": lambda f: f(half(8, 16), half(16, 8), out=torch.empty(0, dtype=torch.float16)),
    "out of rank 3": lambda f: f(half(8, 16), half(16, 8), out=half(1, 8, 8)),
    "transposed out": lambda f: f(half(8, 16), half(16, 8), out=half(8, 8).t()),
    "strided out": lambda f: f(half(8, 16), half(16, 8), out=half(8, 16)[:, ::2]),
    "wide out": lambda f: f(half(8, 16), half(16, 8), out=half(8, 16)[:, 8:]),
    "out, 3-d": lambda f: f(half(2, 4, 16), half(16, 8), out=half(2, 4, 8)),
    "transposed out, 3-d": lambda f: f(half(2, 4, 16), half(16, 8), out=half(4, 2, 8).mT.mT),
    "vectors": lambda f: f(half(16), half(16)),
    "matrix vector": lambda f: f(half(8, 16), half(16)),
    "vector matrix": lambda f: f(half(16), half(16, 8)),
    "batched": lambda f: f(half(2, 8, 16), half(2, 16, 8)),
    "broadcast": lambda f: f(half(8, 16), half(2, 16, 8)),
    "8 dimensions": lambda f: f(half(1, 2, 1, 2, 1, 2, 4, 16), half(16, 8)),
    "no rows": lambda f: f(half(0, 16), half(16, 8)),
    "nothing to sum": lambda f: f(half(8, 0), half(0, 8)),
    "nothing to sum, out": lambda f: f(half(8, 0), half(0, 8), out=half(8, 8)),
    "float": lambda f: f(half(8, 16, dtype=torch.float32), half(16, 8, dtype=torch.float32)),
    "integers": lambda f: f(torch.ones(8, 16).int(), torch.ones(16, 8).int()),
    "expanded b": lambda f: f(half(8, 16), half(1, 8).expand(16, 8)),
    "b backwards": lambda f: f(half(8, 16), half(16, 8).flip(0)),
    "imaginary part": lambda f: f(half(8, 16).float().to(torch.complex64).imag.half(), half(16, 8)),
}


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("name", [*WRONG, *UNUSUAL])
def test_the_same_as_torch(fake: Started, name: str, served: bool) -> None:
    if served:
        for layout in ("nn", "nt", "tn", "tt"):
            fake.serve("ptr_v1", layout)
    call = {**WRONG, **UNUSUAL}[name]
    wanted = outcome(call, torch.matmul)
    assert (name in WRONG) == isinstance(wanted[0], type), wanted
    assert outcome(call, fake.matmul) == wanted
    if served and name.startswith(("out is", "out overlaps")):
        assert fake.fallbacks() == {"out": 1}
