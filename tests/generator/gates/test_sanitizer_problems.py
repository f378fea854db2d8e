"""The program under compute-sanitizer: the problems of a kernel, and what the program is told."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest

from hgemm_packs.generator.compile.candidate import candidate, entry
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.pack.manifest import TensorMapSpec
from tests.generator.redteam.cheats import made_up

RECORD = {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}


def test_every_problem_is_ragged_and_admitted() -> None:
    made = entry(candidate("k", "", RECORD).fields)
    assert list(sanitizer.problems(made)) == [(13, 8, 72), (21, 16, 104), (15, 8, 4168)]
    waits = made._replace(cooperative=True, grid=made.grid._replace(slices=4))
    assert list(sanitizer.problems(waits, 9)) == [(13, 8, 72), (5, 16, 200), (15, 8, 4168)]
    small = candidate("s", "", {**RECORD, "dims": {"m": {"max": 15}, "k": {"max": 64}}})
    found = [(13, 8, 64), (15, 16, 64), (15, 8, 64)]
    assert list(sanitizer.problems(entry(small.fields))) == found
    least = candidate("l", "", {**RECORD, "dims": {d: {"min": 64, "max": 64} for d in "mnk"}})
    assert list(sanitizer.problems(entry(least.fields))) == [(64, 64, 64)]


def test_the_ways_of_comparisons_are_met_too() -> None:
    """A barrier that was left out from 100 rows on was never seen: the tools had 21."""
    made = entry(candidate("k", "", RECORD).fields)
    found = list(sanitizer.problems(made, more=[(101, 8, 20), (13, 8, 72)]))
    assert found == [(13, 8, 72), (21, 16, 104), (15, 8, 4168), (101, 8, 24)]


def test_rings_wrap_twice_and_persistent_kernels_have_more_tiles_than_ctas() -> None:
    """A race that showed with 256 of K and more passed: the tools saw 72 and 104."""
    made = made_up()  # tiles of 16 x 16, a ring of 80
    *_, high = sanitizer.problems(made, 9)
    assert high == (301, 16, 72), "a grid without maps has as many columns as there are tiles"
    made = made._replace(tma=(TensorMapSpec("A", (64, 16), 128, 0, 128),))
    *few, many = sanitizer.problems(made, 9)
    assert few == [(13, 8, 72), (21, 24, 152), (15, 16, 312)]
    assert many == (77, 72, 72)
    assert -(-many[0] // 16) * -(-many[1] // 16) == 25 > 2 * 9
    assert list(sanitizer.problems(made)) == few, "nobody knows how many CTAs run"
    assert list(sanitizer.problems(made._replace(cooperative=True), 1)) == [
        (13, 8, 72),
        (5, 8, 152),
        (15, 16, 312),
    ]


def test_the_program_under_test_reads_what_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def run_kernels(items: list[sanitizer.Item]) -> int:
        seen.extend(f"{entry.name} {cubin.decode()}" for entry, cubin in items)
        return 2 * len(items)

    monkeypatch.setattr(sanitizer, "run_kernels", run_kernels)
    made = {name: entry(candidate(name, "", RECORD).fields) for name in "ab"}
    items = [(made["a"], b"memcheck 0"), (made["b"], b"racecheck 1")]
    told = tmp_path / "kernels"
    told.write_bytes(pickle.dumps(items))
    monkeypatch.setattr("sys.stdin", io.StringIO(str(told)))
    monkeypatch.setattr("sys.argv", ["sanitizer", sanitizer.STANDARD_INPUT])
    assert sanitizer.main() == 0
    assert seen == ["a memcheck 0", "b racecheck 1"]
    assert capsys.readouterr().out == "launches 4\n"
