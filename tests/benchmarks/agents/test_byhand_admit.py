"""A source written by hand goes from the line that it won in to a row and a pack, and nothing else
does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.agents import byhand_problems, byhand_session
from benchmarks.agents.byhand_admit import admit
from benchmarks.agents.byhand_problems import Picked
from hgemm_packs.errors import PackError
from hgemm_packs.generator.campaigns import refine
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile import compiler, free_sources, pack_writer
from hgemm_packs.generator.compile.compiler import BuildError
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Verdict
from hgemm_packs.generator.families import InvalidGenome
from hgemm_packs.generator.families.free.family import FAMILY, read
from hgemm_packs.generator.store import export
from hgemm_packs.generator.tables import table
from hgemm_packs.generator.workers import builder
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from tests.generator import fake_device
from tests.generator.command import Answer, generate
from tests.generator.kernels import sources_at
from tests.generator.written import TINY

PROBLEM = Problem(64, 64, 128, "nt", "f16")
PICKED = Picked("tiny", PROBLEM, "the_table_s", 1.0, 3.0, 4.0)
NAME = "tiny_64x64x128_nt_f16"
PARENT = "d" * 64
#: As docs/candidate.md has it.
TOML = """
layout = "nt"
block = 32
symbol = "tiny"
grid = { tile_m = 16, tile_n = 8 }
dims.m = { min = 16, max = 65536, multiple_of = 16 }
dims.n = { min = 8, max = 65536, multiple_of = 8 }
dims.k = { min = 16, max = 65536, multiple_of = 16 }
"""


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source in a folder of sources by hand; sources that are admitted go into a copy."""
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    sources_at(tmp_path / "kernels", monkeypatch)
    folder = tmp_path / "byhand"
    folder.mkdir()
    monkeypatch.setattr(byhand_problems, "KERNELS", folder)
    (folder / f"{NAME}.toml").write_text(TOML, encoding="utf-8")
    path = folder / f"{NAME}.cu"
    path.write_text(TINY, encoding="utf-8")
    return path


def line(path: Path, **changes: Any) -> dict[str, Any]:
    """What a run says of a source that won."""
    return {
        "problem": str(PROBLEM),
        "file": path.name,
        "sha256": byhand_session.digest(path),
        "stage": "gates",
        "status": "OK",
        "words": "",
        "gates": dict.fromkeys((*free_sources.GATES, "plausibility", "timing"), "OK"),
        "won": True,
        **changes,
    }


def said(*lines: Mapping[str, Any]) -> list[str]:
    return list(admit(lines, [PICKED], {"the_table_s": PARENT}))


class InThisProcess:
    """Builds and inspects as the processes of a run do."""

    workers = 0
    toolchain: Mapping[str, Any] = {"sources": "a copy"}

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        return {choice: builder.make(choice) for choice in choices}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return {kernel.id: builder.inspect(kernel) for kernel in kernels}

    def close(self) -> None: ...


def measure(run: Path, us: float, faults: Mapping[str, str]) -> Answer:
    """`generate measure free` where kernels take `us`, and torch 12 us."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_device, "true_us", lambda problem, kernel: us)
        device = fake_device.FakeDevice(faults=faults)
        patch.setattr(search, "open_evaluator", lambda *_: Inline(device))
        patch.setattr(search, "ProcessBuilder", lambda jobs: InThisProcess())
        patch.setattr(search, "gpus_here", lambda asked: 1)
        patch.setattr(search, "run_sanitizer", lambda count, kernels, ahead: ())
        return generate("measure", "free", NAME, "--run", run, "--budget", "20s")


def source_manifest(run: Path, results: Path) -> pack_writer.SourceManifest:
    """The table that follows from a run's export."""
    folders.take([run], results)
    usable = table.make_usable(lambda jobs: compiler.build(jobs, workers=1))
    document, _ = refine.document(export.load(results / "confirmations"), 1.0, usable, unseen=True)
    return document


def test_gates_of_today_are_asked_again(source: Path) -> None:
    """A winner's lines were of a gate that let addresses be numbers."""
    place = "(i64)row * ldc"
    assert place in TINY
    source.write_text(TINY.replace(place, f"{place} + ((unsigned long long)c >> 40 & 1)"))
    (words,) = said(line(source))
    assert words.startswith(f"{source.name}: refused: {NAME}: the dataflow gate of today: address")
    with pytest.raises(InvalidGenome, match="no source"):
        read(NAME)


