"""Races, finals and the jobs round them on the stand-in driver: real values, made-up times."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.devices import gpu
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.measure import ceilings, contest
from hgemm_packs.generator.measure.audit import Audit
from hgemm_packs.generator.store.findings import Field
from hgemm_packs.generator.tables import judge
from hgemm_packs.measure import baselines
from hgemm_packs.problem import Problem
from tests import fake_driver
from tests.generator import stand_in
from tests.generator.stand_in import GOOD, PROBLEM, run, words

# --- race, finals, confirm ------------------------------------------------------------------------


def test_race_keeps_the_best_and_the_samples_of_all(machine: SimpleNamespace) -> None:
    machine.clock.noise = 0.004
    wrong = stand_in.kernel("ptr_v1", "nt", fake_driver.image("kernel", "ptr_v1", "nn"))
    reply = run(machine, "race", *GOOD, wrong)
    assert [status for status, _ in words(reply)] == [
        Status.OK,
        Status.SLOWER,
        Status.SLOWER,
        Status.NUMERIC,
    ]
    samples = [reply.results[kernel.id].samples for kernel in GOOD]
    assert all(len(s["hot"]) == len(s["cold"]) >= 4 for s in samples)
    assert samples[1]["hot"][0] == pytest.approx(9.0, rel=0.03)
    assert {sets for _, sets, _ in machine.clock.captured} == {1, 5}


def test_race_times_what_no_cache_holds_once(machine: SimpleNamespace) -> None:
    reply = run(machine, "race", *GOOD, problem=Problem(64, 64, 32, "nt", "f16"))
    assert len(machine.clock.captured) == 3
    for result in reply.results.values():
        assert result.samples["cold"] == result.samples["hot"]


def test_finals_put_kernels_beside_both_baselines(machine: SimpleNamespace) -> None:
    reply = run(machine, "finals", *GOOD[:2])
    assert reply.baselines == {
        "torch": {"hot": (10.0,) * 11, "cold": (10.0,) * 11},
        "cublaslt": {"hot": (9.5,) * 11, "cold": (9.4,) * 11},
    }
    result = reply.results[GOOD[1].id]
    assert result.samples == {"hot": (9.0,) * 11, "cold": (9.0,) * 11}
    assert result.status is Status.OK and 1e-4 < result.evidence["error"] < 3e-4
    assert "audit_us" not in result.evidence
    assert (reply.evidence["seed"], reply.evidence["algorithms"]) == (5, 7)
    hot = reply.evidence["conditions"]["hot"]
    assert (hot["calls"], hot["sets"], hot["repeated"]) == (60, 1, 0)
    assert hot["sm_mhz"] == [1980.0] * 11 and hot["power_w"] == [500.0] * 11


def test_finals_time_what_no_cache_holds_once(machine: SimpleNamespace) -> None:
    """A confirmation audits launches under either protocol, and has samples of both."""
    large = Problem(64, 64, 32, "nt", "f16")
    reply = run(machine, "finals", *GOOD[:2], problem=large)
    assert len(machine.clock.captured) == 4
    conditions = reply.evidence["conditions"]
    assert conditions["cold"] == conditions["hot"] and conditions["hot"]["sets"] == 1
    for samples in (*reply.baselines.values(), *(r.samples for r in reply.results.values())):
        assert samples["cold"] == samples["hot"] and len(samples["hot"]) == 11
    machine.clock.captured.clear()
    run(machine, "confirm", *GOOD[:2], problem=large)
    assert len(machine.clock.captured) == 8


def test_finals_without_cublaslt(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "best_cublaslt", lambda *_, **__: None)
    reply = run(machine, "finals", GOOD[0])
    assert list(reply.baselines) == ["torch"] and reply.evidence["algorithms"] == 0


def test_blocks_in_which_the_clock_moved_are_repeated(machine: SimpleNamespace) -> None:
    """Two readings a block: the first and the third block move, the rest stand still."""
    machine.mhz[:] = [1980, 1800, 1980, 1980, 1980, 1950, 1980]
    reply = run(machine, "finals", GOOD[0])
    hot = reply.evidence["conditions"]["hot"]
    assert hot["repeated"] == 2
    assert hot["sm_mhz"] == [1980.0] * 11
    assert len(reply.results[GOOD[0].id].samples["hot"]) == 11


def test_a_clock_that_never_stands_still_does_not_hold_up_the_job(
    machine: SimpleNamespace,
) -> None:
    machine.mhz[:] = [1980, 1500] * 200
    reply = run(machine, "finals", GOOD[0])
    assert [reply.evidence["conditions"][p]["repeated"] for p in ("hot", "cold")] == [5, 5]
    assert judge.is_led(Field(PROBLEM, "finals", {}, {}, "2026-11-22", reply.evidence))
    assert len(reply.results[GOOD[0].id].samples["cold"]) == 11


def test_confirm_audits_timed_launches(machine: SimpleNamespace) -> None:
    reply = run(machine, "confirm", *GOOD[:2], seed=99)
    assert reply.evidence["seed"] == 99
    for kernel, us in zip(GOOD, (8.0, 9.0), strict=False):
        result = reply.results[kernel.id]
        assert result.status is Status.OK
        assert result.evidence["audit_us"] == {"hot": us, "cold": us}
        assert result.samples["hot"] == (us,) * 21


def _kept(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Computes only what is not there yet."""
    if bool(torch.isnan(c).any()):
        torch.mm(a, b, out=c)


