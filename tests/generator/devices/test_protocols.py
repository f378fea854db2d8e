"""The device of the protocol benchmarks: which launches it times, and what it finds wrong."""

from __future__ import annotations

import pickle
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs.generator.core.spec import CompiledKernel, DeviceLost, Job, Reply
from hgemm_packs.generator.devices import protocols
from hgemm_packs.generator.devices.protocols import Protocols, ProtocolSettings
from hgemm_packs.generator.measure import sustained
from hgemm_packs.generator.measure.sustained import Reading
from hgemm_packs.measure import timing
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.problem import Problem
from tests.generator import stand_in
from tests.generator.devices import protocol_device
from tests.generator.devices.protocol_device import EDGES
from tests.generator.stand_in import GOOD, PROBLEM

SETTINGS = ProtocolSettings(blocks=5, target_us=40.0)


@pytest.fixture
def device(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Protocols:
    protocol_device.install(machine, monkeypatch)
    return protocols.make(0, SETTINGS)


def run(
    device: Protocols, kind: str, *kernels: CompiledKernel, problem: Problem = PROBLEM
) -> Reply:
    return device.run(Job(kind, problem, kernels, 11))


def test_a_record_is_launched_as_asked_whatever_it_says(
    device: Protocols, machine: SimpleNamespace
) -> None:
    one = operands(PROBLEM, "cpu")[0]
    together = stand_in.kernel("tma2_ws_v2")
    for kernel in (GOOD[0], GOOD[1], together):
        for pdl in (True, False, True):
            one.c.fill_(torch.nan)
            device.arm(kernel, pdl)(one.a, one.b, one.c)
            assert machine.control.pdl == pdl
            assert machine.control.cooperative == (kernel is together)
            assert torch.allclose(
                one.c.float(), one.a.float() @ one.b.float(), rtol=2e-3, atol=0.02
            )
    assert machine.control.loads == 6  # each once with, once without


def test_pdl_times_three_arms_hot_and_cold(device: Protocols) -> None:
    line = run(device, "pdl", GOOD[1]).evidence
    for protocol in ("hot", "cold"):
        assert line[protocol] == {"torch": [10.0] * 5, "plain": [8.0] * 5, "pdl": [6.0] * 5}
    assert (line["wrong"], line["edges"]) == ([], EDGES)
    assert line["conditions"]["hot"]["sets"] == 2  # of the stand-in's L2, which holds one
    assert line["conditions"]["cold"]["sets"] > 3
    assert line["conditions"]["hot"]["sm_mhz"] == [1980.0] * 5


def test_a_problem_larger_than_the_caches_is_measured_once(
    device: Protocols, machine: SimpleNamespace
) -> None:
    line = run(device, "pdl", GOOD[0], problem=Problem(64, 64, 64, "nt", "f16")).evidence
    assert line["cold"] == line["hot"] and line["conditions"]["cold"] == "as hot"


def test_chained_has_the_elementwise_kernel_alone(device: Protocols) -> None:
    line = run(device, "chained", GOOD[2]).evidence
    assert line["chained"] == {
        "torch": [10.0] * 5,
        "plain": [8.0] * 5,
        "pdl": [6.0] * 5,
        "elementwise": [2.0] * 5,
    }
    assert line["wrong"] == [] and line["conditions"]["chained"]["sets"] == 8
    assert set(line["hot"]) == {"torch", "plain", "pdl"}


def test_a_pdl_launch_with_other_bits_is_named_by_protocol(device: Protocols) -> None:
    def early(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.mm(a, b, out=c)
        c[0, 0] += 1.0

    device._launches[GOOD[0].id, True] = early  # type: ignore[assignment]
    wrong = run(device, "pdl", GOOD[0]).evidence["wrong"]
    assert [text.split(":")[0] for text in wrong if "differs" in text] == ["hot", "cold", "chained"]
    assert any("elements wrong" in text for text in wrong)


def test_what_does_not_kill_the_device_is_an_error_of_its_job(
    device: Protocols, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(timing, "compare", compare)
        assert run(device, "pdl", GOOD[0]).evidence == {
            "error": "OutOfMemoryError: CUDA out of memory"
        }
        machine.lost = "illegal address"
        with pytest.raises(DeviceLost, match="out of memory"):
            run(device, "pdl", GOOD[0])
    with pytest.raises(ValueError, match="known: pdl, chained, energy"):
        run(device, "screen", GOOD[0])


def test_a_worker_is_sent_its_settings(device: Protocols) -> None:
    made = pickle.loads(pickle.dumps(partial(protocols.make, settings=SETTINGS)))(0)
    assert isinstance(made, Protocols) and made._settings == SETTINGS


def test_long_problems_get_fewer_blocks() -> None:
    counts = [
        ProtocolSettings().blocks_for(Problem(n, n, n, "nn", "f16"), 3) for n in (64, 8192, 16384)
    ]
    assert counts == [11, 5, 5]
    assert (
        ProtocolSettings(budget_us=1e6).blocks_for(Problem(8192, 8192, 8192, "nn", "f16"), 3) == 11
    )


def test_energy_shortlists_right_kernels_and_sustains_each_arm(
    device: Protocols, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first kernel takes part although it is the slowest; a wrong one does not."""
    us = {GOOD[0].id: 9.0, GOOD[1].id: 8.0, GOOD[2].id: 7.0, "wrong": 1.0}
    wrong = CompiledKernel({**GOOD[0].fields, "id": "wrong", "name": "wrong"}, b"")
    kernels = [*GOOD, wrong]
    for kernel in GOOD:
        device.arm(kernel, False)
    device._launches["wrong", False] = lambda a, b, c: c.zero_()  # type: ignore[assignment]
    names = {device._launches[k.id, False]: us[k.id] for k in kernels}
    real = protocols.Single

    def single(arm: Any, one: Operands) -> Any:
        made = real(arm, one)
        made.us = lambda: names[arm]
        return made

    seen = []

    def sustain(arm: Any, one: Operands, at: object, flop: float, seconds: float) -> Any:
        seen.append(names.get(arm, "library"))
        return sustained.report(20.0, flop, [Reading(1.0, None, 600.0, 1500, 60)])

    monkeypatch.setattr(protocols, "Single", single)
    monkeypatch.setattr(sustained, "sustain", sustain)
    renamed = [
        CompiledKernel({**k.fields, "name": f"k{i}"}, k.cubin) if k is not wrong else k
        for i, k in enumerate(kernels)
    ]
    device._settings = ProtocolSettings(blocks=5, candidates=2)
    line = run(device, "energy", *renamed).evidence
    assert list(line["sustained"]) == ["torch", "cublaslt", "k0", "k2"]
    assert sorted(line["order"]) == sorted(line["sustained"])
    assert sorted(map(str, seen)) == ["7.0", "9.0", "library", "library"]
    assert line["burst"]["k2"] == [8.0] * 11 and line["burst"]["torch"] == [10.0] * 11
    flop = 2 * 24 * 16 * 32
    assert line["sustained"]["torch"]["tflops"] == round(flop / 20.0 * 1e-6, 2)
    assert line["sustained"]["torch"]["power_from"] == "power"
    assert len(line["wrong"]) == 1 and line["wrong"][0].startswith("wrong: ")


# --- sustained runs -------------------------------------------------------------------------------


def test_power_is_the_slope_of_the_counter_at_its_steps() -> None:
    # The counter moves every 20 ms, is read every 5 ms, and the driver's mean lags behind.
    readings = [Reading(0.005 * i, 1000.0 + 14.0 * (i // 4), 500.0, 1400, 60) for i in range(60)]
    watts, source = sustained.power(readings)
    assert (watts, source) == (pytest.approx(700.0), "energy")
    assert sustained.power(readings[:25])[1] == "energy"
    # Too short a slope, and a mean over a second of which another arm had its part.
    assert sustained.power(readings[:16]) == sustained.power([]) == (None, None)
    without = [each._replace(joules=None, t=each.t + 0.8) for each in readings]
    assert sustained.power(without) == (500.0, "power")
    assert sustained.report(10.0, 1e9, readings[:16])["tflops_per_watt"] is None


def test_only_the_second_half_of_a_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that takes 100 us a call while it is cool and 125 us from a third of a second on."""
    clock = SimpleNamespace(host=0.0, device=0.0)

    def read() -> Any:
        settled = clock.host >= 0.3
        mhz = 1400 if settled else 1700
        return SimpleNamespace(power_w=690.0, sm_mhz=mhz, temperature_c=60)

    class Replay:
        def __init__(self, arm: object, sets: object, calls: int) -> None:
            self.calls = calls

        def queue(self) -> None:
            clock.device = max(clock.device, clock.host)
            clock.device += self.calls * (100e-6 if clock.device < 0.3 else 125e-6)
            clock.host += 20e-6
            ahead = (clock.device - clock.host) / (self.calls * 125e-6)
            assert ahead < sustained.AHEAD + 1.1  # so that readings are of what runs

        def free(self) -> None: ...

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self, stream: object) -> None:
            self.at = clock.device

        def query(self) -> bool:
            return clock.host >= self.at

        def synchronize(self) -> None:
            clock.host = max(clock.host, self.at)

        def elapsed_time(self, end: Event) -> float:
            return (end.at - self.at) * 1e3

    at = SimpleNamespace(
        active=stand_in.contextlib.nullcontext,
        stream=SimpleNamespace(synchronize=lambda: None),
        telemetry=SimpleNamespace(read=read, energy_j=lambda: 69.0 * int(clock.host * 10)),
    )
    monkeypatch.setattr(sustained, "Replay", Replay)
    monkeypatch.setattr(sustained, "_calls", lambda arm, one, at: 50)
    monkeypatch.setattr(
        sustained,
        "time",
        SimpleNamespace(
            perf_counter=lambda: clock.host,
            sleep=lambda s: setattr(clock, "host", clock.host + s),
        ),
    )
    monkeypatch.setattr(torch.cuda, "Event", Event)
    found = sustained.sustain(lambda a, b, c: None, None, at, 1e11, 1.0)  # type: ignore[arg-type]
    assert found["us"] == pytest.approx(125.0)
    assert found["tflops"] == pytest.approx(800.0)
    assert found["watts"] == pytest.approx(690.0, rel=5e-3) and found["power_from"] == "energy"
    assert found["tflops_per_watt"] == pytest.approx(800 / 690, rel=5e-3)
    assert found["sm_mhz"] == 1400.0
    times = [each[0] for each in found["readings"]]
    assert 0.5 <= times[0] < 0.55 and 0.95 < times[-1] < 1.1
    # Half a second is enough for a counter that moves ten times a second.
    clock.host = clock.device = 1.0
    found = sustained.sustain(lambda a, b, c: None, None, at, 1e11, 0.5)  # type: ignore[arg-type]
    assert found["us"] == pytest.approx(125.0)
    assert found["watts"] == pytest.approx(690.0, rel=0.01) and found["power_from"] == "energy"
    # A call longer than the whole run is still timed, over several calls.
    clock.host = clock.device = 1.0
    monkeypatch.setattr(sustained, "_calls", lambda arm, one, at: 600)
    found = sustained.sustain(lambda a, b, c: None, None, at, 1e11, 0.05)  # type: ignore[arg-type]
    assert found["us"] == pytest.approx(125.0)
