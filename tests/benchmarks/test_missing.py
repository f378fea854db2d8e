"""What the evidence lacks: each item comes with what is missing and goes when it is on file."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import missing as lack
from hgemm_packs.generator.campaigns import remeasure
from hgemm_packs.generator.campaigns.missing import Gap
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.space import catalogue
from hgemm_packs.generator.devices.sim import fake_kernel
from hgemm_packs.generator.store import export, shards
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import published
from hgemm_packs.pack.manifest import Row, Timing
from hgemm_packs.problem import Problem
from tests.generator import called
from tests.generator.found import OTHER, PROBLEM, THIRD, TRIAL, both, found, job
from tests.generator.kernels import DIRECT

ROOT = Path(__file__).parents[2]
LED = {"conditions": {"hot": {"led": True}, "cold": {"led": True}}}
KERNELS = [fake_kernel(choice) for choice in catalogue("nn", "f16")[:2]]
A, B = (kernel.id for kernel in KERNELS)
NAMES = {kernel.id: str(kernel.fields["name"]) for kernel in KERNELS}
LARGE = Problem(8192, 8192, 8192, "nn", "f16")
AHEAD, BEHIND = (10.0, 12.0), (13.0, 15.0)  # us, where torch takes 12 and 14


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return importlib.import_module("benchmarks.publish.missing")


def table(*rows: tuple[Problem, str | None], dependent: str | None = None) -> Any:
    """A source manifest's rows and kernels."""
    figures = Timing(8.0, 12.0, 9.0, 1.5, 1.4)
    named = [
        Row(*p.key, id_, "GPU", figures, figures, 9, "2026-01-01", dependent if id_ else None)
        for p, id_ in rows
    ]
    kernels = [SimpleNamespace(id=id_, name=name) for id_, name in NAMES.items()]
    return SimpleNamespace(table=named, kernels=kernels)


def findings(*fields: Field, trials: tuple[Field, ...] = (TRIAL,)) -> Findings:
    kernels = {kernel.id: dict(kernel.fields) for kernel in KERNELS}
    return found(*fields, trials=trials, kernels=kernels)


def led(field: Field) -> Field:
    return replace(field, evidence={**field.evidence, **LED})


def missing(*each: Gap) -> dict[str, tuple[int, int]]:
    return {one.item: (one.missing, one.of) for one in each}


def chain(problem: Problem, kernel: str, **changes: Any) -> dict[str, Any]:
    times = {"torch": [12.0] * 3, "plain": [5.0] * 3, "pdl": [4.0] * 3}
    line = {"problem": [*problem.key[:5]], "kernel": NAMES[kernel], "hot": times, "cold": times}
    return line | {"wrong": []} | changes


# --- each item ------------------------------------------------------------------------------------


def test_confirmations_and_trials_that_were_not_led() -> None:
    source = table((PROBLEM, A), (OTHER, None), (THIRD, None), (LARGE, None))
    fields = [
        job("finals", {A: AHEAD}, PROBLEM),
        job("confirm", {A: AHEAD}, PROBLEM),
        job("finals", {A: AHEAD, B: BEHIND}, OTHER),
        job("confirm", {A: BEHIND}, OTHER),  # ahead by its best job
        job("finals", {B: AHEAD}, THIRD),
        job("finals", {A: BEHIND, B: (10.0, 15.0)}, LARGE),  # behind with cold caches
    ]
    trials = {"trials": (400, 400)}
    seen = missing(*lack.find_unled(source, findings(*fields)))
    assert seen == {"rows": (1, 1), "near": (1, 1), "finals": (1, 2)} | trials
    again = [led(job("confirm", {A: BEHIND}, problem)) for problem in (PROBLEM, OTHER, THIRD)]
    seen = missing(*lack.find_unled(source, findings(*fields, *again)))
    assert seen == {"rows": (0, 1), "near": (0, 2), "finals": (0, 2)} | trials
    unled = missing(*lack.find_unled(source, findings(*fields, job("confirm", {B: AHEAD}, THIRD))))
    assert unled == {"rows": (1, 1), "near": (2, 2), "finals": (0, 2)} | trials