def _one_row_less(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a[:-1], b, out=c[:-1])


def _right(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


@pytest.mark.parametrize(
    ("arm", "hot", "cold"),
    [(_right, False, False), (_kept, True, True), (_one_row_less, True, True)],
)
def test_the_audit_sees_what_is_not_computed_again(
    machine: SimpleNamespace, arm: Callable[..., None], hot: bool, cold: bool
) -> None:
    machine.clock.us[arm] = 7.0
    for seed in range(5):
        audit = Audit(PROBLEM, ["arm"], seed)
        contest.finals({"arm": arm}, PROBLEM, None, blocks=4, device=0, seed=seed, audit=audit)
        wrong = {protocol for protocol, finding in audit.findings["arm"] if finding.detail}
        assert wrong == {p for p, caught in (("hot", hot), ("cold", cold)) if caught}
        assert [p for p, _ in audit.findings["arm"]] == ["hot", "cold", "cold", "cold"]
        assert audit.detail("arm").startswith("timed launch, hot: ") is hot


# --- gate, noise, ceilings ------------------------------------------------------------------------


def test_gate(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, kept = [], []

    def check(entry: Any, launch: Any, place: Any, sm_count: int, seed: int, ctas: int) -> Any:
        asked.append((entry.name, str(place), sm_count, seed, ctas))
        if entry.param_layout == "tma2_v1":
            raise numeric.NumericError("depth 64x32x8: 3 elements wrong or unwritten")
        return numeric.Numeric(2.1e-4, 1234)

    def keep(entry: Any, kernel: Any, index: int, seed: int) -> None:
        kept.append((entry.name, kernel, index, seed))
        if entry.name == GOOD[2].fields["name"]:
            raise numeric.NumericError("C held an old product: 3 elements differ")

    monkeypatch.setattr(numeric, "check", check)
    monkeypatch.setattr(gpu.state, "check_kernel", keep)
    reply = run(machine, "gate", *GOOD[:3], problem=None, seed=77)
    asked, third = asked[:2], words(reply)[2]
    assert third == (Status.NUMERIC, "C held an old product: 3 elements differ")
    loaded = [machine.device._kernels[GOOD[place].id].arm.kernel for place in (0, 2)]
    names = [str(GOOD[place].fields["name"]) for place in (0, 2)]
    given = [(name, kernel, 0, 77) for name, kernel in zip(names, loaded, strict=True)]
    assert kept == given, "what is wrong meets no further gate"
    sm_count, ctas = machine.device.facts.sm_count, machine.device._kernels[GOOD[0].id].max_ctas
    assert asked == [
        (name, "cuda:0", sm_count, 77, ctas) for name in ("fake_nt_ptr_v1", "fake_nt_tma2_v1")
    ]
    assert ctas > 0
    assert reply.results[GOOD[0].id].evidence == {"max_rel_err": 2.1e-4, "shapes_tested": 1234}
    assert words(reply)[1] == (Status.NUMERIC, "depth 64x32x8: 3 elements wrong or unwritten")


def test_noise(machine: SimpleNamespace) -> None:
    machine.clock.noise = 0.01
    reply = run(machine, "noise")
    assert reply.results == {}
    assert {arm: {p: len(s) for p, s in by.items()} for arm, by in reply.baselines.items()} == {
        "torch": {"hot": 21, "cold": 21},
        "again": {"hot": 21, "cold": 21},
    }
    for protocol in ("hot", "cold"):
        value, low, high = reply.evidence[protocol]
        assert 0.97 < low < value < high < 1.03


def test_ceilings_become_facts(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "measure_streams", lambda device: {"read": 4300.0})
    monkeypatch.setattr(ceilings, "measure_gemms", lambda device, seed: {"large": 812.0})
    reply = run(machine, "ceilings", problem=None)
    facts = machine.device.facts
    assert (facts.peak_tflops, facts.peak_gbps) == (
        pytest.approx(4096 * facts.sm_count * 1980e-6),
        4300.0,
    )
    assert reply.evidence["gemm_tflops"] == 812.0


def test_blocks_of_long_problems() -> None:
    short, long = Problem(512, 512, 512, "nt", "f16"), Problem(8192, 8192, 8192, "nt", "f16")
    kinds = ("finals", "confirm", "noise")
    assert [contest.blocks(kind, short) for kind in kinds] == [11, 21, 21]
    assert [contest.blocks(kind, long) for kind in kinds] == [7, 12, 12]
