"""A candidate is a file and its record; what the gates of the CPU make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs.generator.compile.candidate import (
    CandidateError,
    entry,
    load,
    of_choice,
)
from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.families.base import LARGEST
from hgemm_packs.generator.run import evaluate
from hgemm_packs.problem import Problem
from tests.generator.kernels import DIRECT
from tests.generator.run.candidate_files import PROBLEM, SOURCE

RECORD = "block = 32\ngrid = { tile_m = 16, tile_n = 8 }\n"


def write(folder: Path, source: str = SOURCE, record: str = RECORD) -> Path:
    path = folder / "mine.cu"
    path.write_text(source)
    path.with_suffix(".toml").write_text(record)
    return path


def test_a_file_and_its_record_are_a_candidate(tmp_path: Path) -> None:
    record = RECORD + 'dtype = "bf16"\ndims.k = { min = 16, multiple_of = 16 }\nsmem_bytes = 1024\n'
    record += "reads_ahead = true\n"
    made = load(write(tmp_path, record=record))
    assert (made.name, made.fields["symbol"], made.fields["family"]) == ("mine", "mine", "foreign")
    assert "mma.sync" in made.source and "#include" not in made.source
    kernel = entry(made.fields)
    assert kernel.reads_ahead
    assert (kernel.dtype, kernel.out_dtype, kernel.layout, kernel.acc) == (
        "bf16",
        "bf16",
        "nn",
        "f32",
    )
    assert (kernel.block, kernel.smem_bytes, kernel.cluster) == (32, 1024, (1, 1, 1))
    assert (kernel.grid.tile_m, kernel.grid.tile_n, kernel.grid.persistent) == (16, 8, False)
    assert str(kernel.k) == f"16..{LARGEST} in steps of 16"
    assert str(kernel.m) == f"1..{LARGEST}"
    assert kernel.align == (16, 16, 16)
    assert kernel.param_sizes == (8, 8, 8, 4, 4, 4, 4, 4, 4)


def test_a_record_may_promise_less_than_16_bytes(tmp_path: Path) -> None:
    """A record could not say it, so no file was ever a kernel of rows of odd lengths: each was
    refused as one that needs A at multiples of 16 bytes."""
    odd = Problem(64, 64, 63, "nt", "f16")
    record = 'layout = "nt"\ndims.k = { min = 1, multiple_of = 1 }\n' + RECORD
    unfit = entry(load(write(tmp_path, record=record)).fields).admits(odd)
    assert unfit is not None and "A at multiples of 16 bytes" in unfit.text
    made = load(write(tmp_path, record=record + "align = { a = 2, b = 2 }\n"))
    kernel = entry(made.fields)
    assert kernel.align == (2, 2, 16)
    assert kernel.admits(odd) is None


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("block = 32", "must say 'grid'"),
        ("grid = { tile_m = 16, tile_n = 8 }", "must say 'block'"),
        ("block = 33\ngrid = { tile_m = 16, tile_n = 8 }", "block"),
        ("block = 32\ngrid = 5", "grid"),
        ("block = 32\ngrid = { tile_m = 16, tile_o = 8 }", "tile_o"),
        (RECORD + "workspace_bytes = 4096", "ptr_v1 has no workspace"),
        (RECORD + "genome = { stages = 2 }", "'genome' is no field"),
        (RECORD + 'param_layout = "ptr_v2"', "param_layout"),
        (RECORD + 'param_layout = "tma2_v1"', "tma"),
        (RECORD + 'acc = "f16"', "acc"),
        (RECORD + "smem_bytes = 1000000", "smem_bytes"),
        (RECORD + "deterministic = false", "'deterministic' is no field"),
        (RECORD + "dims.m = { min = 64, max = 32 }", "bad_range"),
        ("block = ", "mine.toml: "),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, record: str, words: str) -> None:
    with pytest.raises(CandidateError, match=words):
        load(write(tmp_path, record=record))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CandidateError, match=r"^mine\.cu: "):
        load(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        load(path)


def test_the_gates_of_the_cpu_come_in_order_and_end_with_a_rejection(tmp_path: Path) -> None:
    def gates(source: str) -> list[tuple[str, Status]]:
        made = load(write(tmp_path, source))
        return [(v.gate, v.status) for v in evaluate.evaluate(made, PROBLEM)]

    assert gates(SOURCE) == [
        ("static", Status.OK),
        ("build", Status.OK),
        ("binary", Status.OK),
        ("dataflow", Status.OK),
        ("coverage", Status.COVERAGE),  # it writes 32 columns and declares 8
    ]
    assert gates(SOURCE.replace("float acc", "clock(); float acc")) == [("static", Status.STATIC)]
    assert gates(SOURCE.replace("float acc", "flaot acc"))[-1] == ("build", Status.BUILD)
    slow = "float sum = 0; for (int p = 0; p < k; ++p) sum += a[p]; c[0] = (u16)sum;"
    assert gates(SOURCE.split("{")[0] + "{" + slow + "}")[-1] == ("binary", Status.BINARY)


def test_a_problem_that_the_record_does_not_admit_ends_it_at_once(tmp_path: Path) -> None:
    made = load(write(tmp_path))
    (verdict,) = evaluate.evaluate(made, Problem(64, 60, 64, "nn", "f16"))
    assert (verdict.gate, verdict.status) == ("record", Status.PARSE)
    assert "takes N of 8" in verdict.detail
    (verdict,) = evaluate.evaluate(made, Problem(64, 64, 64, "nt", "f16"))
    assert "layout" in verdict.detail


def test_a_genome_is_a_candidate_too() -> None:
    choice = Choice.of("sm90_direct", DIRECT)
    problem = Problem(64, 64, 64, "nt", "f16")
    verdicts = evaluate.evaluate(choice, problem)
    assert [(v.gate, v.passed) for v in verdicts] == [
        ("static", True),
        ("build", True),
        ("binary", True),
        ("dataflow", True),
        ("coverage", True),
    ]
    assert of_choice(choice).name == choice.name
    (verdict,) = evaluate.evaluate(Choice.of("sm90_direct", {**DIRECT, "mi": 3}), problem)
    assert (verdict.status, "mi=3" in verdict.detail) == (Status.PARSE, True)
    (verdict,) = evaluate.evaluate(Choice.of("sm70_none", DIRECT), problem)
    assert verdict.status is Status.PARSE
