"""Problems are picked by the rule, and times by hand are judged as a table judges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents import byhand_problems as problems
from benchmarks.agents import byhand_session as session
from benchmarks.publish.h200_page import floor_us
from benchmarks.publish.summary import MANIFEST
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.pack.manifest import Row, Timing
from hgemm_packs.problem import ALIGNED, Problem, alignments_of
from tests import packs


def row(m: int, n: int, k: int, us: float, kernel: str | None = "k") -> Row:
    time = Timing(us, 2 * us, 2 * us, 2.0, 2.0)
    kind = "nt", "f16", "f16", "f32", "none"
    return Row(m, n, k, *kind, kernel, "card", time, time, 21, "2026-11-26")


def test_what_was_picked_is_of_the_kinds_that_the_rule_names_and_each_has_a_source() -> None:
    """The table of today has other rows: what won by hand is among them."""
    picked = problems.read_picked()
    assert json.loads(problems.PICKED.read_text(encoding="utf-8"))["rule"] == problems.RULE
    aligned = [min(alignments_of(one.problem, ALIGNED)) == 16 for one in picked]
    kinds = [(kind, each) for kind in problems.KINDS for each in (True, False)]
    assert [*zip((one.kind for one in picked), aligned, strict=True)] == kinds
    for one in picked:
        p = one.problem
        assert one.floor_us == round(floor_us(p.m, p.n, p.k), 3)
        assert problems.kind_of(row(p.m, p.n, p.k, one.matmul_us)) == one.kind
    known = [path for one in picked for path in problems.sources(one)]
    assert sorted(known) == sorted(problems.KERNELS.glob("*.cu"))
    assert all(problems.sources(one) for one in picked if one.matmul_us / one.floor_us > 3)


def test_the_row_that_takes_most_over_the_floor_is_picked() -> None:
    def of(m: int, n: int, k: int, over: float) -> Row:
        return row(m, n, k, over * floor_us(m, n, k), packs.good_kernels()[0].entry_fields["id"])

    sizes = {  # of each kind, aligned and not
        "tiny": ((64, 64, 128), (65, 63, 128)),
        "decode": ((8, 8192, 8192), (8, 8191, 8191)),
        "deep-K": ((256, 256, 32768), (257, 255, 32767)),
        "skinny": ((128, 8192, 4096), (128, 8191, 4095)),
        "mid": ((1024, 1024, 1024), (1023, 1023, 1023)),
        "small-K": ((4096, 4096, 64), (4095, 4095, 63)),
    }
    rows, expected = [], []
    for kind, both in sizes.items():
        for m, n, k in both:
            rows += [of(m, n, k, 3.0), of(2 * m, n, k, 2.0)]
            assert problems.kind_of(rows[-2]) == kind
            expected.append((kind, (m, n, k)))
    known = packs.source(packs.good_kernels(), rows)
    picked = problems.pick(known)
    assert [(one.kind, (one.problem.m, one.problem.n, one.problem.k)) for one in picked] == expected
    assert {one.kernel for one in picked} == {"k_direct"}


def test_decode_are_few_rows_that_are_not_tiny() -> None:
    assert problems.kind_of(row(16, 4096, 4096, 1.0)) == "decode"
    assert problems.kind_of(row(17, 16384, 4096, 1.0)) == "skinny"
    assert problems.kind_of(row(16, 64, 64, 1.0)) == "tiny"


def samples(hot: float, cold: float) -> dict[str, list[float]]:
    return {"hot": [hot] * 21, "cold": [cold] * 21}


def test_a_win_is_ahead_of_torch_and_of_the_table_hot_and_cold() -> None:
    rivals = {"torch": samples(4.0, 5.0), "table": samples(2.2, 3.3)}
    ahead = session.compare("OK", "", samples(2.0, 3.0), rivals)
    assert ahead["gain"] == pytest.approx(1.1)
    assert ahead["us"]["cold"] == {"ours": 3.0, "torch": 5.0, "table": 3.3}
    assert ahead["ratios"]["hot"]["table"] == pytest.approx([1.1, 1.1])
    assert session.wins(ahead, 0.05) and not session.wins(ahead, 0.11)
    assert not session.wins(session.compare("OK", "", samples(2.0, 3.4), rivals), 0.01)
    assert not session.wins(session.compare("OK", "", {"hot": [1.0] * 21}, rivals), 0.01)


def test_what_was_not_timed_has_its_reason_alone() -> None:
    assert session.compare("NUMERIC", "7 wrong", {}, {}) == {
        "status": "NUMERIC",
        "words": "7 wrong",
    }


class Played(session.Session):
    """A session whose GPU says: the first source is wrong, the others take 1 us."""

    looked: list[str]

    def _admit(self, path: Path) -> Any:
        self.looked.append(path.name)
        if len(self.looked) == 1:
            return session.said(Verdict("numeric", Status.NUMERIC, "wrong")), None
        return session.said(Verdict("numeric", Status.OK)), path.name

    def _contest(self, one: problems.Picked, kernels: Any) -> Any:
        rivals = {"torch": samples(2.0, 2.0)}
        return {name: session.compare("OK", "", samples(1.0, 1.0), rivals) for name in kernels}

    def _judge(self, one: problems.Picked, path: Path) -> None:
        self._write(one, path, "gates", status="OK", words="", won=True)


def play(out: Path, seconds: float, picked: list[problems.Picked]) -> Played:
    played = Played(out, seconds, read_source(MANIFEST))
    played.looked = []
    played.run(picked)
    return played


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_a_run_goes_on_where_it_ended_and_begins_nothing_without_time(tmp_path: Path) -> None:
    picked = [one for one in problems.read_picked() if problems.sources(one)][:3]
    out = tmp_path / "byhand.jsonl"
    assert play(out, session.LOOK_S - 1, picked).looked == []
    assert lines(out) == []
    first = play(out, 10_000, picked)
    names = [path.name for one in picked for path in problems.sources(one)]
    assert first.looked == names
    said = [(line["file"], line["stage"], line["status"], line["won"]) for line in lines(out)]
    assert said[0] == (names[0], "look", "NUMERIC", False)
    assert {line[1:] for line in said[1 : len(names)]} == {("look", "OK", False)}
    won = [line for line in said if line[1] == "gates"]
    ahead = [one for one in picked if {path.name for path in problems.sources(one)} - {names[0]}]
    assert len(won) == len(ahead) and all(line[2:] == ("OK", True) for line in won)
    out.write_bytes(out.read_bytes() + b'{"torn')
    assert play(out, 10_000, picked).looked == []


def test_the_next_best_of_a_problem_has_its_turn_once_one_is_refused(tmp_path: Path) -> None:
    class Refusing(Played):
        def _judge(self, one: problems.Picked, path: Path) -> None:
            self._write(one, path, "gates", status="NUMERIC", words="wrong", won=False)

    several = [one for one in problems.read_picked() if len(problems.sources(one)) > 1][:2]
    out = tmp_path / "byhand.jsonl"
    for _ in range(3):
        played = Refusing(out, 10_000, read_source(MANIFEST))
        played.looked = ["another"]
        played.run(several)
    judged = [line["file"] for line in lines(out) if line["stage"] == "gates"]
    assert len(judged) == len(set(judged))
    assert set(judged) == {path.name for one in several for path in problems.sources(one)}


def test_a_name_says_its_problem() -> None:
    one = problems.Picked("deep-K", Problem(8, 16, 32, "tn", "bf16"), None, 1.0, 2.0, 2.0)
    assert one.stem == "deepk_8x16x32_tn_bf16"
