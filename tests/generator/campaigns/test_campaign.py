"""Runs over many problems: what is on file is not measured again, however the last run ended."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import CampaignOptions, ProblemFilter, Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator import answering
from tests.generator.answering import BLAMED_M, DIES_M, ERROR_M, FAILED_M, LOST_M, Answering


def task(m: int, name: str = "k", **fields: Any) -> Task:
    problem = Problem(m, 8, 8, "nn", "f16")
    return Task(
        "pdl",
        problem,
        lambda: (CompiledKernel({"id": name, "name": name}, b""),),
        {"problem": pack_kernels.problem_values(problem), "kernel": name, **fields},
    )


def run(
    out: Path, tasks: Sequence[Task], device: Answering, **options: Any
) -> campaign.CampaignCounts:
    return campaign.run(out, tasks, Inline(device), {"commit": "c"}, **options)


def test_a_line_says_what_was_asked_and_answered(tmp_path: Path) -> None:
    out, device, ticks = tmp_path / "new" / "o.jsonl", Answering(), []
    tally = run(out, [task(64), task(72, "q")], device, tick=lambda *now: ticks.append(now))
    assert (tally.written, tally.failed, tally.left) == (2, 0, 0)
    assert ticks == [(0, 2), (1, 2), (2, 2)]
    header, *rest = map(json.loads, out.read_text().splitlines())
    assert header["header"]["commit"] == "c" and header["header"]["device"]["name"] == "Fake 1"
    assert rest == [
        {
            "problem": [m, 8, 8, "nn", "f16"],
            "kernel": name,
            "fields": ["problem", "kernel"],
            "seed": job.seed,
            "gpu": "u0",
            "hot": {"torch": [float(m)]},
            "ran": [name],
        }
        for m, name, job in zip((64, 72), "kq", device.asked, strict=True)
    ]


def test_what_is_on_file_is_not_measured_again(tmp_path: Path) -> None:
    """Nor is a kernel that killed its process; other failures are tried again. A line that a killed
    run tore is no line."""
    out, first = tmp_path / "o.jsonl", Answering()
    tasks = [task(64), task(ERROR_M), task(BLAMED_M), task(72)]
    tally = run(out, tasks, first)
    assert (tally.written, tally.failed) == (4, 2) and "no answer" in tally.words
    with out.open("rb+") as file:
        file.truncate(out.stat().st_size - 7)
    second = Answering()
    assert run(out, [*tasks, task(64, "other")], second).written == 3
    assert [job.problem.m for job in second.asked if job.problem] == [ERROR_M, 72, 64]
    headers, lines = campaign.lines([out])
    assert len(headers) == 2
    assert sorted((line["problem"][0], line["kernel"]) for line in lines) == [
        (64, "k"),
        (64, "other"),
        (72, "k"),
    ]
    assert all(json.loads(text) for text in out.read_text().splitlines())
    before = out.read_bytes()
    assert run(out, [task(64)], Answering()).written == 0 and out.read_bytes() == before


def test_a_job_that_failed_has_no_figures(tmp_path: Path) -> None:
    """Whoever says so, the device or what it runs in; it is tried again."""
    out = tmp_path / "o.jsonl"
    tally = run(out, [task(FAILED_M), task(64)], Answering())
    assert (tally.written, tally.failed) == (2, 1) and tally.words.endswith(": no memory")
    assert [line["problem"][0] for line in campaign.lines([out])[1]] == [64]
    assert run(out, [task(FAILED_M), task(64)], Answering()).written == 1


def test_the_last_line_of_a_task_stands(tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    run(out, [task(64)], Answering())
    again = json.loads(out.read_text().splitlines()[1]) | {"hot": {"torch": [1.0]}}
    with out.open("a") as file:
        file.write(json.dumps(again) + "\n")
    assert [line["hot"]["torch"] for line in campaign.lines([out])[1]] == [[1.0]]


def test_nothing_is_begun_after_the_deadline(tmp_path: Path) -> None:
    out, device = tmp_path / "o.jsonl", Answering()
    tally = run(out, [task(64), task(72)], device, deadline_s=0.0)
    assert (tally.written, tally.left) == (0, 2) and device.asked == []
    assert campaign.lines([out])[1] == []


def test_a_run_that_only_fails_ends(tmp_path: Path) -> None:
    tasks = [task(ERROR_M, f"k{i}") for i in range(20)]
    device = Answering()
    with pytest.raises(campaign.Hopeless, match="RuntimeError: no"):
        run(tmp_path / "o.jsonl", tasks, device)
    assert len(device.asked) <= campaign.FIRST + 2
    # One right answer, and the others' failures are their own.
    tally = run(tmp_path / "p.jsonl", [task(64), *tasks], Answering())
    assert (tally.written, tally.failed) == (21, 20)


def test_a_campaign_deals_to_processes_and_survives_their_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where GPUs are locked
    packs.write_good(tmp_path / "pack")
    pack, out = Packed(tmp_path / "pack"), tmp_path / "o.jsonl"
    plan = CampaignOptions(out, gpus=2, commit="abc")
    tasks = [task(m) for m in (64, LOST_M, 72, DIES_M, 80)]
    assert not campaign.measure(plan, pack, tasks, answering.make, {"benchmark": "b"}).whole
    headers, lines = campaign.lines([out])
    assert {line["problem"][0] for line in lines} == {64, 72, 80}
    assert {line["gpu"] for line in lines} == {"u0"}
    assert headers[0]["commit"] == "abc" and headers[0]["pack"]["wins"] == 2
    bad = [json.loads(text) for text in out.read_text().splitlines()]
    words = {line["problem"][0]: line["error"] for line in bad if "error" in line}
    assert "device lost" in words[LOST_M] and "status 3" in words[DIES_M]
    assert campaign.measure(plan, pack, tasks, answering.make, {"benchmark": "b"}).whole


# --- packs ----------------------------------------------------------------------------------------


@pytest.fixture
def pack(tmp_path: Path) -> Packed:
    """The good pack, with another kernel for dependent launch in one row."""
    kernels = packs.good_kernels()
    first, *rows = packs.good_rows(kernels)
    first = first._replace(dependent=kernels[2].entry_fields["id"])
    packs.write_good(tmp_path / "pack", table=(first, *rows))
    return Packed(tmp_path / "pack")


def test_a_pack_gives_its_wins_and_kernels(pack: Packed) -> None:
    assert pack.wins == {packs.WIN: "k_tma2", packs.WIN_SMALL: "k_direct"}
    assert pack.dependent == {packs.WIN: "k_tma3"}
    assert packs.CUBLAS in pack.measured and len(pack.measured) == 3
    kernel = pack.kernel("k_tma2")
    assert kernel.fields["param_layout"] == "tma2_v1" and len(kernel.cubin) == 1300
    assert pack.kernel(kernel.id[:12]).cubin == kernel.cubin
    with pytest.raises(PackError, match="names 0 kernels"):
        pack.kernel("absent")
    assert set(pack.list_admitting(packs.WIN)) == {"k_direct", "k_tma2", "k_tma3"}
    assert pack.list_admitting(packs.WIN, 128 * 64 + 1) == []


def test_a_problem_has_the_kernel_asked_for_or_the_tables(pack: Packed) -> None:
    asked = [(packs.WIN, None), (packs.CUBLAS, None), (packs.CUBLAS, "k_tma3")]
    assert pack.choose_kernels(asked, pack.wins) == [
        (packs.WIN, "k_tma2"),
        (packs.CUBLAS, "k_tma3"),
    ]
    asked.append((packs.WIN_SMALL, None))  # has none for dependent launch
    assert pack.choose_kernels(asked, pack.dependent) == [
        (packs.WIN, "k_tma3"),
        (packs.CUBLAS, "k_tma3"),
    ]
    with pytest.raises(PackError, match="has layout nn, not tt"):
        pack.choose_kernels([(Problem(64, 64, 64, "tt", "f16"), "k_tma3")], pack.wins)


def test_problems_are_read_from_lines_and_files(tmp_path: Path, pack: Packed) -> None:
    listing = tmp_path / "list.jsonl"
    listing.write_text(
        '{"header": {}}\n[64, 64, 8, "nn", "f16"]\n\n[64, 64, 8, "nt", "bf16", "k_tma3"]\n'
        '{"problem": [8, 8, 8, "nn", "f16"], "kernel": "k", "hot": {}}\n'
        '{"problem": [16, 8, 8, "nn", "f16"]}\n'
    )
    assert pack_kernels.read(str(listing)) == [
        (Problem(64, 64, 8, "nn", "f16"), None),
        (Problem(64, 64, 8, "nt", "bf16"), "k_tma3"),
        (Problem(8, 8, 8, "nn", "f16"), "k"),
        (Problem(16, 8, 8, "nn", "f16"), None),
    ]
    with pytest.raises(ValueError, match="is not"):
        pack_kernels.parse([1, 2, 3])
    mine = tmp_path / "mine.toml"
    mine.write_text('[[problem]]\nm = 8\nn = 8\nk = 8\nlayout = "nn"\n')
    assert pack_kernels.read(str(mine)) == [(Problem(8, 8, 8, "nn", "f16"), None)]


def test_a_selection_is_of_the_table_or_of_a_list(tmp_path: Path, pack: Packed) -> None:
    whole = campaign.select(pack, ProblemFilter())
    assert len(whole) == 3 and {p for p, _ in whole} == set(pack.measured)
    tiny = ProblemFilter("grid", ["nn"], ["f16"], ["tiny"])
    grid = campaign.select(pack, tiny)
    assert len(grid) == len(set(grid)) == 120
    assert {(p.layout, p.dtype) for p, _ in grid} == {("nn", "f16")}
    # The first tenth of a run is of all sizes.
    flop = [p.m * p.n * p.k for p, _ in grid]
    assert min(flop[:12]) == min(flop) and max(flop[:12]) > 0.5 * max(flop)
    seventh = campaign.select(pack, ProblemFilter("grid", regimes=["tiny"], every=7))
    assert len(seventh) == -(-480 // 7)
