"""A teacher that knows what cuBLAS would run labels problems that nobody timed (simulated.py)."""

from __future__ import annotations

import json
import math
import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgemm_packs.generator.compile.pack_kernels import problem_values
from hgemm_packs.generator.prediction import fit, teacher
from hgemm_packs.generator.prediction.rows import make_rows
from hgemm_packs.generator.prediction.teacher import lessons, numbers_of, read
from hgemm_packs.generator.prediction.trees import Growth
from hgemm_packs.generator.store.lines import Record
from hgemm_packs.problem import Problem
from tests.generator.prediction import simulated


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are grown in a second."""
    monkeypatch.setattr(fit, "OURS", Growth(trees=40, leaves=16))
    monkeypatch.setattr(fit, "TORCH", Growth(trees=80, leaves=16))
    monkeypatch.setattr(fit, "DOUBT", Growth(trees=15, leaves=6, least=10))
    monkeypatch.setattr(teacher, "TEACHER", Growth(trees=80, leaves=16))


def line(
    p: Problem, tile: int = 7, splits: int = 1, waves: float = 1.0, unwritten: int = 1
) -> Record:
    words = [66, tile, 35, splits, 2, 0, 3, 1 << 18, unwritten, *range(7)]
    return {
        "problem": problem_values(p),
        "algorithm": struct.pack("<16I", *words).hex(),
        "waves": waves,
        "workspace": 64,
    }


def moody(p: Problem) -> int:
    """A tile that no size tells."""
    return random.Random(f"{p.m} {p.n} {p.k}").choice((1, 2))


def moody_us(p: Problem) -> float:
    return (1.0, 1.6)[moody(p) - 1] * simulated.tiled_us(p, 64, 64)


def test_numbers_are_words_waves_and_what_a_cta_does() -> None:
    found = numbers_of(line(Problem(256, 128, 512, "nn", "f16"), splits=4, waves=2.5))
    words = (66.0, 7.0, 35.0, 4.0, 2.0, 3.0, float(1 << 18))
    outputs, depth = math.log2(256 * 128 * 4 / 2.5), math.log2(512 / 4)
    assert found[:9] == (*words, 2.5, 64.0)
    assert found[9:] == pytest.approx(
        (math.log2(2.5), math.log2(2.5 / 3), outputs, depth, outputs + depth + math.log2(3.0)),
        abs=1e-12,
    )


def test_what_a_process_left_in_an_algorithm_is_not_seen() -> None:
    """Half of a word was not written by cuBLASLt, and trees told files of answers apart by it: with
    a second file of timed problems unaligned rows were labelled 20% too fast."""
    p = Problem(11, 13, 817, "nt", "f16")
    one, other = (numbers_of(line(p, unwritten=word)) for word in (0x45380001, 0x79660001))
    assert one == other


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"algorithm": "00"}, "no algorithm of cuBLASLt: unpack requires a buffer of 64 bytes"),
        ({"waves": 0.0}, "no algorithm of cuBLASLt: 0.0 waves"),
        ({"waves": None}, "no algorithm of cuBLASLt: "),
        ({"algorithm": "a word"}, "non-hexadecimal number found"),
    ],
)
def test_another_thing_in_place_of_an_algorithm_is_an_error(
    tmp_path: Path, change: Record, detail: str
) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(json.dumps({**line(Problem(8, 16, 24, "nt", "f16")), **change}) + "\n")
    with pytest.raises(ValueError, match=detail):
        read([path])


def test_lines_without_an_algorithm_are_left_out(tmp_path: Path) -> None:
    first, second = (Problem(m, 16, 24, "nt", "f16") for m in (8, 16))
    lines = [{"header": {}}, line(first), {**line(second), "algorithm": None}]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert read([path]) == {first: numbers_of(line(first))}


def test_what_was_timed_in_any_type_is_not_labelled() -> None:
    timed = simulated.problems(1, 30)
    eye, rows, _ = simulated.make(timed, moody_us)
    twin = replace(timed[0], dtype="bf16", out_dtype="bf16")
    other = Problem(8, 8, 8, "nn", "f16")
    asked = {p: numbers_of(line(p)) for p in (*timed, twin, other)}
    found = lessons(eye, rows, asked)
    assert found is not None and found.drawn == (other,)
    assert found.values.tolist() == [eye.see_alone(other).tolist()]
    assert lessons(eye, rows, {p: asked[p] for p in (*timed, twin)}) is None
    assert lessons(eye, rows, {other: asked[other]}) is None, "no teacher without a timed problem"


def test_the_teacher_knows_what_sizes_do_not_tell() -> None:
    timed, drawn = simulated.problems(2, 400), simulated.problems(3, 300)
    eye, rows, _ = simulated.make(timed, moody_us)
    found = lessons(eye, rows, {p: numbers_of(line(p, moody(p))) for p in (*timed, *drawn)})
    assert found is not None
    labels = found.labels(rows)
    actual = np.array([math.log(moody_us(p) / eye.floor_us(p)) for p in found.drawn])
    assert np.abs(labels - actual).mean() < 0.06, "a model of sizes is wrong by 0.23"
    # Times of one half, labels of the other: rows that are left out teach nothing.
    folds = fit.fold_of(rows.problems)
    half = found.labels(rows.part(folds < 2))
    assert np.abs(half - labels).max() > 0.0 and np.abs(half - actual).mean() < 0.09


def test_labels_teach_the_model_of_torch() -> None:
    def tile_of(p: Problem) -> int:
        """Steps that few problems do not show."""
        return p.m // 96 % 2

    def us(p: Problem) -> float:
        return (1.0, 1.7)[tile_of(p)] * simulated.tiled_us(p, 64, 64)

    timed, drawn = simulated.problems(4, 150), simulated.problems(5, 3000)
    eye, rows, _ = simulated.make(timed, us)
    found = lessons(eye, rows, {p: numbers_of(line(p, tile_of(p))) for p in (*timed, *drawn)})
    wrong = []
    for learned in (None, found):
        judged = fit.judge(rows, learned)
        assert set(judged.problems) == set(timed)
        wrong.append(float(np.abs(judged.predicted - judged.measured).mean()))
    assert wrong[1] < 0.85 * wrong[0]


def test_a_shape_that_is_judged_teaches_no_teacher() -> None:
    """Each algorithm here is of one shape alone: a teacher that had seen its time would know it."""
    dice = random.Random(6)
    timed = simulated.problems(6, 200)
    noise = {p: dice.choice((0.6, 1.5)) for p in timed}
    tiles = {p: tile for tile, p in enumerate(timed)}
    eye, _, known = simulated.make(timed, lambda p: noise[p] * simulated.tiled_us(p, 64, 64))
    rows = make_rows(eye, list(simulated.candidates()), known, {}, {})
    near = [replace(p, m=p.m + 8) for p in timed]  # labelled with the algorithm of the timed one
    near = [p for p in dict.fromkeys(near) if p not in tiles]
    asked = {p: numbers_of(line(p, tiles[p])) for p in timed}
    asked |= {p: numbers_of(line(p, tiles[replace(p, m=p.m - 8)])) for p in near}
    judged = fit.judge(rows, lessons(eye, rows, asked))
    assert float(np.abs(judged.predicted - judged.measured).mean()) > 0.3
