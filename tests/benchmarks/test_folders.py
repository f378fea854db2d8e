"""The raw results: each folder has a meaning, is only added to, and lost nothing when repacked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks import folders
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.store import export, lines, shards
from hgemm_packs.generator.store.run_folder import Store
from tests.generator.found import both, found

#: Of each file that was repacked: what it was called, its lines, and their digest as it was then.
REPACKED = json.loads(Path(__file__).with_name("repacked.json").read_text(encoding="utf-8"))
#: Larger ones take seconds apiece: `python -m tests.benchmarks.test_folders` reads all.
SMALL = 120_000


def digest(path: Path) -> list[object]:
    """Lines and a digest of their values, types and order of keys."""
    records = lines.read_records([path])
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in records)
    return [len(records), hashlib.sha256(text.encode()).hexdigest()]


def losses(most: float = float("inf")) -> list[str]:
    """Repacked files that do not say what they said before."""
    return [
        name
        for name, (_, *before) in REPACKED.items()
        if (folders.RESULTS / name).stat().st_size <= most
        and digest(folders.RESULTS / name) != before
    ]


def test_no_sample_was_lost_when_results_were_repacked() -> None:
    assert len(REPACKED) == 83
    assert losses(SMALL) == []


def test_every_folder_of_lines_has_a_meaning_and_numbers() -> None:
    for name in folders.FOLDERS:
        names = [path.name for path in folders.list_files(name)]
        assert names == [f"{i + 1:02d}.jsonl{shards.SUFFIX}" for i in range(len(names))] != []
    exports = [each.name for each in (folders.RESULTS / folders.CONFIRMATIONS).iterdir()]
    assert sorted(exports) == [f"{i + 1:02d}" for i in range(len(exports))]
    for each in exports:
        assert (folders.RESULTS / folders.CONFIRMATIONS / each / export.FACTS).is_file()


def test_files_come_in_the_order_of_measurement() -> None:
    for name in ("dependent/choice", "sustained", "models"):
        first = (lines.read_records([path])[0]["header"] for path in folders.list_files(name))
        started = [header["started"] for header in first]
        assert started == sorted(started), name


def test_the_results_are_small() -> None:
    """A clone has all of them. They are only added to, as much a change as .ci/change_size lets."""
    files = [path for path in folders.RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if "scratch" not in path.parts) < 60_000_000


def test_the_page_says_what_decides() -> None:
    page = (folders.RESULTS.parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name, folder in folders.FOLDERS.items():
        assert f"| `{name}/` | `{folder.by}` | {folder.decides} |" in page, name


def test_a_table_is_told_all_that_decides(tmp_path: Path) -> None:
    for name in ("sustained", "dependent/choice", "dependent/contenders", "models"):
        (tmp_path / name).mkdir(parents=True)
    told = folders.table_options(tmp_path)
    assert told[0] == str(tmp_path / "confirmations")
    pairs = list(zip(told[1::2], told[2::2], strict=True))
    assert pairs == [
        ("--dependent", str(tmp_path / "dependent/choice")),
        ("--dependent", str(tmp_path / "dependent/contenders")),
        ("--sustained", str(tmp_path / "sustained")),
    ]
    assert folders.table_options(tmp_path, ["--dependent", "--sustained"]) == told[:1]


def test_lines_are_added_and_nothing_is_replaced(tmp_path: Path) -> None:
    written = tmp_path / "run.jsonl"
    written.write_text('{"a":[1.5,2.5,3.5]}\n{"torn')
    made = folders.add("sustained", [written, written], tmp_path)
    assert [path.name for path in made] == ["01.jsonl.zip", "02.jsonl.zip"]
    before = made[0].read_bytes()
    (third,) = folders.add("sustained", [written], tmp_path)
    assert third.name == "03.jsonl.zip" and made[0].read_bytes() == before
    assert lines.read_records([tmp_path / "sustained"]) == [{"a": [1.5, 2.5, 3.5]}] * 3
    with pytest.raises(KeyError, match="endurance is none of"):
        folders.add("endurance", [written], tmp_path)
    assert folders.next_export(tmp_path).name == "01"


def test_the_sanitizer_of_a_run_says_which_kernels_a_table_may_name(tmp_path: Path) -> None:
    """It had run in the search, and `make table` knew nothing of it: rows lost their kernels."""
    with Store(tmp_path) as store:
        for id_, found_in in (("a" * 64, 0), ("b" * 64, 2)):
            status = Status.SANITIZER if found_in else Status.OK
            evidence = {"memcheck": 0, "racecheck": found_in}
            store.add_verdict(id_, Verdict("sanitizer", status, "", evidence))
        store.add_verdict("c" * 64, Verdict("numeric", Status.OK))
    header, *said = folders.sanitizer_lines(tmp_path)
    assert header == {"header": {"benchmark": "generate", "kernels": 2}}
    assert len(said) == 4 and sanitizer.clean(said) == {"a" * 64}


def test_runs_are_put_beside_what_is_there(tmp_path: Path) -> None:
    run, results = tmp_path / "run", tmp_path / "results"
    export.write(found(*both({"a": (10.0, 12.0)})), run)
    (run / "refined").mkdir()
    (run / "refined" / "sustained.jsonl").write_text('{"us":[1.5]}\n')
    for number in ("01", "02"):
        made = folders.take([run], results)
        names = [path.relative_to(results).as_posix() for path in made]
        assert names == [f"confirmations/{number}", f"sustained/{number}.jsonl.zip"]
    assert export.load(results / "confirmations").fields == export.load(run).fields
    assert lines.read_records([results / "sustained"]) == [{"us": [1.5]}] * 2


if __name__ == "__main__":
    print(losses() or f"{len(REPACKED)} files say what they said")
