"""The file of a table: what is in it, that it comes back, and what is refused of strangers."""

from __future__ import annotations

import getpass
import json
import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.store import contribution as reader
from hgemm_packs.generator.store import export
from hgemm_packs.generator.tables import table
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.local import conditions, place
from hgemm_packs.tuning import contribution, journal
from tests import packs
from tests.cpu.tuning import world
from tests.generator.contribution.contributed import (
    SPEEDUPS,
    contribute,
    edit_facts,
    edit_job,
    members,
    pack_members,
)


def test_the_evidence_comes_back_and_gives_the_rows_of_the_table(
    file: Path, pack: Pack, tmp_path: Path
) -> None:
    found = reader.read(file)
    assert {job.problem for job in found.jobs} == {*SPEEDUPS}
    export.write(reader.findings(found, [Packed(pack.path)]), tmp_path / "exports" / "one")
    made = table.source(export.load(tmp_path / "exports"))
    local = select.find_packs().packs[0].manifest
    assert {row.key: row for row in made.table} == {row.key: row for row in local.table}
    assert {kernel.id for kernel in made.kernels} == {kernel.id for kernel in local.kernels}
    assert made.baseline.torch == local.baseline.torch
    (profile,) = made.device_profiles
    assert (profile.name, profile.mem_bw_gbps) == (packs.H200.name, 4000.0)


def test_the_same_table_gives_the_same_bytes(file: Path, tmp_path: Path) -> None:
    again = contribute(tmp_path / "again.zip")
    assert again.read_bytes() == file.read_bytes()


def test_nothing_personal_is_in_the_file(file: Path, tmp_path: Path) -> None:
    text = b"\n".join(members(file).values()).decode().lower()
    for word in (socket.gethostname(), getpass.getuser(), str(tmp_path), os.environ["HOME"]):
        assert f'"{word.lower()}' not in text and f"/{word.lower()}" not in text
    facts = json.loads(members(file)[contribution.FACTS])
    assert facts.keys() == {
        *("schema", "jobs", "profile", "arch", "sm_count", "l2_bytes", "gbps", "packs"),
        *("torch", "cublas", "driver", "rules"),
    }
    for line in members(file)[contribution.JOBS].splitlines():
        assert json.loads(line)["evidence"]["finished"] < 100  # an order, and no moment


