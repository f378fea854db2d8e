"""One candidate through every gate: FILE.cu with its record, or a family's genome.

`hgemm-packs generate` and the red-team run call this. Source and cubin are judged here; what runs
the candidate's code runs in isolated processes, so the worst that it can do is to fail.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from statistics import median
from typing import Any

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import (
    Candidate,
    CandidateError,
    entry,
    load,
    of_choice,
)
from hgemm_packs.generator.compile.compiler import BuildError, Built
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    DeviceFacts,
    Status,
    Verdict,
    known_facts,
)
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.families import InvalidGenome
from hgemm_packs.generator.gates import binary, plausibility, sanitizer, sweep
from hgemm_packs.generator.gates.coverage import gate as coverage
from hgemm_packs.generator.gates.dataflow import gate as dataflow
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.gates.source import static
from hgemm_packs.generator.tables import judge
from hgemm_packs.problem import Problem

__all__ = [
    "build_gates",
    "each_verdict",
    "evaluate",
    "judge_timing",
    "load",
    "numeric_gate",
    "plausible",
    "state_gate",
]

WARM_UP_S = 120.0
GATE_S = 60.0  # the numeric gate of a slow but honest kernel, many times over
MEASURE_S = 300.0
CEILINGS_S = 120.0

_ANY_TIME: AbstractContextManager[object] = nullcontext()
_parsing = threading.Lock()  # one parser serves all threads


def build_gates(one: Candidate, skip: tuple[str, ...] = ()) -> tuple[list[Verdict], Built | None]:
    """Verdicts of the gates that need no GPU, up to the first rejection, and the built kernel when
    all passed. `skip` leaves out static, binary, dataflow or coverage: the red team shows that each
    holds alone."""
    verdicts: list[Verdict] = []
    if "static" not in skip:
        with _parsing:
            verdicts.append(static.check(one.source, one.fields))
        if not verdicts[-1].passed:
            return verdicts, None
    try:
        built = compiler.build_source(one.source, one.fields)
    except BuildError as error:
        return [*verdicts, Verdict("build", Status.BUILD, str(error))], None
    verdicts.append(Verdict("build", Status.OK, "", {"registers": built.entry_fields["regs"]}))
    if "binary" not in skip:
        verdicts.append(binary.check(built.entry_fields, built.cubin))
        if not verdicts[-1].passed:
            return verdicts, None
    for gate in (dataflow, coverage):
        if gate.GATE not in skip:
            verdicts.append(gate.check(built.entry_fields, one.source))
            if not verdicts[-1].passed:
                return verdicts, None
    return verdicts, built


def check_again(name: str, one: Candidate) -> None:
    """Raise CandidateError where a gate of the CPU refuses a source: who judged it may have asked
    older gates."""
    refused = build_gates(one)[0][-1]
    if not refused.passed:
        raise CandidateError(f"{name}: the {refused.gate} gate of today: {refused.detail}")


def evaluate(
    one: Candidate | Choice, problem: Problem, *, device: int | None = None
) -> list[Verdict]:
    """Verdicts in the order of the gates, the last one a rejection or that of the timing.

    Without `device` those gates alone that need no GPU. The timing passes when the kernel beats
    torch, hot and cold, as in a table; its evidence has the figures. A sanitizer that
    is not to be had passes with the reason as `evidence["skipped"]`. Raises RuntimeError when the
    device fails for reasons of its own.
    """
    return list(each_verdict(one, problem, device=device))


def each_verdict(
    one: Candidate | Choice,
    problem: Problem,
    *,
    device: int | None = None,
    turn: AbstractContextManager[object] = _ANY_TIME,
) -> Iterator[Verdict]:
    """The verdicts of `evaluate`, each as soon as its gate has decided. `turn` is entered for as
    long as the GPU is used. Raises what `evaluate` does."""
    try:
        made = of_choice(one) if isinstance(one, Choice) else one
        unfit = entry(made.fields).admits(problem)
    except (CandidateError, InvalidGenome, KeyError) as error:
        yield Verdict("record", Status.PARSE, str(error))
        return
    if unfit is not None:
        yield Verdict("record", Status.PARSE, unfit.text)
        return
    verdicts, built = build_gates(made)
    yield from verdicts
    if built is not None and device is not None:
        further = verdicts[-1].evidence
        with turn:
            for verdict in _on_device(compiler.as_kernel(built), problem, device, further):
                yield verdict
                if not verdict.passed:
                    break


def _on_device(
    kernel: CompiledKernel, problem: Problem, device: int, further: Mapping[str, Any]
) -> Iterator[Verdict]:
    """The gates that run the kernel; each is run only when it is asked for. `further` has the
    problems that the size gate asks for."""
    with Worker() as worker:
        yield numeric_gate(worker, kernel, device, further=further)
        yield state_gate(worker, kernel, device, further=further)
    yield sanitize_kernel(kernel, further)
    with Worker() as worker:
        yield from _measure_kernel(worker, kernel, problem, device)


def call_gate(
    worker: Worker, function: Callable[..., Any], *arguments: Any, limit_s: float
) -> Verdict:
    """The verdict that a function of `in_process` answers, or that there was no answer.

    The process is ended unless the kernel passed: what a bad kernel left behind meets nobody.
    """
    try:
        answer = worker.call(function, *arguments, timeout_s=limit_s)
        verdict = Verdict(**{**answer, "status": Status(answer["status"])})
    except IsolationError as error:
        return error.verdict()
    if not verdict.passed:
        worker.close()
    return verdict


def numeric_gate(
    worker: Worker,
    kernel: CompiledKernel,
    device: int,
    limit_s: float = GATE_S,
    further: Mapping[str, Any] | None = None,
) -> Verdict:
    """Verdict of the numeric gate, or of the isolation gate when the process was lost over it.
    `further` is the size gate's evidence: the problems that it asks for."""
    worker.call(in_process.warm_up, device, timeout_s=WARM_UP_S)
    seed = secrets.randbits(48)
    more = [(further or {}).get(name, ()) for name in ("planned", "large")]
    work = in_process.numeric_gate
    return call_gate(worker, work, kernel, device, seed, *more, limit_s=limit_s)


