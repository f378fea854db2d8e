"""`generate measure` from the command line to the file of lines, on a stand-in for the GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns import sustained as campaigns_sustained
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.measure import sustained
from hgemm_packs.generator.measure.sustained import Reading
from hgemm_packs.generator.workers import evaluators
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator import stand_in
from tests.generator.command import generate
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


def run(protocol: str, pack: Path, *words: object) -> tuple[Line, list[Line], str]:
    """Header, lines and words of one run of a verb, which must say that all went well."""
    out = pack.with_name("out.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "gpus_here", lambda asked: 1)
        answer = generate("measure", protocol, pack, out, "--commit", "abc", *words)
    assert (answer.code, answer.err) == (0, "")
    headers, lines = campaign.lines([out])
    (header,) = headers
    assert [line["wrong"] for line in lines] == [[]]
    assert header["commit"] == "abc" and header["pack"]["kernels"] == 2
    assert header["device"]["uuid_hash"] and header["started"]
    return header, lines, answer.out


def test_measure_dependent(pack: Path) -> None:
    header, (line,), said = run("dependent", pack, "--target-us", "40")
    assert header["benchmark"] == "pdl"  # as committed lines have it
    assert header["settings"]["target_us"] == 40.0
    assert (header["settings"]["blocks"], header["settings"]["budget_us"]) == (11, 12_500.0)
    assert (line["problem"], line["kernel"]) == ([64, 64, 64, "nn", "f16"], "fake_nn_ptr_v1")
    assert line["hot"] == {"torch": [10.0] * 11, "plain": [8.0] * 11, "pdl": [6.0] * 11}
    assert (line["wrong"], line["edges"]) == ([], protocol_device.EDGES)
    assert "wrong: []" in said and "f16 nn tiny" in said
    # What is on file is not measured again, and the table is printed all the same.
    assert run("dependent", pack)[1] == [line]


def test_measure_chained(pack: Path) -> None:
    header, (line,), _ = run("chained", pack, "--count", "3", "--layers", "2")
    assert header["choice"] == {"count": 3, "layers": 2, "seed": 4}
    assert line["chained"]["elementwise"] == [2.0] * 11
    assert line["kernel"] == "fake_nn_tma2_v1"  # launched both ways, whatever else the row names
    own = json.loads(pack.with_name("out.summary.json").read_text(encoding="utf-8"))
    assert own["groups"]["tiny"]["problems"] == 1


def test_measure_sustained(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sustain(arm: Any, one: object, at: object, flop: float, seconds: float) -> Line:
        assert seconds == 0.5
        return sustained.report(20.0, flop, [Reading(1.3, None, 600.0, 1500, 60)])

    monkeypatch.setattr(sustained, "sustain", sustain)
    monkeypatch.setattr(campaigns_sustained, "LEAST_TILE", 1)
    words = ("--seconds", "0.5", "--contenders", "2", "--least-flop", "1")
    header, (line,), _ = run("sustained", pack, *words)
    assert header["benchmark"] == "energy"  # as committed lines have it
    assert (header["settings"]["seconds"], header["settings"]["candidates"]) == (0.5, 2)
    ours = {"fake_nn_tma2_v1", "fake_nn_ptr_v1"}
    assert set(line["sustained"]) == set(line["burst"]) == {"torch", "cublaslt", *ours}
    own = json.loads(pack.with_name("out.summary.json").read_text(encoding="utf-8"))
    assert own["groups"]["f16 nn"]["sustained_vs_torch"] == 1.0


@pytest.mark.parametrize("protocol", ["dependent", "sustained", "mixed", "public", "chained"])
def test_measure_without_a_gpu_is_one_line(protocol: str, tmp_path: Path) -> None:
    code, out, err = generate("measure", protocol, tmp_path / "pack", tmp_path / "out.jsonl")
    assert (code, out) == (2, "") and not (tmp_path / "out.jsonl").exists()
    assert (
        err == "hgemm-packs: no CUDA device; `hgemm-packs generate doctor` says what is missing\n"
    )
