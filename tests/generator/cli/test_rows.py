"""`generate measure rows`: what a pack's table lacks, measured by the pack's kernels alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import folders
from hgemm_packs.generator.campaigns import refine
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.run.packed import PackBuilder
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.cli.made_run import Made
from tests.generator.command import PROBLEMS, Answer, generate, listed, machine, simulated

NEW = [Problem(264, 1024, 512, "nt", "f16"), Problem(136, 512, 512, "nt", "f16")]


def rows(made: Made, folder: Path, *options: object) -> Answer:
    """The verb on a simulated GPU; a compiler would be an error."""
    shapes = listed(folder / "shapes.toml", [NEW[0], PROBLEMS[0], NEW[1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "run_sanitizer", None)
        options = ("--shapes", shapes, "--budget", "20s", "--run", folder / "rows", *options)
        return simulated("measure", "rows", made.run / "pack", *options)


def jobs(folder: Path) -> Counter[str]:
    with Store(folder / "rows", readonly=True) as store:
        return Counter(done.kind for done in store.finished_jobs())


def test_a_table_has_rows_more_by_its_own_kernels(made: Made, tmp_path: Path) -> None:
    answer = rows(made, tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("2 of 2 problems without a row\n"), "one of three has a row"
    words = "2 of 2 problems timed against torch, 2 of 2 likely wins confirmed, 5 GPU-s"
    assert answer.out.splitlines()[-1] == f"{words}: {tmp_path / 'rows'}"
    seen = jobs(tmp_path)
    assert seen["screen"] == seen["finals"] == seen["confirm"] == 2
    assert not seen.keys() & {"gate", "race", "behind"}, "every kernel was proven before"
    # The run goes the way of every other into the evidence, and the table names kernels for it.
    results = tmp_path / "results"
    assert folders.take([tmp_path / "rows"], results) == [results / "confirmations" / "01"]
    parts = [export.load(made.run), export.load(results / "confirmations" / "01")]
    document, gone = refine.document(export.union(parts), 1.0, set)
    assert not gone
    table = {Problem(*row.key): row for row in document.table}
    assert table.keys() == {*PROBLEMS, *NEW}
    device, packed = machine(), Packed(made.run / "pack")
    for problem in NEW:
        taking = [e for e in packed.entries.values() if e.admits(problem) is None]
        right = {
            device.true_us(Choice.of(e.family, e.genome), problem): e.id
            for e in taking
            if not device.fault(Choice.of(e.family, e.genome))
        }
        assert table[problem].kernel == right[min(right)]
        assert table[problem].hot.us == pytest.approx(min(right), rel=0.02)


def test_a_killed_run_goes_on_and_measures_nothing_twice(made: Made, tmp_path: Path) -> None:
    first = rows(made, tmp_path, "--most", 1)
    assert first.out.startswith("1 of 2 problems without a row\n")
    with Store(tmp_path / "rows", readonly=True) as store:
        assert store.problems() == [NEW[0]], "the first of the file, not the cheapest"
    again = rows(made, tmp_path)
    assert again.code == 0
    seen = jobs(tmp_path)
    assert seen["screen"] == seen["finals"] == seen["confirm"] == 2


def test_only_kernels_of_the_pack_are_handed_out(made: Made) -> None:
    packed = Packed(made.run / "pack")
    builder = PackBuilder(packed)
    name = next(iter(packed.entries))
    known, other = builder.choice(name), Choice.of("sm90_wgmma", {"tile_m": 7})
    built = builder.build([known, other])
    assert built[known].id == packed.entries[name].id  # type: ignore[union-attr]
    assert built[known].fields.keys().isdisjoint({"offset", "size", "numerics"})  # type: ignore[union-attr]
    assert built[other].status is Status.BUILD  # type: ignore[union-attr]


def test_nothing_to_measure_is_said(made: Made, tmp_path: Path) -> None:
    shapes = listed(tmp_path / "shapes.toml", PROBLEMS)
    pack = made.run / "pack"
    where = tmp_path / "rows"
    words = "has a row, or no kernel, of each of these problems"
    code, _, err = generate("measure", "rows", pack, "--shapes", shapes, "--run", where)
    assert (code, err) == (2, f"hgemm-packs: {pack} {words}\n")
    assert not where.exists()