def state_gate(
    worker: Worker,
    kernel: CompiledKernel,
    device: int,
    limit_s: float = GATE_S,
    further: Mapping[str, Any] | None = None,
) -> Verdict:
    """Verdict of the state gate on a kernel that the numeric gate has passed in this process, or of
    the isolation gate; `further` as there."""
    seed = secrets.randbits(48)
    planned = (further or {}).get("planned", ())
    work = in_process.state_gate
    return call_gate(worker, work, kernel, device, seed, planned, limit_s=limit_s)


def large_gate(
    worker: Worker, kernel: CompiledKernel, device: int, limit_s: float = GATE_S
) -> Verdict:
    """Verdict of the numeric gate on problems that fill a card, or of the isolation gate."""
    seed = secrets.randbits(48)
    return call_gate(worker, in_process.large_gate, kernel, device, seed, limit_s=limit_s)


def sanitize_kernel(kernel: CompiledKernel, further: Mapping[str, Any] | None = None) -> Verdict:
    """Verdict of the sanitizer gate. `further` is the size gate's evidence: the problems in which
    each comparison on sizes goes each way."""
    try:
        item = sweep.item(kernel, further or {})
        ((_, (verdict,)),) = sweep.check_groups([[item]], [None] * len(sanitizer.TOOLS))
        return verdict
    except sanitizer.SanitizerUnavailable as error:
        return Verdict(sanitizer.GATE, Status.OK, "", {"skipped": str(error)})


def _measure_kernel(
    worker: Worker, kernel: CompiledKernel, problem: Problem, device: int
) -> Iterator[Verdict]:
    """Plausibility and timing of one kernel. A suspect time is measured again by a fresh process
    with a fresh seed, and only what repeats is believed."""
    facts = measure_facts(worker, device)
    timing = _confirm_kernel(worker, kernel, problem, device)
    if timing.gate != "timing":
        yield timing
        return
    verdict = plausible(timing, problem, facts)
    if verdict.evidence["rerun"]:
        with Worker() as fresh:
            timing = _confirm_kernel(fresh, kernel, problem, device)
        if timing.gate != "timing":
            yield timing
            return
        verdict = plausible(timing, problem, facts)
    yield verdict
    yield replace(timing, evidence={**timing.evidence, "device": known_facts(facts)})


def measure_noise(problem: Problem, device: int) -> float:
    """How far torch strays from itself on a problem, the worse of hot and cold, as a share: the
    A/A floor below which a gain is none. Raises IsolationError or RuntimeError when the device
    fails."""
    with Worker() as worker:
        worker.call(in_process.warm_up, device, timeout_s=WARM_UP_S)
        seed = secrets.randbits(48)
        bounds = worker.call(in_process.noise, problem, device, seed, timeout_s=MEASURE_S)
    return judge.noise_floor([bounds], share=1.0)


def measure_facts(worker: Worker, device: int) -> DeviceFacts:
    """The device with its ceilings. Raises IsolationError or RuntimeError when it has none."""
    worker.call(in_process.warm_up, device, timeout_s=WARM_UP_S)
    seed = secrets.randbits(48)
    answer = worker.call(in_process.ceilings, device, seed, timeout_s=CEILINGS_S)
    return DeviceFacts(**answer)


def _confirm_kernel(
    worker: Worker, kernel: CompiledKernel, problem: Problem, device: int
) -> Verdict:
    """The timing verdict of a confirm job, which also audits timed launches."""
    worker.call(in_process.warm_up, device, timeout_s=WARM_UP_S)
    seed = secrets.randbits(48)
    verdict = call_gate(
        worker,
        in_process.measure,
        "confirm",
        kernel,
        problem,
        device,
        seed,
        limit_s=MEASURE_S,
    )
    return judge_timing(verdict) if verdict.gate == "timing" and verdict.passed else verdict


def judge_timing(verdict: Verdict) -> Verdict:
    """OK when both lower bounds are above 1, NOISE when only the medians are, else SLOWER."""
    found: dict[str, Any] = {}
    for protocol, ours in verdict.evidence["samples"].items():
        arms = {arm: each[protocol] for arm, each in verdict.evidence["baselines"].items()}
        found[protocol] = judge.summarise_times({**arms, "ours": ours}, "ours")._asdict()
    ahead = all(each["speedup"] > 1 for each in found.values())
    sure = all(each["lcb"] > 1 for each in found.values())
    status = Status.OK if sure else Status.NOISE if ahead else Status.SLOWER
    words = ", ".join(f"{p} {each['speedup']:.3f}x torch" for p, each in found.items())
    return Verdict("timing", status, "" if sure else words, {**verdict.evidence, **found})


def plausible(timing: Verdict, problem: Problem, facts: DeviceFacts) -> Verdict:
    """Verdict of the plausibility gate on the figures of a timing."""
    samples: Mapping[str, list[float]] = timing.evidence["samples"]
    baselines: Mapping[str, Mapping[str, list[float]]] = timing.evidence["baselines"]
    us = {protocol: median(each) for protocol, each in samples.items()}
    best = {
        protocol: min(median(each[protocol]) for each in baselines.values())
        for protocol in us
        if baselines
    }
    return plausibility.check(problem, us["hot"], us["cold"], facts, best)
