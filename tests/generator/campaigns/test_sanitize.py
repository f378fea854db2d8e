"""compute-sanitizer over a whole pack: dealt to GPUs, resumed, stopped in time, with a stand-in for
the tool."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import covering_kernels, sanitize
from hgemm_packs.generator.campaigns.campaign import FIRST, Hopeless
from hgemm_packs.generator.campaigns.coverage import Known
from hgemm_packs.generator.campaigns.sanitize import Batch, Sweep, batches
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.sanitizer import Item, SanitizerUnavailable, ToolRun
from hgemm_packs.generator.workers import gpus
from tests import packs
from tests.generator.command import generate
from tests.generator.gates.test_sanitizer import item

FAR = time.monotonic() + 3600.0
BOTH = ("memcheck", "racecheck")


@dataclass
class StandIn:
    """Answers by the kernel's name: "bad" has findings, "hangs" never ends, "absent" is no tool."""

    takes_s: float = 0.0
    ran: list[tuple[str, tuple[str, ...], str | None]] = field(default_factory=list)
    now: list[str | None] = field(default_factory=list)
    most: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def __call__(
        self, items: Sequence[Item], tool: str, gpu: str | None, timeout_s: float, stop: Any
    ) -> ToolRun:
        names = tuple(entry.name for entry, _ in items)
        with self.lock:
            self.ran.append((tool, names, gpu))
            self.now.append(gpu)
            self.most = max(self.most, len(self.now))
        time.sleep(min(self.takes_s, timeout_s))
        with self.lock:
            self.now.remove(gpu)
        if "absent" in names:
            raise SanitizerUnavailable("no compute-sanitizer on the PATH")
        if any(name.startswith("hangs") for name in names) or self.takes_s > timeout_s:
            return ToolRun(tool, len(items), 0, -1, "no end")
        found = 3 * ("bad" in names and tool == "racecheck")
        return ToolRun(tool, len(items), 2 * len(items), found, "hazard" if found else "")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(sanitizer, "run_tool", made)
    return made


def swept(todo: Sequence[Batch], seats: Sequence[str] = ("0",), ends: float = FAR) -> list[Any]:
    lines: list[Any] = []
    lines.append(Sweep(seats, ends, lines.append).run(todo))
    return lines


def test_kernels_are_dealt_out_and_what_is_done_is_left_out() -> None:
    items = [(item(f"k{i}")[0]._replace(id=f"{i:064x}"), b"") for i in range(40)]
    made = batches(items, BOTH, set(), 4)
    assert {batch.tool for batch in made} == {*BOTH} and len(made) == 8
    assert [entry.name for entry, _ in made[1].items] == [f"k{i}" for i in range(1, 40, 4)]
    assert {len(batch.items) for batch in batches(items, BOTH, set(), 1000)} == {4}
    done = {(entry.id, "racecheck") for entry, _ in items[1:]}
    last = batches(items, ["racecheck"], done, 4)
    assert [[entry.name for entry, _ in batch.items] for batch in last] == [["k0"]]
    assert batches(items[1:], ["racecheck"], done, 4) == []


def test_a_finding_is_laid_to_its_kernel_and_others_stay_clean(tool: StandIn) -> None:
    items = [item(name) for name in ("good", "bad", "fine")]
    *lines, left = swept([Batch(tool, items) for tool in BOTH])
    assert left == 0
    assert {(line["kernel"], line["tool"], line["findings"], line["batch"]) for line in lines} == {
        *((name, "memcheck", 0, 3) for name in ("good", "bad", "fine")),
        *((name, "racecheck", 3 * (name == "bad"), 1) for name in ("good", "bad", "fine")),
    }
    assert [line["detail"] for line in lines if line["findings"]] == ["hazard"]
    assert {line["launches"] for line in lines} == {2, 6}


