"""Documents of FlashInfer-Trace as the field writes them."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GEMM: dict[str, Any] = {
    "name": "gemm_n4096_k4096",
    "description": "C = A @ B.T, the output projection of a model.",
    "op_type": "gemm",
    "tags": ["status:verified", "model:some-8b"],
    "axes": {
        "M": {"type": "var", "description": "tokens"},
        "N": {"type": "const", "value": 4096},
        "K": {"type": "const", "value": 4096},
    },
    "inputs": {
        "A": {"shape": ["M", "K"], "dtype": "float16"},
        "B": {"shape": ["N", "K"], "dtype": "float16"},
    },
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B):\n    C = torch.matmul(A, B.T)\n    return C",
}


def changed(**fields: Any) -> dict[str, Any]:
    """The definition with other fields; None takes a field away."""
    document = {**copy.deepcopy(GEMM), **fields}
    return {name: value for name, value in document.items() if value is not None}


def workload(m: int, name: str = "gemm_n4096_k4096", **more: Any) -> dict[str, Any]:
    inputs = {"A": {"type": "random"}, "B": {"type": "random"}}
    case = {"axes": {"M": m}, "inputs": inputs, "uuid": f"case-{m}"}
    return {"definition": name, "solution": None, "workload": case, "evaluation": None, **more}


def put(path: Path, *documents: Any) -> Path:
    """Write one document, or lines of several."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
    return path


def put_folder(root: Path, rows: Sequence[int], document: dict[str, Any] = GEMM) -> Path:
    """A folder of the field with one definition and its workloads; gives the definition's path."""
    name = document["name"]
    put(root / "workloads" / "gemm" / f"{name}.jsonl", *(workload(m, name) for m in rows))
    return put(root / "definitions" / "gemm" / f"{name}.json", document)
