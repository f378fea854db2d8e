"""The simulated device: its faults, its noise, and what its replies promise."""

from __future__ import annotations

import hashlib
from statistics import median

import pytest

from hgemm_packs.generator.core.space import Space, admits, catalogue
from hgemm_packs.generator.core.spec import Choice, DeviceLost, Job, Reply, Result, Status
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.fake import choice_of, fake_kernel
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice
from hgemm_packs.generator.families import computed
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES, record

PROBLEM = Problem(256, 512, 1024, "nt", "f16")
LARGE = Problem(4096, 4096, 4096, "nt", "f16")
CHOICES = Space(PROBLEM).core
SILENT = Noise(spread=0.0, outliers=0.0)


def job(kind: str, *choices: Choice, problem: Problem | None = PROBLEM, seed: int = 1) -> Job:
    return Job(kind, problem, tuple(fake_kernel(choice) for choice in choices), seed)


def with_fault(device: SimDevice, name: str) -> Choice:
    return next(choice for choice in CHOICES if device.fault(choice) == name)


def only(reply: Reply) -> Result:
    (result,) = reply.results.values()
    return result


def test_a_fake_kernel_is_what_a_manifest_takes_and_leads_back_to_its_choice() -> None:
    for name, genome in BASES.items():
        choice = Choice.of(name, genome)
        kernel = fake_kernel(choice)
        assert kernel.id == hashlib.sha256(kernel.cubin).hexdigest()
        assert record({**kernel.fields}).name == choice.name
        assert choice_of(kernel) == choice
    assert fake_kernel(CHOICES[0]).id != fake_kernel(CHOICES[1]).id


def test_without_noise_samples_are_the_true_time() -> None:
    device = SimDevice(3, noise=SILENT)
    choices = CHOICES[::600]
    reply = device.run(job("finals", *choices))
    for choice in choices:
        samples = reply.results[fake_kernel(choice).id].samples
        assert set(samples["hot"]) == {device.true_us(choice, PROBLEM)}
        assert set(samples["cold"]) == {device.true_us(choice, PROBLEM, cold=True)}
        assert min(samples["cold"]) >= min(samples["hot"])
    assert reply.gpu_seconds == pytest.approx(0.3 + 0.02 * len(choices))


def test_the_same_job_gives_the_same_samples_and_another_seed_others() -> None:
    def screened(device_seed: int, job_seed: int) -> tuple[float, ...]:
        work = job("screen", CHOICES[5], seed=job_seed)
        return only(SimDevice(device_seed).run(work)).samples["hot"]

    assert screened(3, 1) == screened(3, 1)
    assert screened(3, 1) != screened(3, 2)
    assert median(screened(3, 1)) == pytest.approx(median(screened(3, 2)), rel=0.02)
    assert SimDevice(3).true_us(CHOICES[5], PROBLEM) != SimDevice(4).true_us(CHOICES[5], PROBLEM)


def test_noise_has_the_stated_spread_and_outliers_only_add_time() -> None:
    noise = Noise(spread=0.01, outliers=0.05)
    ratios = sorted(noise.sample(10.0, "words", i) / 10.0 for i in range(2000))
    assert median(ratios) == pytest.approx(1.0, abs=0.002)
    assert ratios[320] == pytest.approx(0.99, abs=0.003)  # one deviation below
    far = [ratio for ratio in ratios if ratio > 1.05]
    assert 50 < len(far) < 120 and max(far) < 1.6
    assert ratios[0] > 0.95


def test_the_optimum_is_the_least_of_all_honest_times() -> None:
    device = SimDevice(9, Faults(hack=0.2, numeric=0.3))  # whose best of all has a fault
    choice, us = device.optimum(PROBLEM)
    honest = [device.true_us(c, PROBLEM) for c in CHOICES if device.fault(c) == ""]
    assert us == min(honest) == device.true_us(choice, PROBLEM)
    assert len(honest) / len(CHOICES) == pytest.approx(0.5, abs=0.05)
    everything = [device.true_us(c, PROBLEM) for c in CHOICES]
    assert min(everything) < us  # else the faults would not matter here


def test_no_honest_kernel_passes_for_a_hack_and_every_hack_does() -> None:
    device = SimDevice(3, Faults(hack=0.5))
    ceilings = device.run(job("ceilings", problem=None))
    assert dict(ceilings.evidence) == {
        "peak_tflops": device.facts.peak_tflops,
        "peak_gbps": device.facts.peak_gbps,
    }
    assert device.facts.peak_tflops == pytest.approx(892.1, abs=0.1)
    choices = Space(LARGE).core[::40]
    reply = device.run(job("finals", *choices, problem=LARGE))
    for choice in choices:
        samples = reply.results[fake_kernel(choice).id].samples
        hot, cold = median(samples["hot"]), median(samples["cold"])
        verdict = plausibility.check(LARGE, hot, cold, device.facts)
        hack = device.fault(choice) == "hack"
        assert verdict.status is (Status.HACK if hack else Status.OK)


