"""What was written is read again: by our own reader, which refuses what was changed since, and by
flashinfer-bench itself, whose files we read in turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs.errors import PackError
from hgemm_packs.generator.flashinfer_trace import trace_set
from tests.generator.flashinfer_trace.documents import GEMM, put
from tests.generator.flashinfer_trace.exported import export

BROKEN: Sequence[tuple[str, str, Any, str]] = (
    ("solutions", "sources", [{"path": "../main.py", "content": "x"}], "bad_path"),
    ("solutions", "sources", [{"path": "/main.py", "content": "x"}], "bad_path"),
    ("solutions", "sources", [{"path": "a/./main.py", "content": "x"}], "bad_path"),
    ("solutions", "sources", [{"path": "main.py", "content": "x"}] * 2, "duplicate_name"),
    ("solutions", "sources", [{"path": "other.py", "content": "x"}], "bad_value"),
    ("solutions", "sources", [], "bad_count"),
    ("solutions", "definition", "another", "unknown_definition"),
    ("solutions", "author", "", "bad_text"),
    ("traces", "definition", "another", "unknown_definition"),
    ("traces", "solution", "another", "unknown_solution"),
    ("traces", "solution", None, "missing_field"),
    ("traces", "workload.axes", {"N": 4}, "unknown_axis"),
    ("traces", "workload.inputs", {"A": {"type": "random"}}, "unknown_input"),
    ("traces", "workload.inputs", {"A": {"type": "pickle"}}, "bad_value"),
    ("traces", "evaluation.status", "TIMEOUT", "bad_value"),
    ("traces", "evaluation.status", "FASTEST", "bad_value"),
    ("traces", "evaluation.correctness", None, "bad_value"),
    ("traces", "evaluation.performance", None, "bad_value"),
    ("traces", "evaluation.performance.latency_ms", -1.0, "out_of_bounds"),
    ("traces", "evaluation.performance.latency_ms", "fast", "wrong_type"),
    ("traces", "evaluation.correctness.max_absolute_error", "zero", "wrong_type"),
    ("workloads", "solution", "hgemm_packs_gemm_n4096_k4096", "missing_field"),
)


@pytest.mark.parametrize(("kind", "field", "value", "code"), BROKEN)
def test_our_reader_refuses_a_folder_that_was_changed(
    kind: str, field: str, value: Any, code: str, place: Path, tmp_path: Path
) -> None:
    path = put(tmp_path / "definition.json", GEMM)
    export(place, tmp_path / "out", "--definition", path)
    (file,) = (each for each in (tmp_path / "out" / kind).rglob("*") if each.is_file())
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    document = json.loads(lines[0])
    where = document
    *front, last = field.split(".")
    for name in front:
        where = where[name]
    where[last] = value
    put(file, document, *(json.loads(line) for line in lines[1:]))
    with pytest.raises(PackError) as refusal:
        trace_set.read(tmp_path / "out")
    assert refusal.value.code == code
    assert refusal.value.where.startswith(str(file))


def test_flashinfer_bench_reads_the_same(place: Path, tmp_path: Path) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    found, _ = export(place, tmp_path / "out")
    theirs = data.TraceSet.from_path(str(tmp_path / "out"))
    assert theirs.definitions.keys() == found.definitions.keys()
    for name, definition in theirs.definitions.items():
        ours = found.definitions[name]
        assert definition.reference == ours.reference
        values = {axis: getattr(each, "value", None) for axis, each in definition.axes.items()}
        assert values == {axis: each.value for axis, each in ours.axes.items()}
        (solution,) = theirs.solutions[name]
        text = found.solutions[solution.name].sources["main.py"]
        assert solution.get_entry_source().content == text
    lines = [each for name in found.definitions for each in theirs.traces[name]]
    ordered = sorted(found.traces, key=lambda each: list(found.definitions).index(each.definition))
    assert len(lines) == len(ordered) > 50
    for line, trace in zip(lines, ordered, strict=True):
        assert line.workload.axes == dict(trace.workload.axes)
        assert line.workload.uuid == trace.workload.uuid
        assert line.solution == trace.solution
        assert trace.evaluation is not None and trace.evaluation.correctness is not None
        assert line.evaluation.performance.model_dump() == trace.evaluation.performance
        assert math.isnan(line.evaluation.correctness.max_absolute_error)
        assert line.evaluation.correctness.extra == trace.evaluation.correctness["extra"]
    # And back: what the package writes is what we read.
    again = tmp_path / "again"
    for name, definition in theirs.definitions.items():
        data.save_json_file(definition, again / "definitions" / f"{name}.json")
        data.save_json_file(theirs.solutions[name][0], again / "solutions" / f"{name}.json")
        data.save_jsonl_file(theirs.workloads[name], again / "workloads" / f"{name}.jsonl")
        data.save_jsonl_file(theirs.traces[name], again / "traces" / f"{name}.jsonl")
    back = trace_set.read(again)
    assert (back.definitions, back.solutions) == (found.definitions, found.solutions)
    assert len(back.traces) == len(found.traces)
    for trace, line in zip(
        sorted(back.traces, key=str), sorted(found.traces, key=str), strict=True
    ):
        assert str(trace) == str(line)


def test_flashinfer_bench_builds_and_runs_a_solution(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    registry = pytest.importorskip("flashinfer_bench.compile").BuilderRegistry.get_instance()
    export(place, tmp_path / "out", "--layouts", "nn", "--layouts", "nt", "--layouts", "tt")
    theirs = data.TraceSet.from_path(str(tmp_path / "out"))
    for name in ("gemm_n64_k64_nn_f16", "gemm_n64_k64_tt_bf16", "gemm_n512_k2880_nt_bf16"):
        definition = theirs.definitions[name]
        shapes = definition.get_input_shapes({"M": 8})
        operands = [
            torch.randn(shape, generator=torch.Generator().manual_seed(i)).to(dtype)
            for i, (shape, dtype) in enumerate(
                zip(shapes, definition.torch_input_dtypes, strict=True)
            )
        ]
        expected = registry.build_reference(definition)(*operands)
        solution = registry.build(definition, theirs.solutions[name][0])
        assert torch.equal(solution.call_value_returning(*operands), expected)
