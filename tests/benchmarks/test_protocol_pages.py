"""What pages and summary make of dependent launch, chained layers and sustained runs."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import chained, sustained
from hgemm_packs.generator.compile import pack_kernels, pack_writer
from hgemm_packs.generator.store import shards
from tests import packs
from tests.generator import called
from tests.generator.campaigns.test_protocol_figures import energy_line, line, us


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return importlib.import_module("benchmarks.publish.h200_page")


def documents() -> dict[str, Any]:
    chain = us(6.0, 5.0, 4.0, elementwise=2.0)
    one = line((64, 64, 64), "a", hot=us(4, 2, 1), cold=us(4, 3.98, 2), chained=chain)
    layer = line((16, 4096, 4096), "a", "nt", hot=us(4, 2, 1), cold=us(4, 2, 2), chained=chain)
    bad = {
        **one,
        "wrong": ["chained: pdl differs from plain"],
        "problem": [64, 64, 128, "nn", "f16"],
    }
    header = {"commit": "c", "started": "now", "protocol": "p", "settings": {}}
    return {
        "chained": chained.summary([header], [one, layer, bad]),
        "energy": sustained.summary([header], [energy_line()]),
    }


UNMEASURED = {"groups": None, "reason": "not measured yet", "wrong": 0}


def facts(page: ModuleType, **changes: Any) -> dict[str, Any]:
    found = {name: page.summary._groups(each) for name, each in documents().items()}
    launch = {"rows": 2800, "dependent": 1600, "another": 700}
    return {"grid": {}, "llm": {}, "launch": launch, **found, **changes}


def test_the_summary_has_means_and_how_they_were_measured(page: ModuleType) -> None:
    found = facts(page)["chained"]
    assert set(found) == {"groups", "protocol", "commit", "started", "wrong"}
    assert (found["wrong"], found["commit"]) == (1, "c")
    assert set(found["groups"]) == {"tiny", "grid", "layers", "layers, M <= 256"}
    assert page.summary._groups(page.summary.UNMEASURED) == UNMEASURED


def test_chained_is_told_by_regime(page: ModuleType) -> None:
    text = page.describe_chains(facts(page))
    rows = [each.split(" | ") for each in text.splitlines() if each.startswith("| ")]
    assert [each[0] for each in rows[2:]] == ["| tiny", "| grid", "| layers, M <= 256", "| layers"]
    assert rows[2][1:] == [
        *("1", "2.000 / 4.000", "1.005 / 2.000", "1.333 / 2.000", "1.200 / 1.500"),
        *("42% / 50%", "- / 100% |"),
    ]
    assert "not counted: 1.\n" in text and "plots/chained.png" in text
    text = page.describe_chains(facts(page, chained=UNMEASURED))
    assert text == "`generate measure chained`: not measured yet.\n"


def test_energy_is_told_by_type_and_layout(page: ModuleType) -> None:
    text = page.energy(facts(page))
    (row,) = [each for each in text.splitlines() if each.startswith("| f16 nn")]
    assert row.split(" | ")[1:] == [
        *("1", "1.067", "1.062", "1.050", "0.938 / 1.057", "1.127", "1"),
        *("1.025, 1.025", "0 |"),
    ]
    assert "plots/energy.png" in text
    assert "not measured yet" in page.energy(facts(page, energy=UNMEASURED))


def test_in_few_words(page: ModuleType) -> None:
    text = page.protocol_texts.headline(facts(page))
    assert text.splitlines() == [
        "- Between torch's elementwise kernels (1 problems of the grid): 1.333x launched plainly, "
        "as `matmul` does there, 2.000x with dependent launch; alone 2.000x hot, 1.005x cold.",
        "- Between torch's elementwise kernels (1 layers of language models): 1.333x launched "
        "plainly, as `matmul` does there, 2.000x with dependent launch; alone 2.000x hot, 2.000x "
        "cold.",
        "- For long, from 1e11 operations (f16 nn, 1 problems with a confirmed kernel): 1.062x "
        "torch, 1.127x its TFLOPS per watt.",
    ]
    sets = {
        "fp16": {"nn": {"served": 2, "called": 2}, "nt": {"served": 7, "called": 5}},
        "bf16": {"nt": {"served": 3, "called": 0}},
    }
    text = page.protocol_texts.describe_dependent(facts(page, grid=sets))
    assert text.splitlines() == [
        "1600 of the 2800 problems with a kernel have one that is launched with programmatic "
        "dependent launch where the call follows another kernel of ours in a CUDA graph, 700 of "
        "them another kernel than for ordinary launches: it measured faster than the ordinary "
        "launch between other products. All other launches are plain. Calls of `matmul` that chose "
        "nothing say what it is worth; where any of their graphs was below 0.99 of torch, the row "
        "has no such kernel any more.",
        "In these chains no product reads what the one before wrote, nor what that one reads where "
        "L2 does not hold the operands of both; kernels marked `reads_ahead` then load their "
        "operands while it still runs, and where they also let the next one start early, as many "
        "run at once as fit: a figure is the chain's time by its calls, not how long one call "
        "takes. Calls that run at once share operands; so no hot time counts as less than A, B and "
        "C take at 6.1 TB/s, the most that L2 gave a kernel alone. Where a product reads the "
        "output of one that may still run, it is launched plainly.",
        "Rows that count what their confirmation measured, as nobody has called them so yet: 2 of "
        "grid fp16 nt, 3 of grid bf16 nt.",
    ]
    del sets["bf16"], sets["fp16"]["nt"]
    assert "confirmation" not in page.protocol_texts.describe_dependent(facts(page, grid=sets))


def test_nothing_is_said_per_watt_where_no_energy_was_read(page: ModuleType) -> None:
    power = facts(page)["energy"]
    power["groups"]["f16 nn"]["per_watt_vs_torch"] = None
    text = page.protocol_texts.headline(facts(page, energy=power))
    assert text.splitlines()[-1].endswith("confirmed kernel): 1.062x torch.")


def test_plots_of_what_was_measured(page: ModuleType, tmp_path: Path) -> None:
    draw = page.h200_plots.draw_protocols
    paths = list(draw(documents(), set(), tmp_path))
    assert [path.name for path in paths] == ["chained.png", "energy.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    unmeasured = page.summary.UNMEASURED
    assert list(draw({"chained": unmeasured, "energy": unmeasured}, set(), tmp_path)) == []


def test_files_of_a_campaign_are_read_without_headers(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of what a run appended that was killed, packed or not."""
    summary = page.summary
    monkeypatch.setattr(summary, "RESULTS", tmp_path)
    assert summary.protocol_files() == dict.fromkeys(("chained", "energy"), summary.UNMEASURED)
    assert summary.chain_records() == summary.energy_lines() == []
    one = line((64, 64, 64), "a", hot=us(4, 2, 1))
    error = {"problem": one["problem"], "kernel": "a", "fields": one["fields"], "error": "no"}
    lines = [{"header": {}}, one, {**error, "blamed": False}, {**error, "blamed": True}]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (tmp_path / "sustained").mkdir()
    for name in ("public", "mixed", "published", "choice", "contenders"):
        (tmp_path / "dependent" / name).mkdir(parents=True)
    (tmp_path / "dependent" / "public" / "01.jsonl").write_text(text + '{"problem": [64')
    (tmp_path / "dependent" / "public" / "02.jsonl.zip").write_bytes(shards.pack(lines))
    chose = {**one, "kernel": "b"}  # by these its launch was chosen: no figure of it
    for name in ("mixed", "published", "choice", "contenders"):
        (tmp_path / "dependent" / name / "01.jsonl").write_text(json.dumps(chose) + "\n")
    (tmp_path / "dependent" / "mixed" / "02.jsonl.zip").write_bytes(shards.pack(lines))
    assert summary.chain_records() == [one, lines[3], one, lines[3]]
    (tmp_path / "sustained" / "01.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in [{"header": {}}, energy_line(), energy_line()])
    )
    assert summary.energy_lines() == [energy_line()]
    (tmp_path / "energy.json").write_text(json.dumps(documents()["energy"]))
    assert summary.protocol_files()["energy"]["groups"]["f16 nn"]["problems"] == 1