def test_as_many_processes_as_seats_each_on_its_gpu(tool: StandIn) -> None:
    tool.takes_s = 0.02
    todo = [Batch("memcheck", [item(f"k{i}")]) for i in range(24)]
    lines = swept(todo, ["0", "1", "0", "1"])
    assert len(lines) == 25 and tool.most == 4
    assert {gpu for _, _, gpu in tool.ran} == {"0", "1"}


def test_the_gpus_have_their_processes_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    assert sweep.seats(["2", "3"]) == ["2", "3"] * 12
    assert sweep.seats(["2"]) == ["2"] * 12 and sweep.seats([]) == []
    assert sweep.seats(["2", "3"], 3) == ["2", "3", "2"]
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert sweep.seats(["2", "3"]) == ["2", "3", "2", "3", "2"]


def test_at_the_deadline_the_rest_is_left(tool: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.takes_s = 0.2
    monkeypatch.setattr(sweep, "LEAST_S", 0.05)
    todo = [Batch("memcheck", [item(f"k{i}"), item(f"l{i}")]) for i in range(20)]
    *lines, left = swept(todo, ends=time.monotonic() + 0.5)
    assert len(lines) + left == 40 and 0 < len(lines) <= 4
    assert {line["findings"] for line in lines} == {0}, "a dropped process is no finding"


def test_a_run_in_which_nothing_ends_is_given_up(tool: StandIn) -> None:
    tool.takes_s = 0.05
    todo = [Batch("memcheck", [item(f"hangs{i}")]) for i in range(3 * FIRST)]
    with pytest.raises(Hopeless, match="no end"):
        swept(todo)
    assert len(tool.ran) < 3 * FIRST
    with pytest.raises(SanitizerUnavailable):
        swept([Batch("memcheck", [item("absent")])])


def test_the_command_goes_on_where_it_was(
    tool: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packs.write_good(tmp_path / "pack")
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(gpus, "names", lambda: ["0", "1"])
    words = ("sanitize", tmp_path / "pack", out, "--commit", "abc", "--processes", 2)
    assert generate(*words, "--tools", "memcheck").code == 0
    header, *lines = map(json.loads, out.read_text().splitlines())
    assert header["header"]["commit"] == "abc" and header["header"]["gpus"] == 2
    kernels = header["header"]["pack"]["kernels"]
    assert len(lines) == len({line["id"] for line in lines}) == kernels >= 2
    before = len(tool.ran)
    with out.open("a") as file:
        file.write('{"kernel": "torn')
    assert generate(*words).code == 0
    assert {name for name, _, _ in tool.ran[before:]} == {"racecheck"}
    before = len(tool.ran)
    assert generate(*words).code == 0 and len(tool.ran) == before
    # One that came to no end runs again, one with findings does not and is no success.
    records = [json.loads(line) for line in out.read_text().splitlines()]
    records[1] |= {"findings": -1}
    records[2] |= {"findings": 2}
    out.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert generate(*words).code == 1
    assert [names for _, names, _ in tool.ran[before:]] == [(records[1]["kernel"],)]


def test_covering_genomes_are_taken_as_a_pack_is(
    tool: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    family = FAMILIES["sm90_writebound"]
    (verdict, built) = covering_kernels.judge_genome(
        (family.name, next(family.space(layout="nt", dtype="f16")))
    )
    assert built is not None
    one = covering_kernels.Tried(built.entry_fields["genome"], verdict, built, 0)
    covering_kernels.write(tmp_path / "space", [(family, Known(family), [one])])
    monkeypatch.setattr(gpus, "names", lambda: ["0"])
    words = ("sanitize", tmp_path / "space", tmp_path / "out.jsonl", "--processes", 1)
    assert generate(*words).code == 0
    assert [names for _, names, _ in tool.ran] == [(built.entry_fields["name"],)] * 2
    (items, facts) = sanitize.kernels(tmp_path / "space")
    assert [cubin for _, cubin in items] == [built.cubin] and facts["kernels"] == 1
    assert items[0][0].id == built.entry_fields["id"]
