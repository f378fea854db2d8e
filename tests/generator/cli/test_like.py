"""`generate --like CARD`: a new card's pack from the rows of another one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.pack_writer import read_source, write_source
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Job, Reply, Status, Verdict
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.run import cards
from hgemm_packs.generator.run.cards import UnknownCard, find_card, is_committed, match
from hgemm_packs.generator.run.start import sanitize_unknown
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers import known_builder
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from tests.generator import command
from tests.generator.cli.made_run import Made
from tests.generator.command import PROBLEMS, Answer, generate, listed, simulated
from tests.generator.store.sample_store import choices

NEAR = Problem(192, 1024, 512, "nt", "f16")  # no row has these sizes


@pytest.fixture
def card(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The made run's table as a committed one, its pack as an installed one; the manifests."""
    place = tmp_path / "manifests" / "sm_90a" / "sim"
    place.mkdir(parents=True)
    write_source(place, read_source(made.run / "source.json"))
    monkeypatch.setattr(cards, "manifests_dir", lambda: tmp_path / "manifests")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.run / "pack"))
    settings.cache_clear()
    # Simulated cubins are no ELF files that a gate could look into.
    monkeypatch.setattr(
        known_builder.binary, "check_image", lambda *_: Verdict("binary", Status.OK)
    )
    monkeypatch.setattr(
        compiler, "as_kernel", lambda one: CompiledKernel(one.entry_fields, one.cubin)
    )
    yield tmp_path / "manifests"
    settings.cache_clear()


def other() -> SimDevice:
    """Another card: the same sorts of kernels fail, times are measured anew."""
    return SimDevice(1, Faults(launch=0.05, numeric=0.05), Noise(0.002, 0.0))


def like(folder: Path, *options: object, name: str = "simulated gpu") -> Answer:
    shapes = listed(folder / "shapes.toml", [*PROBLEMS, NEAR])
    words = ("--shapes", shapes, "--budget", "60s", "--seed", 3, "--run", folder / "run")
    return simulated(*words, "--like", name, *options, device=other())


def jobs(folder: Path) -> list[tuple[str, Problem | None, tuple[str, ...]]]:
    with Store(folder / "run", readonly=True) as store:
        return [(done.kind, done.problem, done.kernels) for done in store.finished_jobs()]


def test_a_card_is_named_by_its_profile_whole_or_short() -> None:
    profiles = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200"]
    for name in ("NVIDIA H200", "H200", "h200", "nvidia h200"):
        assert match(name, profiles) == "NVIDIA H200"
    assert match("h100 pcie", profiles) == "NVIDIA H100 PCIe"
    assert match("H100 80GB", profiles) == "NVIDIA H100 80GB HBM3"
    with pytest.raises(UnknownCard) as several:
        match("H100", profiles)
    both = "NVIDIA H100 80GB HBM3 (H100 80GB HBM3), NVIDIA H100 PCIe (H100 PCIe)"
    assert str(several.value) == f"'H100' may be any of: {both}"
    for name in ("H20", "", "NVIDIA"):
        with pytest.raises(UnknownCard) as none:
            match(name, profiles[2:])
        known = "known: NVIDIA H200 (H200)"
        assert str(none.value) == f"no table has rows of a card {name!r}; {known}"


def test_the_committed_table_of_the_h200_is_there() -> None:
    found = find_card("H200")
    assert found.profile == "NVIDIA H200" and len(found.rows) > 7000 and not found.refused
    named = [each.plain for each in found.rows.values() if each.plain is not None]
    assert len(set(named)) > 1000
    known = {"nvidia H200": True, "h200": True, "H2": False, "NVIDIA": False, "": False}
    assert {name: is_committed(name) for name in known} == known


def test_an_unknown_card_is_an_error_and_makes_nothing(card: Path, tmp_path: Path) -> None:
    code, _, err = like(tmp_path, name="H300")
    words = "no table has rows of a card 'H300'; known: Simulated GPU (Simulated GPU)"
    assert (code, err) == (2, f"hgemm-packs: --like H300: {words}\n")
    assert not (tmp_path / "run").exists()


