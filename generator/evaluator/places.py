"""Where a kernel can be evaluated, each a way from what was read to verdicts: a GPU, a simulated
one, a recording, or this machine without any.

Called by the evaluator. The gates are those of `run.evaluate`; a simulation and a recording compile
no genome, and of free source they run the gates that need no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import of_choice
from hgemm_packs.generator.core.spec import (
    Choice,
    DeviceFacts,
    DeviceLost,
    Job,
    Reply,
    Status,
    Verdict,
    known_facts,
)
from hgemm_packs.generator.devices import counters, recording
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.devices.replay import ReplayDevice
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator import DEVICES
from hgemm_packs.generator.evaluator.candidate import Source
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.workers.evaluators import gpu_lock, visible_gpu
from hgemm_packs.measure import evidence
from hgemm_packs.problem import Problem

#: A device of the evaluator: the index of a GPU, one that needs none, or None for no device.
Device = int | SimDevice | ReplayDevice | None

#: The seed of jobs on devices that are drawn from a seed of their own: one candidate has one
#: answer.
SEED = 0
#: Evaluations of other processes on the same GPU that one may have to wait for.
TURN_S = 1800.0
UNMEASURED = "unmeasured"  # evidence of a last verdict: why nothing was timed
#: The gate that a status of a job comes from.
GATES = {
    Status.PARSE: "record",
    Status.BUILD: "build",
    Status.BINARY: "binary",
    Status.LAUNCH: "isolation",
    Status.TIMEOUT: "isolation",
    Status.NUMERIC: "numeric",
    Status.SANITIZER: "sanitizer",
    Status.HACK: "plausibility",
}


class Place(Protocol):
    """`verdicts` ends with that of the timing where the kernel was timed, its evidence as
    `run.evaluate` has it; `floor` is the A/A noise on a problem, as a share; `counters` are those
    of one launch, or the sentence why there are none."""

    def verdicts(self, one: Choice | Source, problem: Problem) -> Iterator[Verdict]: ...

    def floor(self, problem: Problem) -> float: ...

    def counters(self, one: Choice | Source, problem: Problem) -> Counters | str: ...


def place_of(device: Device, alone: bool = False) -> Place:
    """The place of a device; `alone`: the caller has the GPU's lock. Raises TypeError for what is
    no device."""
    if device is None:
        return Nowhere()
    if isinstance(device, int):
        return OnGpu(device, alone)
    if isinstance(device, SimDevice):
        return Simulated(device)
    if isinstance(device, ReplayDevice):
        return Recorded(device)
    raise TypeError(f"{device!r} is no device of an evaluator")


def open_device(text: str) -> Device:
    """The device that words name: "gpu", "gpu:1", "sim:SEED", "replay:FILE" or "none".

    Raises ValueError for other words, a GPU that this process has not or a file that is no
    recording, OSError for one that cannot be read.
    """
    kind, _, rest = text.partition(":")
    if kind == "gpu" and (rest.isdecimal() or text == "gpu"):
        index = int(rest or 0)
        if index >= torch.cuda.device_count():
            raise ValueError(f"this process has no GPU {index}")
        return index
    if kind == "sim" and rest.isdecimal():
        return SimDevice(int(rest))
    if kind == "replay" and rest:
        screens = recording.load(Path(rest), any_catalogue=True)
        return ReplayDevice(screens, corpus.device_facts(), SEED, recording.SAMPLES)
    if text == "none":
        return None
    raise ValueError(f"{text!r} is no device: name {DEVICES}")


class Uncounted:
    """A place whose kernels run on no GPU."""

    def counters(self, one: Choice | Source, problem: Problem) -> Counters | str:
        return "only a GPU has counters"


class Nowhere(Uncounted):
    """The gates that need no GPU."""

    def verdicts(self, one: Choice | Source, problem: Problem) -> Iterator[Verdict]:
        for verdict in evaluate.each_verdict(one, problem):
            yield _say_unmeasured(
                verdict, "no GPU here: the gates that run the kernel were left out"
            )

    def floor(self, problem: Problem) -> float:
        return 0.0  # nothing is timed


class OnGpu:
    """Every gate, on the `index`-th GPU that this process may use, which it has to itself
    meanwhile: other processes that ask the same wait for their turn. Raises LockHeld after TURN_S,
    RuntimeError when the GPU fails for reasons of its own."""

    def __init__(self, index: int, alone: bool = False) -> None:
        self._index, self._alone = index, alone

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._alone:
            yield
            return
        lock = gpu_lock(visible_gpu(self._index), wait_s=TURN_S)
        try:
            yield
        finally:
            lock.close()

    def verdicts(self, one: Choice | Source, problem: Problem) -> Iterator[Verdict]:
        return evaluate.each_verdict(one, problem, device=self._index, turn=self._turn())

    def floor(self, problem: Problem) -> float:
        with self._turn():
            return evaluate.measure_noise(problem, self._index)

    def counters(self, one: Choice | Source, problem: Problem) -> Counters | str:
        try:
            made = of_choice(one) if isinstance(one, Choice) else one
            kernel = compiler.as_kernel(compiler.build_source(made.source, made.fields))
            with self._turn():
                return counters.read(kernel, problem, visible_gpu(self._index))
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"


class Simulated(Uncounted):
    """The jobs of a simulated device in the order of the gates. A kernel that takes the device with
    it is refused, and the next one meets the same machine anew."""

    def __init__(self, device: SimDevice) -> None:
        self._device = device

    def verdicts(self, one: Choice | Source, problem: Problem) -> Iterator[Verdict]:
        if not isinstance(one, Choice):
            yield from _without_time(one, problem)
            return
        try:
            yield from self._each(one, problem)
        except DeviceLost as error:
            self._device = self._device.renew()
            yield Verdict("isolation", Status.LAUNCH, str(error))

    def _each(self, choice: Choice, problem: Problem) -> Iterator[Verdict]:
        gate = _verdict(self._ask("gate", choice, problem), "numeric")
        yield gate
        if not gate.passed:
            return
        self._device.run(Job("ceilings", None, (), SEED))
        facts = self._device.facts
        timing = self._confirm(choice, problem, facts)
        if timing.gate == "timing":
            plausible = evaluate.plausible(timing, problem, facts)
            yield plausible
            if not plausible.passed:
                return
        yield timing

    def _confirm(self, choice: Choice, problem: Problem, facts: DeviceFacts) -> Verdict:
        reply = self._ask("confirm", choice, problem)
        timing = _verdict(reply, "timing")
        if not timing.passed:
            return timing
        return _judge(timing, _samples(reply), reply.baselines, facts)

    def _ask(self, kind: str, choice: Choice, problem: Problem) -> Reply:
        return self._device.run(Job(kind, problem, (fake_kernel(choice),), SEED))

    def floor(self, problem: Problem) -> float:
        bounds = self._device.run(Job("noise", problem, (), SEED)).evidence
        return max(evidence.stray(bounds[protocol]) for protocol in ("hot", "cold"))


class Recorded(Uncounted):
    """What was recorded of a genome: its status, and hot times against the baselines of that day. A
    kernel or a problem without a recording is neither right nor wrong."""

    def __init__(self, device: ReplayDevice) -> None:
        self._device = device

    def verdicts(self, one: Choice | Source, problem: Problem) -> Iterator[Verdict]:
        if not isinstance(one, Choice):
            yield from _without_time(one, problem)
        elif not self._device.has(one, problem):
            words = "no time of this kernel on this problem was recorded"
            yield Verdict("record", Status.OK, "", {UNMEASURED: words})
        else:
            yield from self._each(one, problem)

    def _each(self, choice: Choice, problem: Problem) -> Iterator[Verdict]:
        reply = self._device.run(Job("screen", problem, (fake_kernel(choice),), SEED))
        gate = _verdict(reply, "numeric")
        recorded = self._device.baselines(problem)
        if not gate.passed or "torch" not in recorded:
            yield _say_unmeasured(gate, "no time of torch was recorded on this problem")
            return
        yield gate
        samples = _samples(reply)
        count = len(samples["hot"])  # baselines were recorded apart: their medians stand for them
        baselines = {arm: {"hot": [median(us)] * count} for arm, us in recorded.items()}
        yield _judge(Verdict("timing", Status.OK), samples, baselines, self._device.facts)

    def floor(self, problem: Problem) -> float:
        """How far two halves of the recorded times of torch stray from each other."""
        torch_us = self._device.baselines(problem)["torch"]
        half = len(torch_us) // 2
        if not half:
            return 0.0
        found = evidence.ratio(torch_us[0 : 2 * half : 2], torch_us[1 : 2 * half : 2])
        return evidence.stray((found.value, found.lcb, found.ucb))


def _without_time(one: Source, problem: Problem) -> Iterator[Verdict]:
    words = "only a GPU times free source: the gates that run the kernel were left out"
    for verdict in evaluate.each_verdict(one, problem):
        yield _say_unmeasured(verdict, words)


def _say_unmeasured(verdict: Verdict, words: str) -> Verdict:
    """The verdict, which says why nothing was timed should it be the last."""
    if not verdict.passed:
        return verdict
    return Verdict(verdict.gate, verdict.status, "", {**verdict.evidence, UNMEASURED: words})


def _verdict(reply: Reply, gate: str) -> Verdict:
    """The verdict on the one kernel of a job, of `gate` where it passed."""
    (result,) = reply.results.values()
    if result.status is Status.OK:
        return Verdict(gate, Status.OK, "", dict(result.evidence))
    return Verdict(GATES.get(result.status, gate), result.status, result.detail)


def _samples(reply: Reply) -> dict[str, list[float]]:
    (result,) = reply.results.values()
    return {protocol: list(us) for protocol, us in result.samples.items()}


def _judge(
    timing: Verdict, samples: dict[str, list[float]], baselines: Any, facts: DeviceFacts
) -> Verdict:
    """The timing verdict with samples and baselines as its evidence, us by protocol."""
    more = {"samples": samples, "baselines": baselines, "device": known_facts(facts)}
    return evaluate.judge_timing(
        Verdict(timing.gate, timing.status, "", {**timing.evidence, **more})
    )