def test_trials_count_where_they_were_led() -> None:
    enough = (TRIAL, *[led(TRIAL)] * (remeasure.TRIALS + 5))
    field = job("finals", {A: BEHIND})
    for trials, left in ((enough[:10], remeasure.TRIALS - 9), (enough, 0)):
        one = findings(field, trials=trials)
        assert missing(*lack.find_unled(table(), one))["trials"] == (left, remeasure.TRIALS)


def test_own_kernels_that_were_never_launched_dependent() -> None:
    source = table((PROBLEM, A), (OTHER, B), (THIRD, None))
    lines = [chain(PROBLEM, A, wrong=["hot"]), chain(OTHER, A), chain(THIRD, B)]
    seen = lack.find_undependent(source, lines)
    assert missing(seen) == {"dependent": (1, 2)}
    assert seen.lines == ({"problem": [*OTHER.key[:5]], "kernel": NAMES[B]},)
    assert missing(lack.find_undependent(source, [*lines, chain(OTHER, B)])) == {
        "dependent": (0, 2)
    }


def test_rows_that_nobody_called_in_public() -> None:
    a, b = called.A, called.B
    rows = (called.row(PROBLEM, a, b), called.row(OTHER, a), called.row(THIRD, None))
    source = called.source(*rows)
    seen = lack.find_unpublished(source, [called.line(PROBLEM, [a, b]), called.line(OTHER, [a, b])])
    assert missing(seen) == {"published": (1, 2)}
    assert seen.lines == ({"problem": [*OTHER.key[:5]], "kernel": called.NAMES[a]},)
    lines = [called.line(PROBLEM, [a]), called.line(OTHER, [a])]
    seen = lack.find_unpublished(source, lines)
    assert missing(seen) == {"published": (1, 2)}
    assert seen.lines == ({"problem": [*PROBLEM.key[:5]], "kernel": called.NAMES[b]},)
    lines.append(called.line(PROBLEM, [a, b]))
    assert missing(lack.find_unpublished(source, lines)) == {"published": (0, 2)}


def test_large_wins_that_were_not_sustained() -> None:
    """By any of their kernels; what is small, or has no win, is none."""
    other = replace(LARGE, dtype="bf16")
    some = findings(
        *both({A: AHEAD, B: (11.0, 13.0)}, LARGE),
        *both({A: BEHIND}, other),
        *both({A: AHEAD}, PROBLEM),
    )
    line = {"problem": [*other.key[:5]], "sustained": {"torch": {}, NAMES[A]: {}}}
    seen = lack.find_unsustained(some, [line])
    assert missing(seen) == {"sustained": (1, 1)} and seen.detail == "f16 nn 1"
    assert seen.lines == ({"problem": [*LARGE.key[:5]], "kernel": NAMES[A]},)
    line = {"problem": [*LARGE.key[:5]], "sustained": {"torch": {}, NAMES[B]: {}}}
    assert lack.find_unsustained(some, [line]) == Gap("sustained", 0, 1)


def test_kernels_without_a_sanitizer_record() -> None:
    done = {(A, "memcheck"), (A, "racecheck"), (B, "racecheck"), ("gone", "memcheck")}
    tools = ("memcheck", "racecheck")
    assert lack.find_unsanitized(table(), tools, done) == Gap("sanitized", 1, 4)
    assert lack.find_unsanitized(table(), tools, done | {(B, "memcheck")}) == Gap("sanitized", 0, 4)