def test_a_winner_gets_a_row_and_its_pack_says_who_wrote_it(source: Path, tmp_path: Path) -> None:
    won = line(source)
    words = said(won)
    genome = read(NAME).genome
    assert words == [f"{source.name}: taken, sha256 {genome['sha256']}"]
    judged = hashlib.sha256(json.dumps(won, sort_keys=True).encode()).hexdigest()
    lineage = {"by": "hand", "asked": "agents.byhand", "parent": PARENT, "judged": judged}
    assert genome.items() >= lineage.items()

    answer = measure(tmp_path / "run", 6.0, {})
    assert (answer.code, answer.err) == (0, "")
    last = "1 of 1 problems timed against torch, 1 of 1 likely wins confirmed, 0 GPU-s"
    assert answer.out.splitlines()[-1] == f"{last}: {tmp_path / 'run'}"

    document = source_manifest(tmp_path / "run", tmp_path / "results")
    (row,) = document.table
    assert row.kernel == document.kernels[0].id and row.hot.speedup == pytest.approx(2.0, rel=1e-3)
    pack_writer.write_source(tmp_path / "table", document)
    pack_writer.build_pack(tmp_path / "table", tmp_path / "pack", jobs=1)
    pack = Pack.open(tmp_path / "pack")
    entry = pack.manifest.by_id[str(row.kernel)]
    built = compiler.build_one(FAMILY.name, genome)
    assert bytes(pack.image(entry)) == built.cubin
    assert (entry.family, entry.genome, entry.symbol) == (FAMILY.name, genome, "tiny")
    assert entry.admits(PROBLEM) is None
    assert entry.admits(Problem(65, 64, 128, "nt", "f16")) is not None


@pytest.mark.parametrize(
    ("us", "faults", "code"),
    [(13.0, {}, 0), (6.0, "gate", 1), (6.0, "wrong", 1)],
    ids=["slower than torch", "wrong for the gate", "wrong when screened"],
)
def test_what_the_run_does_not_prove_gets_no_row(
    source: Path, tmp_path: Path, us: float, faults: Any, code: int
) -> None:
    said(line(source))
    kernel = compiler.build_one(FAMILY.name, read(NAME).genome).entry_fields["id"]
    answer = measure(tmp_path / "run", us, {kernel: faults} if faults else {})
    assert answer.code == code, answer
    assert "0 of 0 likely wins confirmed" in answer.out
    if code == 0:
        document = source_manifest(tmp_path / "run", tmp_path / "results")
        assert [row.kernel for row in document.table] == [None]
        assert document.kernels == ()


def test_losers_and_what_a_gate_refused_stay_out(source: Path) -> None:
    slow = line(source, won=False, status="SLOWER", words="slower than torch")
    assert said(slow) == [f"{source.name}: refused: no win: SLOWER slower than torch"]
    gates = {**line(source)["gates"], "sanitizer": "SANITIZER"}
    words = f"{source.name}: refused: {NAME}: the sanitizer gate: SANITIZER"
    assert said(line(source, gates=gates)) == [words]
    look = line(source, stage="look")
    assert said(look) == [], "a first look is no verdict"
    assert said(line(source), slow) == [f"{source.name}: refused: no win: SLOWER slower than torch"]
    with pytest.raises(InvalidGenome, match=f"no source {NAME}"):
        read(NAME)


@pytest.mark.parametrize("what", [".cu", ".toml"])
def test_a_file_that_was_changed_behind_the_verdict_stays_out(source: Path, what: str) -> None:
    won = line(source)
    path = source.with_suffix(what)
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert said(won) == [f"{source.name}: refused: the file is not the one that was judged"]


def test_a_tampered_source_builds_no_pack(source: Path, tmp_path: Path) -> None:
    said(line(source))
    measure(tmp_path / "run", 6.0, {})
    document = source_manifest(tmp_path / "run", tmp_path / "results")
    pack_writer.write_source(tmp_path / "table", document)
    there = tmp_path / "kernels" / "free" / f"{NAME}.cu"
    there.write_text(TINY.replace("acc[3]", "acc[2]"), encoding="utf-8")
    compiler.expand_source.cache_clear()
    with pytest.raises((BuildError, InvalidGenome, PackError), match="is not what was judged"):
        pack_writer.build_pack(tmp_path / "table", tmp_path / "pack", jobs=1)
    assert not (tmp_path / "pack").exists()