def test_rows_with_a_dependent_kernel_are_counted_and_those_without_a_figure_listed(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [
        called.row(packs.WIN, called.A, called.B, lcb=1.4),
        called.row(packs.WIN_SMALL, called.A, called.A, lcb=1.4),
        called.row(packs.NOISE, called.C),
        called.row(packs.CUBLAS, None),
    ]
    summary = page.summary
    launched = summary.dependent_facts(called.source(*rows))
    assert launched == {"rows": 3, "dependent": 2, "another": 1}
    # NOISE, whose bound is in the noise, is no row that may be written.
    rows.pop(2)
    written = called.source(*rows)
    pack_writer.write_source(tmp_path / "table.json", replace(written, kernels=written.kernels[:2]))
    monkeypatch.setattr(summary, "MANIFEST", tmp_path / "table.json")
    monkeypatch.setattr(summary, "RESULTS", tmp_path)
    line = json.dumps(called.line(packs.WIN, [called.A, called.B])) + "\n"
    for name in ("contenders", "mixed", "public"):
        (tmp_path / "dependent" / name).mkdir(parents=True)
    for name in ("contenders", "mixed"):  # by these it was chosen
        (tmp_path / "dependent" / name / "01.jsonl").write_text(line)
    mine, other = (packs.WIN, "name_b"), (packs.WIN_SMALL, "name_a")
    listed = tmp_path / "pairs.jsonl"
    for lines, left in (("", {mine, other}), (line, {other})):
        (tmp_path / "dependent" / "public" / "02.jsonl").write_text(lines)
        listed.write_text(summary.list_unmeasured())
        assert set(pack_kernels.read(str(listed))) == left
