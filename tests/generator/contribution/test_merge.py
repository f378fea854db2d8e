"""`generate merge` of contributed tables: a sample is measured again, and decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.cli.merge import CONFIRMED, _unlike
from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.store import contribution, export
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import sample, table
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.local import conditions
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.judge import Judge
from tests.cpu.tuning.world import FIRST, SECOND, THIRD
from tests.generator.command import Answer, simulated
from tests.generator.contribution.contributed import SPEEDUPS, Here


def merge(into: Path, file: Path, here: Here, *options: object) -> Answer:
    return simulated("merge", into, file, "--seed", 1, *options, device=here)


def exports(into: Path) -> list[Path]:
    return sorted(each.parent for each in into.glob(f"*/{export.FACTS}"))


def test_a_table_that_agrees_is_taken_and_gives_rows(file: Path, tmp_path: Path) -> None:
    into, here = tmp_path / "into", Here()
    answer = merge(into, file, here)
    assert (answer.code, answer.err) == (0, "")
    assert sorted(here.asked, key=str) == sorted(SPEEDUPS, key=str)
    (folder,) = exports(into)
    assert folder.name.startswith("nvidia-h200-")
    assert f"{file}: taken: 0 of 3 rows of the sample disagree (seed 1); 3 problems" in answer.out
    assert f"next: hgemm-packs generate table {folder} -o TABLE" in answer.out
    rows = {Problem(*row.key): row for row in table.source(export.load(into)).table}
    assert {p: row.kernel is not None for p, row in rows.items()} == {
        FIRST: True,
        SECOND: True,
        THIRD: False,
    }


def test_taken_once_is_taken(file: Path, tmp_path: Path) -> None:
    merge(tmp_path / "into", file, Here())
    here = Here()
    answer = merge(tmp_path / "into", file, here)
    assert answer.code == 0 and "was taken already" in answer.out and here.asked == []


@pytest.mark.parametrize(
    ("speedups", "words"),
    [
        ({FIRST: 1.1}, "1.300x torch hot was said, 1.100x is measured"),
        ({SECOND: 0.99}, "1.100x torch hot was said, 0.990x is measured"),
        ({THIRD: 1.2}, "0.900x torch hot was said, 1.200x is measured"),
    ],
)
def test_a_table_that_does_not_agree_is_refused(
    file: Path, tmp_path: Path, speedups: dict[Problem, float], words: str
) -> None:
    into, honest = tmp_path / "into", Here().speedups
    answer = merge(into, file, Here(speedups={**honest, **speedups}))
    assert answer.code == 1
    assert words in answer.out and f"{file}: refused: 1 of 3 rows" in answer.out
    assert exports(into) == []
    (folder,) = into.iterdir()
    assert len([line for line in read_records([folder / CONFIRMED]) if "samples" in line]) == 3


def test_a_kernel_that_is_wrong_here_refuses_the_whole(file: Path, tmp_path: Path) -> None:
    answer = merge(tmp_path / "into", file, Here(status=Status.NUMERIC))
    assert answer.code == 1 and "it said" in answer.out and exports(tmp_path / "into") == []


def test_another_gpu_model_says_nothing_of_a_table(file: Path, tmp_path: Path) -> None:
    answer = merge(tmp_path / "into", file, Here(name="Another"))
    assert answer.code == 2
    assert "is of NVIDIA H200, and the GPU here is Another" in answer.err


def test_hardware_and_not_a_name_says_whether_a_table_is_of_the_gpu_here(file: Path) -> None:
    known = {"theoretical_mem_bw_gbps": 4800.0, "power_limit_w": 700.0}
    run = contribution.read(file).run._replace(**known)
    here = DeviceFacts("Sold As Another", run.arch, run.sm_count, run.l2_bytes, **known)
    assert _unlike(run, here) == ()
    lowered = replace(here, name=run.profile, power_limit_w=500.0)
    assert _unlike(run, lowered) == ("a power limit of 500 W, not 700",)
    assert _unlike(run, replace(here, arch="sm_100a")) == ("sm_100a, not sm_90a",)


def test_a_sample_may_be_smaller_and_goes_on_where_it_was_stopped(
    file: Path, tmp_path: Path
) -> None:
    here = Here()
    assert merge(tmp_path / "one", file, here, "--sample", 1).code == 0
    assert len(here.asked) == 1
    again = Here(speedups=dict.fromkeys(SPEEDUPS, 1.0))
    merge(tmp_path / "two", file, again, "--sample", 2)
    honest = Here()
    assert merge(tmp_path / "two", file, honest, "--sample", 3).code == 1
    assert len(again.asked) == 2 and len(honest.asked) == 1  # the others are on file


def test_what_was_measured_here_under_the_same_versions_counts_as_evidence(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several confirmations the lowest counts: 1.28 here, 1.3 there."""
    now = conditions.here()
    known = {name: getattr(now, name) for name in ("torch", "cublas", "driver")}
    known = {name: version for name, version in known.items() if version != conditions.UNKNOWN}
    speedups = {**Here().speedups, FIRST: 1.28}
    assert merge(tmp_path / "same", file, Here(speedups, versions=known)).code == 0
    assert merge(tmp_path / "other", file, Here(speedups, versions={"torch": "0"})).code == 0
    gains = {}
    for name in ("same", "other"):
        rows = table.source(export.load(tmp_path / name)).table
        gains[name] = next(row.hot.speedup for row in rows if Problem(*row.key) == FIRST)
    assert gains == {"same": 1.28, "other": 1.3}


def test_a_foreign_pack_is_named(file: Path, tmp_path: Path, pack: Pack) -> None:
    from tests.cpu.tuning import world

    other = world.write(tmp_path / "other", ["slow"])
    answer = merge(tmp_path / "into", file, Here(), "--pack", other.path)
    assert answer.code == 2 and "are of no pack here: give test-pack 1.0.0" in answer.err
    assert merge(tmp_path / "into", file, Here(), "--pack", pack.path).code == 0


def test_runs_and_contributions_are_not_mixed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    answer = simulated("merge", tmp_path / "into", file, tmp_path / "run")
    assert answer.code == 2 and "and not both" in answer.err


def test_a_sample_is_a_twentieth_and_at_least_twenty(file: Path) -> None:
    from hgemm_packs.generator.store import contribution

    found = contribution.read(file)
    one = next(iter(Judge(found.run, 0.0, found.jobs).judged().standing.values()))
    many = {Problem(m, 8, 8, "nn", "f16"): one for m in range(1, 1001)}
    assert len(sample.draw(many, 1)) == 50
    assert len(sample.draw(dict(list(many.items())[:100]), 1)) == 20
    assert sample.draw(many, 1) == sample.draw(many, 1) != sample.draw(many, 2)
    assert len(sample.draw(many, 1, 7)) == 7


def test_one_row_in_ten_may_disagree_and_none_may_be_wrong() -> None:
    def verdict(off: int, wrong: int = 0, rows: int = 20) -> bool:
        against = {Problem(m, 8, 8, "nn", "f16"): "off" * (m <= off) for m in range(1, rows + 1)}
        return sample.judge_sample(against, wrong, rows).accepted

    assert verdict(0) and verdict(2) and not verdict(3)
    assert not verdict(1, wrong=1)
    assert not verdict(0, rows=0)
