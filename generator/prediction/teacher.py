"""Labels for problems that nobody timed: torch's time by a model that knows what cuBLAS would run.

torch's time jumps where cuBLAS takes another algorithm, and sizes alone hardly say where that is.
The teacher sees the algorithm, too, as `benchmarks.measure.heuristics` recorded what cuBLASLt's
heuristic offers: a question that costs a hundredth of a measurement, but too long for a call. So
it labels many problems that were drawn, and a pack's model, which sees sizes, learns from these.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hgemm_packs.generator.compile.pack_kernels import parse
from hgemm_packs.generator.prediction import trees
from hgemm_packs.generator.prediction.rows import ALONE, Eye, Rows
from hgemm_packs.generator.prediction.trees import Array, Growth
from hgemm_packs.generator.store.lines import Record, read_records
from hgemm_packs.pack.features import OF_PROBLEM
from hgemm_packs.problem import Problem

TEACHER = Growth(trees=512, leaves=63, least=5, rate=0.055, features=0.25)
#: Words of cuBLASLt's algorithm that differ from one to another: its number, tile, stages, splits
#: of K, how the parts are added, swizzle and cluster. Half of the word behind them is not written
#: by algorithms older than Hopper's: it tells processes apart, not algorithms.
WORDS = (0, 1, 2, 3, 4, 6, 7)
SPLITS = 3
WORD_BYTES = 64


def numbers_of(line: Record) -> tuple[float, ...]:
    """What the teacher sees of an algorithm on a problem: WORDS, waves and workspace, log2 of the
    waves, of how full they are, of outputs a CTA, of K a CTA and of both. Raises ValueError for a
    line that is no answer of `benchmarks.measure.heuristics`."""
    try:
        words = struct.unpack("<16I", bytes.fromhex(line["algorithm"]))
        waves, workspace = float(line["waves"]), float(line["workspace"])
        p = parse(line["problem"])[0]
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"no algorithm of cuBLASLt: {error}") from error
    if not waves > 0.0:
        raise ValueError(f"no algorithm of cuBLASLt: {waves} waves")
    whole, parts = float(np.ceil(waves)), max(1, words[SPLITS])
    outputs = float(np.log2(p.m * p.n * parts / waves))
    depth = float(np.log2(p.k / parts))
    return (
        *(float(words[place]) for place in WORDS),
        *(waves, workspace, float(np.log2(waves)), float(np.log2(waves / whole))),
        *(outputs, depth, outputs + depth + float(np.log2(whole))),
    )


def read(paths: Iterable[Path]) -> dict[Problem, tuple[float, ...]]:
    """Numbers of the algorithm that the heuristic offers, by problem. Raises ValueError for a line
    that has another thing in place of it."""
    answered = (line for line in read_records(paths) if line.get("algorithm") is not None)
    return {parse(line["problem"])[0]: numbers_of(line) for line in answered}


def _shape(p: Problem) -> tuple[int, int, int, str]:
    return p.m, p.n, p.k, p.layout


@dataclass(frozen=True)
class Lessons:
    """`algorithms` by problem, of whatever was asked about; `values` are what is seen of the
    problems that nobody timed in any type, and `drawn` these problems."""

    algorithms: Mapping[Problem, tuple[float, ...]]
    drawn: tuple[Problem, ...]
    values: Array

    def labels(self, rows: Rows) -> Array:
        """The logarithm of torch's time over the floor of each problem of `drawn`, by a teacher
        that has seen these rows alone."""
        places, seen = rows.of_problems()
        timed = [*(rows.problems[place] for place in places.tolist()), *rows.alone.problems]
        known = [i for i, p in enumerate(timed) if p in self.algorithms]
        algorithms = np.array([self.algorithms[timed[i]] for i in known])
        teacher = trees.grow(
            np.column_stack([np.concatenate([seen, rows.alone.values])[known], algorithms]),
            np.concatenate([rows.torch[places], rows.alone.torch])[known],
            np.ones(len(known)),
            TEACHER,
            np.concatenate([rows.sorts()[places], np.full(len(rows.alone.torch), ALONE)])[known],
        )
        asked = np.array([self.algorithms[p] for p in self.drawn])
        return trees.ask(teacher, np.column_stack([self.values, asked]))


def lessons(
    eye: Eye, rows: Rows, algorithms: Mapping[Problem, tuple[float, ...]]
) -> Lessons | None:
    """What there is to learn, of problems of no shape that was timed: None where nobody asked
    about others, or about none that was timed."""
    timed = {*rows.problems, *rows.alone.problems}
    shapes = {_shape(p) for p in timed}
    drawn = tuple(p for p in algorithms if _shape(p) not in shapes)
    if not drawn or not timed & algorithms.keys():
        return None
    values = np.array([eye.see_alone(p) for p in drawn])
    return Lessons(algorithms, drawn, values.reshape(-1, len(OF_PROBLEM)))