def test_rows_that_lag_the_other_type_by_another_kernel() -> None:
    """By the same kernel in both types there is nothing to try; nor is there within 2%."""
    own = {**DIRECT, "dtype": "f16"}
    genomes = {"a": own, "b": {**own, "dtype": "bf16"}, "c": {**own, "dtype": "bf16", "unroll": 4}}
    kernels = tuple(
        replace(called.kernel(letter * 64), genome=genome) for letter, genome in genomes.items()
    )
    identities = {each.name[-1]: published.kernel_identity(each) for each in kernels}

    def row(dtype: str, kernel: str | None, gain: float, behind: str | None = None) -> Row:
        ids = [letter and letter * 64 for letter in (kernel, behind)]
        us = 12.0 / gain
        return called.row(Problem(512, 512, 4096, "nn", dtype), *ids, us=(us, us), tuned=12.0)

    def seen(first: Row, second: Row, **chained: float) -> Gap:
        lines = []
        for name, gain in chained.items():
            one = first if name == "a" else second
            pair = [str(one.kernel), name * 64]
            known = [identities[id_[0]] for id_ in pair]
            problem = Problem(*one.key)
            lines.append(called.line(problem, pair, {"32x2": gain}, us=1e4, identities=known))
        source = replace(called.source(first, second), kernels=kernels)
        return lack.find_lagging(source, lines)

    late = Gap("lagging", 1, 2, "most: bf16 nn deep-K 1")
    level = Gap("lagging", 0, 2)
    assert seen(row("f16", "a", 1.5), row("bf16", "c", 1.46)) == late
    assert seen(row("f16", "a", 1.5), row("bf16", None, 1.0)) == late
    assert seen(row("f16", "a", 1.5), row("bf16", "c", 1.48)) == level
    assert seen(row("f16", "a", 1.5), row("bf16", "b", 1.2)) == level
    # In a chain, as called; a row without such a line has what it has plainly.
    both = row("f16", "a", 1.5, "a"), row("bf16", "b", 1.5, "c")
    assert seen(*both, a=2.0, c=1.9) == late
    assert seen(*both, a=2.0, c=1.97) == seen(*both, a=1.4, c=1.45) == level
    assert seen(*both, c=1.9) == replace(late, detail="most: f16 nn deep-K 1")


def test_covering_genomes_that_have_not_passed() -> None:
    def gates(**ends: int) -> Gap:
        other = {"genomes": {"tried": 3, "passed": 3}}
        return lack.find_ungated({"families": {"one": {"genomes": ends}, "other": other}})

    seen = gates(tried=10, refused=2, passed=4, left=3, failed=1)
    assert seen == Gap("gated", 4, 11, "1 failed")
    assert gates(tried=5, passed=4, **{"too large": 1}) == Gap("gated", 0, 8)


def test_covering_genomes_that_a_sanitizer_has_not_seen() -> None:
    tools = ("memcheck", "racecheck")
    document: dict[str, Any] = {"kernels": {"kernels": 5}}
    assert lack.find_unclean(document, tools) == Gap("clean", 10, 10)
    document["sanitized"] = {"memcheck": {"clean": 5}, "racecheck": {"clean": 3}, "synccheck": {}}
    assert lack.find_unclean(document, tools) == Gap("clean", 2, 10)


def test_verdicts_of_the_red_team_that_are_not_as_expected() -> None:
    def case(name: str, expect: str, got: str, undecided: bool = False) -> dict[str, Any]:
        return {"name": name, "expect": [expect], "got_gate": got, "undecided": undecided}

    cases = [
        case("plain", "pass", "pass"),
        case("deep", "pass", "sanitizer"),
        case("clock", "static", "static"),
        case("late", "numeric", "pass"),
        case("race", "sanitizer", "pass", undecided=True),
    ]
    seen = lack.find_undecided({"cases": cases})
    assert seen == [
        Gap("honest", 1, 2, "deep: sanitizer"),
        Gap("cheats", 1, 2, "late: pass"),
    ]
    right = lack.find_undecided({"cases": [cases[0], cases[2]]})
    assert right == [Gap("honest", 0, 1), Gap("cheats", 0, 1)]


def test_problems_of_a_list_without_a_row() -> None:
    wanted = [PROBLEM, OTHER, replace(THIRD, dtype="bf16")]
    assert lack.find_unlisted(table((OTHER, None)), "llm", wanted) == Gap(
        "llm", 2, 3, "bf16 nn 1, f16 nn 1"
    )
    whole = table(*((problem, None) for problem in wanted))
    assert lack.find_unlisted(whole, "llm", wanted) == Gap("llm", 0, 3)


def test_a_result_is_of_the_sources_that_did_not_change() -> None:
    assert lack.find_outdated("host", "measured at c0", []) == Gap("host", 0, 1)
    one = lack.find_outdated("host", "measured at c0", ["a.c", "b.c", "c.c", "d.c", "e.c"])
    assert one == Gap("host", 1, 1, "measured at c0; since then a.c, b.c, c.c and 2 more")
    unknown = lack.find_outdated("host", "measured at c0", None)
    assert (unknown.missing, unknown.detail) == (1, "measured at c0, which git does not know")


# --- the script -----------------------------------------------------------------------------------