def test_rows_and_cubins_of_another_card_make_a_pack(
    made: Made, card: Path, tmp_path: Path
) -> None:
    """No kernel of the installed pack is compiled or gated again; the new pack has its proof."""
    table = {Problem(*row.key): row for row in read_source(made.run / "source.json").table}
    ids = {row.kernel for row in table.values()} - {None}
    compiled: list[Choice] = []

    class Compilers(command.Builder):
        def build(self, wanted: Any) -> dict[Choice, CompiledKernel | Verdict]:
            compiled.extend(wanted)
            return super().build(wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "Builder", Compilers)
        answer = like(tmp_path)
    assert answer.code == 0, answer.err
    known = find_card("Simulated GPU", card).kernels
    assert known.keys() and not known.keys() & set(compiled)
    first = answer.out.splitlines()[0]
    assert first == f"like Simulated GPU: {len(table)} rows, {len(known)} kernels in packs here"
    source = read_source(tmp_path / "run" / "source.json")
    rows = {Problem(*row.key): row for row in source.table}
    for problem, row in table.items():
        if row.kernel is not None:
            assert rows[problem].hot.speedup == pytest.approx(row.hot.speedup, rel=0.05)
    seen = jobs(tmp_path)
    ran = {id_ for kind, _, kernels in seen if kind == "screen" for id_ in kernels}
    assert ids <= ran
    gated = {id_ for kind, _, kernels in seen if kind == "gate" for id_ in kernels}
    confirmed = {id_ for kind, _, kernels in seen if kind == "confirm" for id_ in kernels}
    packed = {each.id: each.proof for each in known.values()}
    assert confirmed & packed.keys() and not gated & packed.keys()
    assert confirmed <= gated | packed.keys()
    entries = Pack.open(tmp_path / "run" / "pack").manifest.kernels
    taken = {one.id: pack_kernels.proof(one) for one in entries if one.id in packed}
    assert taken and taken == {id_: packed[id_] for id_ in taken}
    counts = Counter(kind for kind, _, _ in seen)
    assert counts["race"] == 0 and counts["finals"] == len(PROBLEMS) + 1


def test_a_run_goes_on_and_repeats_nothing(card: Path, tmp_path: Path) -> None:
    class Cut(SimDevice):
        left = 9

        def run(self, job: Job) -> Reply:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().run(job)

    shapes = listed(tmp_path / "shapes.toml", [*PROBLEMS, NEAR])
    words = ("--shapes", shapes, "--budget", "60s", "--seed", 3, "--run", tmp_path / "run")
    cut = simulated(*words, "--like", "Simulated GPU", device=Cut(1, noise=Noise(0.002, 0.0)))
    assert cut.code == 130
    before = jobs(tmp_path)
    assert len(before) == 8
    again = like(tmp_path)
    assert again.code == 0
    after = jobs(tmp_path)
    assert set(before) <= set(after)
    work = [each for each in after if each[0] in ("screen", "finals", "confirm")]
    assert len(work) == len(set(work))


def test_a_run_that_is_resumed_has_the_stages_that_it_had(card: Path, tmp_path: Path) -> None:
    """With the finals and the confirmations of a search, what was confirmed was confirmed again."""
    like(tmp_path, "--budget", "5s")
    before = jobs(tmp_path)
    confirmed = [each for each in before if each[0] == "confirm"]
    assert confirmed and len(confirmed) < len(PROBLEMS) + 1
    code = simulated("resume", tmp_path / "run", "--budget", "60s", device=other()).code
    after = jobs(tmp_path)
    assert code == 0 and after[: len(before)] == before
    fields = [each for each in after if each[0] in ("finals", "confirm")]
    assert len(fields) == len({(kind, problem) for kind, problem, _ in fields})
    assert {problem for kind, problem, _ in fields if kind == "finals"} == {*PROBLEMS, NEAR}
    assert max(len(kernels) for kind, _, kernels in fields if kind == "finals") == 1


def test_winners_only_leaves_it_at_the_rows(card: Path, tmp_path: Path) -> None:
    like(tmp_path, "--strategy", "winners")
    with Store(tmp_path / "run", readonly=True) as store:
        proposers = {row[0] for row in store.db.execute("SELECT proposer FROM proposal")}
    assert proposers == {"like"}