def test_only_what_holds_together_is_contributed(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of an older driver stay at home."""
    from hgemm_packs.tuning import session

    first = conditions.here()._replace(driver="1.0")
    monkeypatch.setattr(session, "here", lambda: first)
    world.run(world.FakeBench(SPEEDUPS))
    second = first._replace(driver="2.0")
    for module in (session, place):
        monkeypatch.setattr(module, "here", lambda: second)
    folder = world.run(world.FakeBench(SPEEDUPS), [world.FIRST]).folder
    contribution.write_contribution(folder, tmp_path / "out.zip")
    found = reader.read(tmp_path / "out.zip")
    assert {job.run.conditions.driver for job in found.jobs} == {"2.0"}
    assert {job.stage for job in found.jobs} == {"noise", "confirm"}


def test_the_command_says_what_it_wrote(
    pack: Pack, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    out = tmp_path / "table.zip"
    assert command("contribute", out) == (
        2,
        "",
        "hgemm-packs: nothing was measured on this machine: hgemm-packs tune\n",
    )
    world.run(world.FakeBench(SPEEDUPS))
    world.run(world.FakeBench(), [world.FIRST], index=1)
    code, _, err = command("contribute", out)
    assert code == 2 and '"Fake device", "NVIDIA H200"' in err
    code, said, _ = command("contribute", out, "--device-profile", "NVIDIA H200")
    assert code == 0 and said.startswith(f"{out}: 3 problems on NVIDIA H200, 7 jobs, under torch")
    assert len(reader.read(out).jobs) == 7
    code, _, err = command("contribute", out, "--device-profile", "nothing")
    assert code == 2 and "'nothing' was not measured here" in err


def _names(path: Path, *names: str) -> None:
    found = members(path)
    data = dict(zip(names, [*found.values(), b""], strict=False))
    path.write_bytes(pack_members(data))


def _bomb(path: Path) -> None:
    """Zeros that would fill the memory."""
    found = members(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(contribution.FACTS, bytes(reader.MAX_FACTS_BYTES + 1))
        file.writestr(contribution.JOBS, found[contribution.JOBS])


def _lies(path: Path) -> None:
    """The size that the zip says is not that of the data."""
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (7).to_bytes(4, "little")
    path.write_bytes(bytes(data))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def _infinite(job: dict) -> None:  # type: ignore[type-arg]
    job["samples"]["hot"]["torch"][0] = float("inf")


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "bad_zip"),
    "no zip": (lambda path: path.write_bytes(b"hello" * 100), "bad_zip"),
    "torn": (lambda path: os.truncate(path, path.stat().st_size // 2), "bad_zip"),
    "one bit": (_flip, "bad_zip"),
    "a path out of the folder": (lambda p: _names(p, "../facts.json", "jobs.jsonl"), "bad_zip"),
    "an absolute path": (lambda p: _names(p, "/etc/passwd", "jobs.jsonl"), "bad_zip"),
    "a third member": (lambda p: _names(p, "facts.json", "jobs.jsonl", "x"), "bad_zip"),
    "packed otherwise": (
        lambda p: p.write_bytes(pack_members(members(p), zipfile.ZIP_LZMA)),
        "bad_zip",
    ),
    "a bomb": (_bomb, "file_too_large"),
    "a size that is not so": (_lies, "bad_zip"),
    "facts of another format": (
        edit_facts(lambda facts: facts.update(schema="hgemm-packs/contribution-2")),
        "bad_value",
    ),
    "a field more": (edit_facts(lambda facts: facts.update(run="rm")), "unknown_field"),
    "a field less": (edit_facts(lambda facts: facts.pop("driver")), "missing_field"),
    "a name of control codes": (
        edit_facts(lambda facts: facts.update(profile="\x1b[2J")),
        "bad_text",
    ),
    "another count": (edit_facts(lambda facts: facts.update(jobs=6)), "bad_count"),
    "a time of zero": (
        edit_job(lambda job: job["samples"]["hot"].update(torch=[0.0] * 7)),
        "out_of_bounds",
    ),
    "a time without end": (edit_job(_infinite), "not_finite"),
    "fewer samples of one arm": (
        edit_job(lambda job: job["samples"]["hot"].update(torch=[1.0])),
        "bad_samples",
    ),
    "an arm of no name": (
        edit_job(lambda job: job["samples"]["hot"].update(magic=[1.0] * 7)),
        "bad_text",
    ),
    "a stage of no name": (edit_job(lambda job: job.update(stage="won")), "bad_value"),
    "a trial that is none": (edit_job(lambda job: job.update(stage="noise")), "bad_samples"),
    "a problem of two numbers": (
        edit_job(lambda job: job.update(problem=[1, 2])),
        "wrong_type",
    ),
    "a side of zero": (
        edit_job(lambda job: job.update(problem=[0, 8, 8, "nn", "f16"])),
        "out_of_bounds",
    ),
    "a date of no calendar": (edit_job(lambda job: job.update(date="soon")), "bad_text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_its_reason(file: Path, name: str) -> None:
    damage, code = HOSTILE[name]
    damage(file)
    with pytest.raises(PackError) as caught:
        reader.read(file)
    assert caught.value.code == code
    assert str(file) in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_FILE_BYTES", 100)
    with pytest.raises(PackError, match="file_too_large"):
        reader.read(file)


def test_kernels_are_those_of_the_packs_here(file: Path, pack: Pack, tmp_path: Path) -> None:
    other = world.write(tmp_path / "other", ["slow", "other"])
    with pytest.raises(PackError, match=r"are of no pack here: give test-pack 1\.0\.0"):
        reader.findings(reader.read(file), [Packed(other.path)])


def test_a_kernel_that_does_not_take_its_problem_is_refused(file: Path, pack: Pack) -> None:
    edit_job(lambda job: job.update(problem=[64, 63, 128, "nn", "f16"]))(file)
    with pytest.raises(PackError, match="not_admitted"):
        reader.findings(reader.read(file), [Packed(pack.path)])


def test_lines_of_a_journal_are_read_by_the_same_checks(file: Path, pack: Pack) -> None:
    """What tune writes is what merge reads."""
    folder = place.folder_of(Path(os.environ["HGEMM_PACKS_CACHE"]), "NVIDIA H200", 132)
    jobs, damaged = journal.read(folder)
    found = reader.read(file)
    assert damaged == 0 and [job.samples for job in jobs] == [job.samples for job in found.jobs]
