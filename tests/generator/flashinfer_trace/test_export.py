"""Rows of a table become solutions and traces: every number is the row's, and what nobody measured
is not claimed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.flashinfer_trace import errors, schema, solutions, trace_set
from hgemm_packs.generator.flashinfer_trace.problems import DTYPES, read_problems
from hgemm_packs.problem import Problem
from tests.generator.command import generate
from tests.generator.flashinfer_trace.documents import GEMM, changed, put, put_folder
from tests.generator.flashinfer_trace.exported import export, wins


def test_every_win_is_a_trace_with_the_numbers_of_its_row(
    source: SourceManifest, place: Path, tmp_path: Path
) -> None:
    found, said = export(place, tmp_path / "out", "--layouts", "nt", "--dtypes", "f16")
    rows = wins(source, "nt", "f16")
    assert said == f"{tmp_path / 'out'}: {len(found.solutions)} solutions with {len(rows)} traces\n"
    traces = {(t.definition, t.workload.axes["M"]): t for t in found.traces}
    kernels = {kernel.id: kernel for kernel in source.kernels}
    assert len(traces) == len(rows) == len(found.workloads) > 10
    for row in rows:
        trace = traces[f"gemm_n{row.n}_k{row.k}", row.m]
        answer = trace.evaluation
        assert answer is not None and answer.performance is not None
        assert trace.solution == f"hgemm_packs_gemm_n{row.n}_k{row.k}"
        assert answer.performance["latency_ms"] == pytest.approx(row.cold.us / 1e3, rel=1e-9)
        reference = answer.performance["reference_latency_ms"]
        assert reference == pytest.approx(row.cold.torch_us / 1e3, rel=1e-9)
        ratio = row.cold.torch_us / row.cold.us
        assert answer.performance["speedup_factor"] == pytest.approx(ratio, rel=1e-5)
        assert answer.environment["hardware"] == row.profile == "NVIDIA H200"
        assert answer.environment["libs"]["torch"] == source.baseline.torch
        assert answer.timestamp == row.date
        assert answer.correctness is not None
        extra = answer.correctness["extra"]
        kernel = kernels[row.kernel or ""]
        assert extra["relative_frobenius_error"] == kernel.numerics.max_rel_err
        assert extra["shapes_tested"] == kernel.numerics.shapes_tested
        assert (extra["kernel"], extra["kernel_sha256"]) == (kernel.name, kernel.id)
        for protocol, timing in (("hot_us", row.hot), ("cold_us", row.cold)):
            assert tuple(extra[protocol].values()) == (
                *(timing.us, timing.torch_us, timing.cublaslt_us, timing.speedup, timing.lcb),
            )
        # The gates do not measure these two, and 0 would say that they found no error.
        assert math.isnan(answer.correctness["max_relative_error"])
        assert math.isnan(answer.correctness["max_absolute_error"])


def test_what_is_exported_comes_in_again_as_the_problems_of_the_rows(
    source: SourceManifest, place: Path, tmp_path: Path
) -> None:
    found, _ = export(place, tmp_path / "out")
    back = {
        problem
        for name in found.definitions
        for problem in read_problems(tmp_path / "out" / "definitions" / "gemm" / f"{name}.json")
    }
    expected = {
        Problem(row.m, row.n, row.k, layout, dtype)
        for layout in ("nn", "nt", "tn", "tt")
        for dtype in DTYPES.values()
        for row in wins(source, layout, dtype)
    }
    assert back == expected
    assert {problem.layout for problem in back} == {"nn", "nt", "tn", "tt"}
    assert "gemm_n64_k64_tn_bf16" in found.definitions


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_solution_computes_what_its_definition_says(layout: str) -> None:
    document = solutions.define((24, 40, layout, "bf16"))
    found = solutions.read_matrix_product(schema.DEFINITION(document))
    sides = {"M": 8, "N": 24, "K": 40}
    operands = [
        torch.randn([sides[axis] for axis in tensor["shape"]], dtype=torch.bfloat16)
        for tensor in document["inputs"].values()
    ]
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(document["reference"], spaces[0])
    exec(solutions.write_main(found), spaces[1])
    c = torch.full((8, 24), math.nan, dtype=torch.bfloat16)
    spaces[1]["run"](*operands, c)
    assert torch.equal(c, spaces[0]["run"](*operands))
    left, right = (x.double() for x in operands)
    exact = (left.T if layout[0] == "t" else left) @ (right.T if layout[1] == "t" else right)
    assert torch.allclose(c.double(), exact, rtol=2**-8, atol=2**-8)


def test_a_foreign_definition_stays_as_it_is_and_keeps_its_workloads(
    source: SourceManifest, place: Path, tmp_path: Path
) -> None:
    # Its factors are the other way round, and its names are not Python's to trust.
    document = changed(
        name="projection",
        axes={"tokens": {"type": "var"}, "N": GEMM["axes"]["N"], "K": GEMM["axes"]["K"]},
        inputs={
            "import": {"shape": ["N", "K"], "dtype": "float16"},
            "x.y": {"shape": ["tokens", "K"], "dtype": "float16"},
        },
        outputs={"out": {"shape": ["tokens", "N"], "dtype": "float16"}},
        reference="def run(w, x):\n    return x @ w.T",
    )
    path = put(tmp_path / "in" / "definition.json", document)
    case = {"axes": {"tokens": 16}, "uuid": "theirs", "inputs": {}}
    case["inputs"] = {
        "import": {"type": "safetensors", "path": "w.safetensors", "tensor_key": "w"},
        "x.y": {"type": "random"},
    }
    put(path.with_name("workload.jsonl"), {"definition": "projection", "workload": case})
    found, _ = export(place, tmp_path / "out", "--definition", path)
    written = json.loads((tmp_path / "out/definitions/gemm/projection.json").read_text())
    assert written == document
    rows = [row for row in wins(source, "nt", "f16") if (row.n, row.k) == (4096, 4096)]
    by_m = {each.workload.axes["tokens"]: each.workload for each in found.traces}
    assert sorted(by_m) == [row.m for row in rows]
    assert by_m[16] == schema.WORKLOAD(case)
    assert by_m[32].inputs == {"import": {"type": "random"}, "x.y": {"type": "random"}}
    assert by_m[32].uuid != by_m[64].uuid
    text = found.solutions["hgemm_packs_projection"].sources["main.py"]
    space: dict[str, Any] = {}
    exec(text, space)
    w, x = torch.randn(24, 40).half(), torch.randn(8, 40).half()
    out = torch.empty(8, 24, dtype=torch.float16)
    space["run"](w, x, out)
    assert torch.equal(out, x @ w.T)


def test_kernels_travel_as_text(source: SourceManifest, place: Path, tmp_path: Path) -> None:
    axes = {**GEMM["axes"], "M": {"type": "const", "value": 16}}
    path = put(tmp_path / "definition.json", changed(axes=axes))
    found, _ = export(place, tmp_path / "out", "--definition", path, "--kernels")
    (trace,) = found.traces
    assert trace.workload.axes == {}
    texts = dict(found.solutions["hgemm_packs_gemm_n4096_k4096"].sources)
    assert texts.pop("main.py").startswith("from hgemm_packs import matmul\n")
    ((name, text),) = texts.items()
    assert trace.evaluation is not None and trace.evaluation.correctness is not None
    kernel = trace.evaluation.correctness["extra"]["kernel"]
    assert name == f"kernels/{kernel}.cu"
    assert f"#define HGP_SYMBOL {kernel}\n" in text


def test_what_cannot_be_exported_is_said_and_leaves_nothing(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    put_folder(folder, [1])
    put(folder / "definitions" / "norm" / "rms.json", changed(name="rms", reference="x = 1"))
    put(
        folder / "definitions" / "gemm" / "odd.json",
        changed(name="odd", axes={**GEMM["axes"], "N": {"type": "const", "value": 7}}),
    )
    found, said = export(place, tmp_path / "out", "--definition", folder)
    assert list(found.definitions) == ["gemm_n4096_k4096"]
    assert "rms.json: unknown_reference at reference: it has not one function run" in said
    assert "odd.json: no_rows: no row of the table names a kernel for odd" in said
    odd = folder / "definitions" / "gemm" / "odd.json"
    code, _, error = generate("trace", "export", place, "-o", tmp_path / "no", "--definition", odd)
    assert code == 2 and "no row of the table" in error
    assert not (tmp_path / "no").exists()
    code, _, error = generate("trace", "export", place, "-o", tmp_path / "out")
    assert code == 2 and "is there and not an empty folder" in error
    assert str(trace_set.read(tmp_path / "out")) == str(found)  # NaN is not itself
    code, _, error = generate("trace", "export", place, "-o", tmp_path / "no", "--layouts", "xx")
    assert code == 2 and "has no such row" in error


def test_a_definition_named_twice_is_refused(place: Path, tmp_path: Path) -> None:
    one, two = put(tmp_path / "a.json", GEMM), put(tmp_path / "b.json", GEMM)
    options = ("--definition", one, "--definition", two)
    code, _, error = generate("trace", "export", place, "-o", tmp_path / "out", *options)
    assert code == 2 and "gemm_n4096_k4096 is defined twice" in error
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == []


def test_errors_are_those_of_the_worst_element(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.tensor([[1.0, -8.0], [0.0, 0.5]], dtype=torch.float16)
    ours = torch.tensor([[1.0, -8.5], [0.0, 0.25]], dtype=torch.float16)
    assert errors.largest_errors(ours, theirs) == (0.5, 0.5)
    # A kernel of another name, or torch, says nothing of the row's.
    problem = Problem(8, 24, 40, "tn", "f16")

    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.matmul(a, b)
        c[3, 5] += 2.0
        return c

    def resolve(problem: Problem, device: Any) -> Any:
        return SimpleNamespace(kernel=SimpleNamespace(name="mine"))

    monkeypatch.setattr(errors.select, "resolve", resolve)
    monkeypatch.setattr(errors, "matmul", wrong)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    found = errors.measure_errors(problem, "mine", "cpu")  # type: ignore[arg-type]
    assert found is not None and found.device == "Some GPU"
    assert found.absolute == pytest.approx(2.0, abs=0.01)
    assert errors.measure_errors(problem, "another", "cpu") is None  # type: ignore[arg-type]


def test_errors_measured_here_replace_what_is_not_known(
    source: SourceManifest, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Problem, str]] = []

    def measure(problem: Problem, kernel: str) -> errors.Errors | None:
        asked.append((problem, kernel))
        return errors.Errors(0.125, 0.5, "NVIDIA H200") if problem.m == 16 else None

    path = put(tmp_path / "definition.json", GEMM)
    options = ("--definition", path, "--errors")
    code, _, said = generate("trace", "export", place, "-o", tmp_path / "no", *options)
    assert code == 2 and "no CUDA device" in said
    monkeypatch.setattr("hgemm_packs.generator.cli.agents.trace.gpus_here", lambda: 1)
    monkeypatch.setattr(errors, "measure_errors", measure)
    found, words = export(place, tmp_path / "out", *options)
    assert "errors of 1 were measured here" in words
    names = {kernel.id: kernel.name for kernel in source.kernels}
    rows = [row for row in wins(source, "nt", "f16") if (row.n, row.k) == (4096, 4096)]
    assert asked == [
        (Problem(row.m, 4096, 4096, "nt", "f16"), names[row.kernel or ""]) for row in rows
    ]
    for trace in found.traces:
        assert trace.evaluation is not None and trace.evaluation.correctness is not None
        seen = trace.evaluation.correctness
        pair = seen["max_absolute_error"], seen["max_relative_error"]
        measured = trace.workload.axes == {"M": 16}
        assert pair == (0.125, 0.5) if measured else all(map(math.isnan, pair))
        words = "against torch.matmul, N(0,1), on NVIDIA H200" if measured else "not measured"
        assert seen["extra"]["elementwise_errors"] == words