def test_the_commit_that_a_result_is_compared_with(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the result says, without the mark of a tree that was changed; else what filed it."""
    asked = []

    def git(*words: str) -> list[str]:
        asked.append(words)
        return ["f11ed"] if words[0] == "log" else []

    def result(document: dict[str, Any] | None) -> Gap:
        return script.result("load", "load_cost.json", ("csrc",), document)

    monkeypatch.setattr(script, "git", git)
    for document, commit in (
        ({"commit": "c0ffee+"}, "c0ffee"),
        ({"measured_on": {"commit": "c0ffee"}}, "c0ffee"),
        ({"kernels": {"commit": "c0ffee"}, "runs": {}}, "c0ffee"),
        ({"kernels": 163, "runs": {}}, "f11ed"),
    ):
        assert result(document) == Gap("load", 0, 1)
        assert asked[-1] == ("diff", "--name-only", commit, "HEAD", "--", "csrc")
    assert result(None) == Gap("load", 1, 1, "load_cost.json is absent")
    monkeypatch.undo()
    unknown = result({"commit": "0" * 40})
    assert unknown == Gap("load", 1, 1, "measured at 000000000, which git does not know")


def test_commands_are_of_this_repository(script: ModuleType) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in (line for each in script.COMMANDS.values() for line in each):
        assert "python benchmarks/" not in command
        for name in re.findall(r"python -m (benchmarks[\w.]+)", command):
            assert (ROOT / f"{name.replace('.', '/')}.py").is_file(), command
        for target in re.findall(r"^make ([\w-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.M), command
    for _, paths in script.OF_SOURCES.values():
        assert all((ROOT / path.removeprefix(":!")).exists() for path in paths)
    assert {kind.how for kind in script.KINDS.values()} == script.COMMANDS.keys()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed export, of one type and layout alone, with some trials of another."""
    place = tmp_path_factory.mktemp("measured")
    whole = ROOT / "benchmarks" / "results" / "confirmations" / "01"
    shutil.copy(whole / export.KERNELS, place)
    (place / export.JOBS).mkdir()
    facts = json.loads((whole / export.FACTS).read_text(encoding="utf-8"))
    facts["jobs"] = 0
    for kind, stages in (("f16-tt", {"finals", "confirm", "noise"}), ("f16-tn", {"noise"})):
        jobs = f"{export.JOBS}/{kind}.jsonl.zip"
        kept = [line for line in read_records([whole / jobs]) if line["stage"] in stages]
        assert kept
        (place / jobs).write_bytes(shards.pack(kept))
        facts["jobs"] += len(kept)
    (place / export.FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return place


def test_the_committed_files(
    script: ModuleType,
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where half of the public lines were not there, as `summary.py --unmeasured` says."""
    lines, source = script.summary.chain_records(), read_source(script.summary.MANIFEST)
    for module in (script, script.summary):  # once is a second
        monkeypatch.setattr(module, "read_source", lambda path: source)
    # The others take seconds.
    every = script.folders.list_files
    monkeypatch.setattr(script.folders, "list_files", lambda *names, **of: every(*names, **of)[-1:])
    monkeypatch.setattr(script.summary, "chain_records", lambda: lines)
    assert script.main(["--json", "--measured", str(small)]) == 0
    found = {one["item"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    unmeasured = len(script.summary.list_unmeasured().splitlines())
    assert found.get("published", {"missing": 0})["missing"] == unmeasured
    monkeypatch.setattr(script.summary, "chain_records", lambda: lines[::2])
    assert script.main(["--list", "published", "--measured", str(small)]) == 0
    listed = capsys.readouterr().out
    assert listed and listed == script.summary.list_unmeasured()


def test_what_is_printed(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing, in the order of a session, with seconds and commands, each command once."""
    whole = [Gap("host", 1, 1, "[a]"), Gap("finals", 100, 300), Gap("near", 10, 20)]
    monkeypatch.setattr(script, "items", lambda place: [Gap("grid", 0, 4000), *whole])
    assert script.main([]) == 0
    text = capsys.readouterr().out
    row = r"finals +\S +100 +\S +300 +\S +30 +\S +left "
    assert re.search(rf"near .*{row}.*host.*\[a\]", text, re.S)
    assert text.count("--only-build") == 1 and "host.host_cost" in text
    assert text.endswith("33 GPU-s where a pace is known\nnothing is missing: grid\n")
    assert script.main(["--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["gpu_seconds"] for one in found] == [3.0, 30.0, None]