def test_a_clean_record_is_not_asked_for_again(card: Path, tmp_path: Path) -> None:
    """What is on record with a finding, or by one tool alone, is asked for."""
    found = find_card("Simulated GPU", card)
    ids = sorted(kernel.id for kernel in found.kernels.values())
    lines = [{"id": i, "tool": t, "findings": 0} for i in ids[1:] for t in sanitizer.OF_TABLES]
    lines += [{"id": ids[0], "tool": sanitizer.OF_TABLES[0], "findings": 0}]
    record = tmp_path / "clean.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    like(tmp_path, "--known", record)
    confirmed = {i for kind, _, kernels in jobs(tmp_path) if kind == "confirm" for i in kernels}
    with Store(tmp_path / "run", readonly=True) as store:
        verdicts = store.verdicts("sanitizer")
    assert verdicts.keys() == confirmed & set(ids[1:]) and verdicts
    assert all(v.evidence == dict.fromkeys(sanitizer.OF_TABLES, 0) for v in verdicts.values())


def test_kernels_without_a_record_meet_the_sanitizer() -> None:
    clean, racy, unknown = (fake_kernel(choice) for choice in choices(3))
    refusal = Verdict("sanitizer", Status.SANITIZER, "racecheck: 1 hazard")
    asked: list[str] = []

    def check(kernels: Sequence[CompiledKernel]) -> Iterator[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        yield {one.id: refusal for one in kernels}

    given = list(sanitize_unknown({clean.id}, check, [racy, clean, unknown]))
    assert asked == [racy.id, unknown.id]
    statuses = {id_: verdict.status for each in given for id_, verdict in each.items()}
    assert statuses == {
        clean.id: Status.OK,
        racy.id: Status.SANITIZER,
        unknown.id: Status.SANITIZER,
    }
    asked.clear()
    assert [each.keys() for each in sanitize_unknown({clean.id}, check, [clean])] == [{clean.id}]
    assert asked == []


def test_a_damaged_table_is_left_out_with_the_reason(card: Path, tmp_path: Path) -> None:
    broken = card / "sm_90a" / "broken"
    broken.mkdir()
    (broken / "pack.json").write_text(
        json.dumps({"device_profiles": [{"name": "Simulated GPU"}]}), encoding="utf-8"
    )
    (card / "sm_90a" / "worse").mkdir()
    (card / "sm_90a" / "worse" / "pack.json").write_bytes(b"\xff{")
    found = find_card("Simulated GPU", card)
    assert len(found.rows) == len(PROBLEMS)
    (words,) = found.refused
    assert words.startswith(f"{broken}: ")


def test_a_pack_that_changed_since_it_was_opened_gives_no_kernel(made: Made, card: Path) -> None:
    kernel = next(iter(find_card("Simulated GPU", card).kernels.values()))
    manifest = made.run / "pack" / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(before + b" ")
    try:
        with pytest.raises(PackError, match="as it was opened"):
            kernel.read()
    finally:
        manifest.write_bytes(before)


def test_a_kernel_of_another_id_is_compiled(made: Made, card: Path, tmp_path: Path) -> None:
    """The committed manifest says that these sources build the choice to something else."""
    source = read_source(made.run / "source.json")
    kernel = source.kernels[0]
    other_id = hashlib.sha256(b"other").hexdigest()
    changed = json.loads((made.run / "source.json").read_text().replace(kernel.id, other_id))
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    write_source(card / "sm_90a" / "sim", read_source(path))
    found = find_card("Simulated GPU", card)
    choice = Choice.of(kernel.family, kernel.genome)
    assert choice not in found.kernels
    assert {one.id for one in found.kernels.values()} == {k.id for k in source.kernels[1:]}
    assert all(isinstance(one.read(), Built) for one in found.kernels.values())


def test_without_a_gpu_it_is_said(card: Path, tmp_path: Path) -> None:
    shapes = listed(tmp_path / "shapes.toml", PROBLEMS)
    code, _, err = generate("--shapes", shapes, "--like", "Simulated GPU", "--run", tmp_path / "r")
    assert (code, err) == (2, f"hgemm-packs: {search.NO_DEVICE}\n")
