"""Definitions and workloads become problems; what is damaged or hostile is refused and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.cli.search import select_problems
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.flashinfer_trace import schema
from hgemm_packs.generator.flashinfer_trace.problems import (
    read_matrix_product,
    read_problems,
    write_list,
)
from hgemm_packs.problem import Problem
from tests.generator.command import generate
from tests.generator.flashinfer_trace.documents import GEMM, changed, put, put_folder, workload


def of(*rows: int, layout: str = "nt", dtype: str = "f16") -> list[Problem]:
    return [Problem(m, 4096, 4096, layout, dtype) for m in rows]


def test_a_definition_is_rows_of_ours_at_its_workloads(tmp_path: Path) -> None:
    path = put_folder(tmp_path, [7, 1, 128, 7])
    assert read_problems(path) == of(7, 1, 128)
    assert read_problems(path, rows=[16, 4096]) == of(16, 4096)
    # As an option of a search, with the filters of any list.
    assert select_problems([str(path)], (), (), (), (), 1) == of(1, 7, 128)
    assert select_problems([str(path)], (), (), (), ("skinny",), 1) == of(128)


def test_workloads_are_found_beside_a_definition(tmp_path: Path) -> None:
    alone = put(tmp_path / "one" / "definition.json", GEMM)
    with pytest.raises(PackError, match="M is variable, and no workload says its value") as found:
        read_problems(alone)
    assert found.value.code == "missing_workloads"
    put(alone.with_name("workload.jsonl"), workload(3), workload(9, "another"))
    assert read_problems(alone) == of(3)
    named = put(tmp_path / "two" / "gemm_n4096_k4096.json", GEMM)
    put(named.with_suffix(".jsonl"), workload(5))
    assert read_problems(named) == of(5)
    other = put(tmp_path / "other.jsonl", workload(9, "another"))
    with pytest.raises(PackError, match="has no workload of gemm_n4096_k4096"):
        read_problems(named, other)


def test_workloads_of_traces_count_too(tmp_path: Path) -> None:
    line = workload(6, solution="someone's best: 2", evaluation=None)
    line["evaluation"] = {
        "status": "INCORRECT_NUMERICAL",
        "environment": {"hardware": "NVIDIA A800-SXM4-80GB", "libs": {"torch": "2.9.1+cu130"}},
        "timestamp": "2026-03-17T14:20:41.428182",
        "log": "ninja: no work to do.\n",
        "correctness": {"max_relative_error": "NaN", "max_absolute_error": 0.125, "extra": None},
        "performance": None,
    }
    traces = put(tmp_path / "traces.jsonl", line, workload(8))
    assert read_problems(put(tmp_path / "x.json", GEMM), traces) == of(6, 8)


@pytest.mark.parametrize(
    ("a", "b", "code", "layout"),
    [
        (["M", "K"], ["K", "N"], "A @ B", "nn"),
        (["K", "M"], ["K", "N"], "A.T @ B", "tn"),
        (["K", "M"], ["N", "K"], "A.T @ B.T", "tt"),
        (["N", "K"], ["M", "K"], "B @ A.T", "nt"),  # the right factor comes first
    ],
)
def test_layouts_follow_from_the_reference(a: Any, b: Any, code: str, layout: str) -> None:
    document = changed(
        inputs={
            "A": {"shape": a, "dtype": "bfloat16"},
            "B": {"shape": b, "dtype": "bfloat16"},
        },
        outputs={"C": {"shape": ["M", "N"], "dtype": "bfloat16"}},
        reference=f"def run(A, B):\n    return {code}",
    )
    found = read_matrix_product(schema.DEFINITION(document))
    assert found.problem({"M": 48}) == Problem(48, 4096, 4096, layout, "bf16")


def test_axes_of_equal_size_are_not_mixed_up() -> None:
    # N and K are both 4096: A @ B and A @ B.T fit the shapes, and the reference decides.
    as_is = changed(reference="def run(A, B):\n    return A @ B")
    assert read_matrix_product(schema.DEFINITION(as_is)).layout == "nn"
    square = changed(axes={name: {"type": "const", "value": 64} for name in "MNK"})
    assert read_matrix_product(schema.DEFINITION(square)).problem({}) == Problem(
        64, 64, 64, "nt", "f16"
    )


TENSOR = {"shape": ["M", "K"], "dtype": "float16"}
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "attention": (changed(inputs={**GEMM["inputs"], "D": TENSOR}), "no_product", "3 inputs"),
    "outputs": (changed(outputs={}), "no_product", "2 inputs and 0 outputs"),
    "float32": (
        changed(outputs={"C": {"shape": ["M", "N"], "dtype": "float32"}}),
        "no_product",
        "types are float16, float32, not all float16 or all bfloat16",
    ),
    "fp8": (
        changed(inputs={n: {**t, "dtype": "float8_e4m3fn"} for n, t in GEMM["inputs"].items()}),
        "no_product",
        "types are float16, float8_e4m3fn",
    ),
    "scalar": (
        changed(inputs={"A": TENSOR, "B": {"shape": None, "dtype": "float16"}}),
        "no_product",
        "a tensor is no matrix",
    ),
    "batch": (
        changed(inputs={"A": TENSOR, "B": {"shape": ["N", "K", "K"], "dtype": "float16"}}),
        "no_product",
        "a tensor is no matrix",
    ),
    "output": (
        changed(outputs={"C": {"shape": ["N", "M"], "dtype": "float16"}}),
        "no_product",
        "[M, K] times [K, N] is not [N, M]",
    ),
    "inner": (
        changed(inputs={"A": TENSOR, "B": {"shape": ["N", "M"], "dtype": "float16"}}),
        "no_product",
        "[M, K] times [M, N] is not [M, N]",
    ),
    "constraint": (changed(constraints=["M % 8 == 0"]), "unknown_constraint", "no constraint"),
    "reference": (
        changed(reference="def run(A, B):\n    return A @ B.T * 2"),
        "unknown_reference",
        "line 2 has more than products, transposes and casts",
    ),
    "axis": (
        changed(inputs={"A": TENSOR, "B": {"shape": ["N", "J"], "dtype": "float16"}}),
        "unknown_axis",
        "'B' has an axis 'J' of no size",
    ),
    "missing": (changed(reference=None), "missing_field", "'reference' is missing"),
    "unknown": (changed(hooks=["x"]), "unknown_field", "'hooks' is an unknown field"),
    "expression": (
        changed(axes={**GEMM["axes"], "N": {"type": "expr", "expression": "2 * K"}}),
        "unknown_field",
        "'expression' is an unknown field",
    ),
    "negative": (
        changed(axes={**GEMM["axes"], "N": {"type": "const", "value": -1}}),
        "out_of_bounds",
        "-1 is not in 0..16777216",
    ),
    "huge": (
        changed(axes={**GEMM["axes"], "N": {"type": "const", "value": 10**40}}),
        "out_of_bounds",
        "10000000000000000000000000000000000000000 is not in 0..16777216",
    ),
    "bool": (
        changed(axes={**GEMM["axes"], "N": {"type": "const", "value": True}}),
        "wrong_type",
        "True is not an integer",
    ),
    "name": (changed(name="../../etc/passwd"), "bad_name", "'../../etc/passwd' does not match"),
    "both": (
        changed(outputs={"A": {"shape": ["M", "N"], "dtype": "float16"}}),
        "duplicate_name",
        "'A' is an input and an output",
    ),
    "unused": (
        changed(axes={**GEMM["axes"], "X": {"type": "var"}}),
        "no_product",
        "the variable axis X is of neither factor",
    ),
    "long name": (changed(name="x" * 151), "bad_name", "'xxxx"),
    "long": (changed(reference="#" * 9000), "bad_text", "'####"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_product_of_ours_is_refused_by_file_and_reason(
    name: str, tmp_path: Path
) -> None:
    document, code, words = BAD[name]
    path = put(tmp_path / "bad.json", document)
    with pytest.raises(PackError) as refusal:
        read_problems(path, rows=[8])
    assert refusal.value.code == code
    assert words in refusal.value.detail
    assert refusal.value.where.startswith(str(path))


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for data, code in (
        (b"", "not_json"),
        (b"\xff\xfe", "not_utf8"),
        (b"[]", "wrong_type"),
        (b'{"name": 1, "name": 2}', "duplicate_json_key"),
        (b'{"name": NaN}', "not_finite"),
        (b"[" * 5000, "too_deep"),
        (b" " * (schema.MAX_DOCUMENT_BYTES + 1), "too_large"),
        (json.dumps(GEMM).encode()[:-20], "not_json"),
    ):
        path.write_bytes(data)
        with pytest.raises(PackError) as refusal:
            read_problems(path, rows=[8])
        assert (refusal.value.code, refusal.value.where) == (code, str(path))


@pytest.mark.parametrize(
    ("line", "code", "where"),
    [
        ({**workload(4), "workload": {"axes": {}, "inputs": {}, "uuid": "x"}}, "unknown_axis", ""),
        (workload(0), "out_of_bounds", ""),
        (workload(1 << 23), "out_of_bounds", ""),
        (workload(1 << 25), "out_of_bounds", "w.jsonl:2 workload.axes.'M'"),
        (workload(4, solution="x"), "missing_field", "w.jsonl:2"),
        ({"definition": "gemm_n4096_k4096"}, "missing_field", "w.jsonl:2"),
        ("{", "wrong_type", "w.jsonl:2"),
        ({**workload(4), "more": 1}, "unknown_field", "w.jsonl:2"),
    ],
)
def test_a_bad_workload_is_refused(line: Any, code: str, where: str, tmp_path: Path) -> None:
    lines = put(tmp_path / "w.jsonl", workload(2), line)
    path = put(tmp_path / "x.json", GEMM)
    with pytest.raises(PackError) as refusal:
        read_problems(path, lines)
    assert refusal.value.code == code
    assert where in refusal.value.where
    assert str(tmp_path) in refusal.value.where


def test_files_of_lines_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_LINES", 2)
    path = put(tmp_path / "w.jsonl", workload(1), workload(2))
    assert len(list(schema.read_traces(path))) == 2
    put(path, workload(1), workload(2), workload(3))
    with pytest.raises(PackError, match=r"too_large at .*w.jsonl:3"):
        list(schema.read_traces(path))
    monkeypatch.setattr(schema, "MAX_LINE_BYTES", 100)
    with pytest.raises(PackError, match=r"too_large at .*w.jsonl:1"):
        list(schema.read_traces(path))


def test_the_verb_writes_a_list_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    put_folder(tmp_path / "set", [16, 1])
    put(tmp_path / "set" / "definitions" / "norm" / "rms.json", changed(reference="x = 1"))
    out = tmp_path / "list.toml"
    code, said, _ = generate("trace", "import", tmp_path / "set", "--out", out)
    assert code == 0
    assert "left out: unknown_reference at " in said
    assert "it has not one function run" in said
    assert f"2 problems: {out}" in said
    assert problem_lists.read_in_order(out) == of(16, 1)
    # Named itself, a bad definition is an error, and the list stays.
    bad = tmp_path / "set" / "definitions" / "norm" / "rms.json"
    code, _, error = generate("trace", "import", bad, "--rows", "4", "--out", out)
    assert code == 2
    assert "it has not one function run" in error
    assert problem_lists.read_in_order(out) == of(16, 1)
    code, _, error = generate("trace", "import", bad, "--rows", "four", "--out", out)
    assert (code, error) == (2, "hgemm-packs: --rows 'four': say 1,16,4096\n")
    code, _, error = generate("trace", "import", tmp_path / "none", "--out", out)
    assert (code, "No such file" in error) == (2, True)


def test_a_list_does_not_take_lines_of_a_path() -> None:
    text = write_list(of(3), 'x\n[[problem]]\nm = 1\nn = 1\nk = 1\n"')
    assert text.splitlines()[1:] == [
        "[[problem]]",
        "m = 3",
        "n = 4096",
        "k = 4096",
        'layout = "nt"',
        'dtype = "f16"',
    ]
