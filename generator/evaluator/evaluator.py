"""The evaluator: one candidate on one problem through every gate, timed, answered with a reward and
words.

The core behind `generate eval`, `generate serve` and `generate mcp`, and behind agents and trainers
in this process. Gates, timing and judgement are those of searches; host code of a candidate does
not exist, so none ever runs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.spec import FALLBACK, Choice, DeviceFacts, Status, Verdict
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.evaluator import facts as facts_of
from hgemm_packs.generator.evaluator import words
from hgemm_packs.generator.evaluator.answer import CORRECT, Answer
from hgemm_packs.generator.evaluator.candidate import Candidate, Source, Unreadable
from hgemm_packs.generator.evaluator.places import UNMEASURED as WHY
from hgemm_packs.generator.evaluator.places import Device, place_of
from hgemm_packs.generator.evaluator.reward import UNMEASURED, reward
from hgemm_packs.generator.families import InvalidGenome
from hgemm_packs.measure.evidence import ratio
from hgemm_packs.pack.manifest import Timing
from hgemm_packs.problem import Problem

Told = Callable[[Verdict], None]


def _nobody(verdict: Verdict) -> None:
    pass


class Evaluator:
    """Evaluates on one device: the index of a GPU, a `SimDevice`, a `ReplayDevice`, or None for the
    gates that need no GPU.

    `store` is a file of lines to which every answer to a `Candidate` is appended with candidate and
    problem. One thread at a time; several evaluators, of any processes, take turns on a GPU.

    >>> evaluator = Evaluator(SimDevice(1))
    >>> nothing = Candidate.of_genome("sm90_gemv", {})
    >>> answer = evaluator.evaluate(nothing, Problem(1, 64, 64, "nt", "f16"))
    >>> answer.status, answer.reward
    ('PARSE', -1.0)
    """

    def __init__(
        self, device: Device = None, store: Path | None = None, *, alone: bool = False
    ) -> None:
        """`alone`: the caller has the lock of the GPU. Raises TypeError for another kind of
        device."""
        self._place = place_of(device, alone)
        self._store = store
        self._floors: dict[Problem, float] = {}
        self.no_counters = ""

    def evaluate(self, candidate: Candidate, problem: Problem, told: Told = _nobody) -> Answer:
        """The answer to a proposal, whatever is wrong with it. `told` hears each verdict as soon as
        it is there.

        Raises RuntimeError when the device fails for reasons of its own, LockHeld when others do
        not let go of the GPU, OSError when the store cannot be written.
        """
        try:
            one = candidate.read(problem)
        except Unreadable as error:
            verdict = Verdict("record", Status.PARSE, str(error)[: words.MOST_DETAIL])
            told(verdict)
            answer = _refused(verdict, [verdict], {})
        else:
            answer = self.judge(one, problem, told)
        if self._store is not None:
            _append(self._store, candidate, problem, answer)
        return answer

    def judge(self, one: Choice | Source, problem: Problem, told: Told = _nobody) -> Answer:
        """The answer to what has been read already. Raises RuntimeError and LockHeld likewise."""
        verdicts = []
        for verdict in self._place.verdicts(one, problem):
            told(verdict)
            verdicts.append(verdict)
        last = verdicts[-1]
        try:
            fields = facts_of.fields_of(one)
        except (InvalidGenome, KeyError):  # of which the record gate has told
            return _refused(last, verdicts, {})
        facts = facts_of.resources(fields, verdicts)
        if last.gate == "timing" and last.status.value in CORRECT:
            return self._timed(fields, problem, verdicts, facts)
        if last.passed:
            why = words.unmeasured(str(last.evidence[WHY]))
            return Answer(UNMEASURED, last, reward(UNMEASURED), why, tuple(verdicts), facts=facts)
        return _refused(last, verdicts, facts)

    def counters(self, one: Choice | Source, problem: Problem) -> Counters | None:
        """What the GPU counts in one launch of a kernel that has passed every gate. None where
        counters cannot be had: `no_counters` then says why, and nothing is tried again."""
        if self.no_counters:
            return None
        found = self._place.counters(one, problem)
        if isinstance(found, str):
            self.no_counters = found
            return None
        return found

    def _timed(
        self,
        fields: Mapping[str, Any],
        problem: Problem,
        verdicts: list[Verdict],
        facts: dict[str, Any],
    ) -> Answer:
        last = verdicts[-1]
        seen = last.evidence
        times = {p: Timing(**seen[p]) for p in seen["samples"]}
        device = DeviceFacts(**seen["device"])
        facts = {**facts, **facts_of.limits(fields, problem, times, device)}
        lcb = _least_gain(times, seen["samples"], seen["baselines"])
        floor = 0.0
        if lcb > 1.0:  # only a gain can be one of the noise
            floor = facts["noise_floor"] = self._floor(problem)
        speedup = math.prod(t.speedup for t in times.values()) ** (1 / len(times))
        return Answer(
            last.status.value,
            last,
            reward(last.status.value, lcb, floor),
            words.timed(problem, last.status, times, facts),
            tuple(verdicts),
            times,
            round(speedup, 4),
            facts,
        )

    def _floor(self, problem: Problem) -> float:
        if problem not in self._floors:
            self._floors[problem] = round(self._place.floor(problem), 4)
        return self._floors[problem]


def timed_out(limit_s: float) -> Answer:
    """The answer to a candidate that was not done with in time, compiler and gates included."""
    verdict = Verdict("isolation", Status.TIMEOUT, f"no answer in {limit_s:g} s")
    return _refused(verdict, [verdict], {})


def _refused(last: Verdict, verdicts: list[Verdict], facts: Mapping[str, Any]) -> Answer:
    status = last.status.value
    return Answer(status, last, reward(status), words.refusal(last), tuple(verdicts), facts=facts)


def _least_gain(
    times: Mapping[str, Timing],
    samples: Mapping[str, list[float]],
    baselines: Mapping[str, Mapping[str, list[float]]],
) -> float:
    """The lower bound of the paired speed-up over the best baseline, hot or cold, whichever is
    less: over the best means over each. That over torch is in `times`."""
    others = [each for arm, each in baselines.items() if arm != FALLBACK]
    bounds = [ratio(each[p], ours).lcb for p, ours in samples.items() for each in others]
    return min([*bounds, *(each.lcb for each in times.values())])


def _append(store: Path, candidate: Candidate, problem: Problem, answer: Answer) -> None:
    """One line at the end of a file, whole or not at all as far as a kill goes: readers drop a torn
    last line."""
    line = {
        "problem": [problem.m, problem.n, problem.k, problem.layout, problem.dtype],
        "epilogue": problem.epilogue,
        "candidate": candidate.document(),
        "answer": answer.document(),
    }
    data = (json.dumps(line) + "\n").encode()
    there = os.open(store, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(there, data)
        os.fsync(there)
    finally:
        os.close(there)