@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        ("launch", "screen", Status.LAUNCH),
        ("numeric", "screen", Status.NUMERIC),
        ("numeric", "gate", Status.NUMERIC),
        ("hang", "screen", Status.TIMEOUT),
        ("hang", "race", Status.TIMEOUT),
        ("subtle", "screen", Status.OK),
        ("subtle", "confirm", Status.OK),
        ("subtle", "gate", Status.NUMERIC),
        ("hack", "gate", Status.OK),
    ],
)
def test_each_fault_shows_where_it_should(fault: str, kind: str, status: Status) -> None:
    device = SimDevice(0, Faults(**{fault: 0.05}))
    reply = device.run(job(kind, with_fault(device, fault), with_fault(device, "")))
    broken, sound = reply.results.values()
    assert broken.status is status
    assert sound.status is Status.OK
    assert bool(broken.samples) == (status is Status.OK and kind != "gate")
    if status is Status.TIMEOUT:
        assert reply.gpu_seconds >= 10.0


def test_a_lost_device_stays_lost_and_a_new_one_loses_to_the_same_kernel_again() -> None:
    faults = Faults(lost=0.05)
    device = SimDevice(0, faults)
    culprit, sound = with_fault(device, "lost"), with_fault(device, "")
    with pytest.raises(DeviceLost, match=culprit.name):
        device.run(job("screen", sound, culprit))
    with pytest.raises(DeviceLost, match="earlier"):
        device.run(job("screen", sound))
    fresh = SimDevice(0, faults)
    assert only(fresh.run(job("screen", sound))).status is Status.OK
    with pytest.raises(DeviceLost):
        fresh.run(job("screen", culprit))


def test_a_kernel_that_does_not_admit_the_problem_is_not_launched() -> None:
    exact = next(c for c in catalogue("nt", "f16") if not admits(c, PROBLEM))
    result = only(SimDevice(0).run(job("screen", exact)))
    assert (result.status, result.detail) == (Status.LAUNCH, f"does not admit {PROBLEM}")


def test_a_race_keeps_the_fastest_and_drops_what_is_far_behind() -> None:
    device = SimDevice(5)
    ranked = sorted(CHOICES, key=lambda choice: device.true_us(choice, PROBLEM))
    field = [ranked[0], ranked[400], ranked[800]]
    reply = device.run(job("race", *field))
    first, *others = (reply.results[fake_kernel(choice).id] for choice in field)
    assert first.status is Status.OK
    for other in others:
        assert other.status is Status.SLOWER
        assert 4 <= len(other.samples["hot"]) <= len(first.samples["hot"])


def test_noise_jobs_bound_the_floor_around_one() -> None:
    reply = SimDevice(5).run(job("noise"))
    for protocol in ("hot", "cold"):
        value, low, high = reply.evidence[protocol]
        assert low < value < high
        assert value == pytest.approx(1.0, abs=0.01)
        assert 0.0005 < high - low < 0.08
    assert set(reply.baselines) == {"torch", "again"}


def test_tuned_cublaslt_is_never_behind_torch() -> None:
    problems = [Problem(m, n, 1024, "nt", "f16") for m in (64, 512, 4096) for n in (64, 8192)]
    for problem in problems:
        torch_us = model.library_us(problem, 7, tuned=False)
        assert 0.88 * torch_us < model.library_us(problem, 7, tuned=True) <= torch_us


def test_unknown_jobs_are_refused() -> None:
    with pytest.raises(ValueError, match="no job kind 'guess'"):
        SimDevice(0).run(job("guess", CHOICES[0]))
    with pytest.raises(ValueError, match="needs a problem"):
        SimDevice(0).run(job("screen", CHOICES[0], problem=None))


def test_problems_with_an_epilogue() -> None:
    """Their kernels are found, told from plain ones and timed."""
    device = SimDevice(3, noise=SILENT)
    problem = Problem(16, 512, 1024, "nt", "f16", epilogue="bias_gelu")
    best, us = device.optimum(problem)
    assert computed.epilogue_of(best.genome) == "bias_gelu"
    assert choice_of(fake_kernel(best)) == best
    reply = device.run(job("finals", best, problem=problem))
    assert only(reply).status is Status.OK
    assert set(only(reply).samples["hot"]) == {us}
    assert record({**fake_kernel(best).fields}).epilogue == "bias_gelu"
