"""The protocol benchmarks from their command line to their file, on a stand-in for the GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.measure import chained, energy, pdl
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.measure import sustained
from hgemm_packs.generator.measure.sustained import Reading
from hgemm_packs.generator.workers import evaluators
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator import stand_in
from tests.generator.devices import protocol_device

TINY = Problem(64, 64, 64, "nn", "f16")
Line = dict[str, Any]


@pytest.fixture
def pack(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A pack of two kernels that the stand-in driver runs, the first of them a win on TINY, the
    second for dependent launch there."""
    protocol_device.install(machine, monkeypatch)
    monkeypatch.setattr(evaluators, "Local", lambda make, count, **_: Inline(make(0)))
    kernels = []
    for params in ("tma2_v1", "ptr_v1"):
        one = stand_in.kernel(params, "nn")
        kernels.append(packs.FakeBuilt(dict(one.fields), one.cubin))
    made = packs.source(kernels, [packs.row(TINY, kernels[0], dependent=kernels[1])])
    write_pack(tmp_path / "pack", made, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
    return tmp_path / "pack"


def ran(main: Callable[[Sequence[str]], int], pack: Path, *words: str) -> tuple[Line, list[Line]]:
    """Header and lines of one run of `main`, which must say that all went well."""
    out = pack.with_name("out.jsonl")
    assert main([str(pack), str(out), "--gpus", "1", "--commit", "abc", *words]) == 0
    headers, lines = campaign.lines([out])
    (header,) = headers
    assert [line["wrong"] for line in lines] == [[]]
    assert header["commit"] == "abc" and header["pack"]["kernels"] == 2
    assert header["device"]["uuid_hash"] and header["started"]
    return header, lines


def test_pdl(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, (line,) = ran(pdl.main, pack, "--target-us", "40")
    assert header["settings"]["target_us"] == 40.0
    assert (header["settings"]["blocks"], header["settings"]["budget_us"]) == (11, 12_500.0)
    assert (line["problem"], line["kernel"]) == ([64, 64, 64, "nn", "f16"], "fake_nn_ptr_v1")
    assert line["hot"] == {"torch": [10.0] * 11, "plain": [8.0] * 11, "pdl": [6.0] * 11}
    assert (line["wrong"], line["edges"]) == ([], protocol_device.EDGES)
    assert "wrong: []" in capsys.readouterr().out
    # What is on file is not measured again, and the table is printed all the same.
    assert pdl.main([str(pack), str(pack.with_name("out.jsonl")), "--gpus", "1"]) == 0


def test_chained(pack: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    header, (line,) = ran(chained.main, pack, "--count", "3", "--layers", "2")
    assert header["choice"] == {"count": 3, "layers": 2, "seed": 4}
    assert line["chained"]["elementwise"] == [2.0] * 11
    assert line["kernel"] == "fake_nn_tma2_v1"  # launched both ways, whatever else the row names
    own = json.loads(pack.with_name("out.summary.json").read_text(encoding="utf-8"))
    assert own["groups"]["tiny"]["problems"] == 1
    monkeypatch.setattr(chained.write, "__defaults__", (tmp_path / "chained.json",))
    assert chained.main(["--summary", str(pack.with_name("out.jsonl"))]) == 0
    assert json.loads((tmp_path / "chained.json").read_text(encoding="utf-8")) == own


def test_energy(pack: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def sustain(arm: Any, one: object, at: object, flop: float, seconds: float) -> Line:
        assert seconds == 0.5
        return sustained.report(20.0, flop, [Reading(1.3, None, 600.0, 1500, 60)])

    monkeypatch.setattr(sustained, "sustain", sustain)
    monkeypatch.setattr(energy, "LEAST_FLOP", 1.0)
    monkeypatch.setattr(energy, "LEAST_TILE", 1)
    header, (line,) = ran(energy.main, pack, "--seconds", "0.5", "--candidates", "2")
    assert (header["settings"]["seconds"], header["settings"]["candidates"]) == (0.5, 2)
    ours = {"fake_nn_tma2_v1", "fake_nn_ptr_v1"}
    assert set(line["sustained"]) == set(line["burst"]) == {"torch", "cublaslt", *ours}
    own = json.loads(pack.with_name("out.summary.json").read_text(encoding="utf-8"))
    assert own["groups"]["f16 nn"]["sustained_vs_torch"] == 1.0
    monkeypatch.setattr(energy.write, "__defaults__", (tmp_path / "energy.json",))
    assert energy.main(["--summary", str(pack.with_name("out.jsonl"))]) == 0
    assert json.loads((tmp_path / "energy.json").read_text(encoding="utf-8")) == own
