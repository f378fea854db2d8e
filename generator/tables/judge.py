"""What finals and confirmations say of kernels: gains, lower bounds, and who is proven by them.

Called by `table` and what ranks beside it. A kernel is proven where it passed the numeric gate and
its confirmation clears the noise floor of trials of the same kind.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hgemm_packs.generator.core.spec import FALLBACK, PROTOCOLS, Reply
from hgemm_packs.generator.store.findings import CORRECT, Field, Findings
from hgemm_packs.measure.evidence import RULE as RULE
from hgemm_packs.measure.evidence import noise_floor as noise_floor
from hgemm_packs.measure.evidence import summarise_times as summarise_times
from hgemm_packs.pack.manifest import Row, Timing, WinPolicy
from hgemm_packs.problem import Problem

#: Baselines' samples of one protocol, by arm.
Frozen = tuple[tuple[str, tuple[float, ...]], ...]
#: By whether the blocks were led: the noise floor of what was measured so.
Floors = Mapping[bool, float]


def is_led(field: Field) -> bool:
    """Whether each block of a job began with a replay that is not timed (`timing.ArmBench.block`).
    Without it trials of torch against itself, of two arms in random order, stray by up to 8%."""
    conditions = field.evidence.get("conditions", {})
    return bool(conditions) and all(each.get("led", False) for each in conditions.values())


def floors(found: Findings) -> Floors:
    """`noise_floor` of the trials that were led, and that of the other trials, as far as there are
    any. Raises ValueError without trials."""
    kinds: dict[bool, list[Mapping[str, Sequence[float]]]]
    kinds = {is_led(trial): [] for trial in found.trials} or {False: []}
    for trial, bounds in zip(found.trials, found.noise, strict=True):
        kinds[is_led(trial)].append(bounds)
    return {kind: noise_floor(each) for kind, each in kinds.items()}


def paired_ratio(samples: Mapping[str, Sequence[float]], ours: str) -> float:
    """The ratio of `summarise_times` alone."""
    return median(b / o for b, o in zip(samples[FALLBACK], samples[ours], strict=True))


@dataclass(frozen=True, slots=True)
class Contender:
    """A kernel on a problem that it computed correctly. `gain`, what choices go by, is the
    geometric mean of its hot and cold speed-up in its last finals. `field` has the samples that are
    published: of its confirmation if there is one, with `row` made of them, else of the finals.
    `proven` says that a table may name it."""

    kernel: str
    gain: float
    field: Field
    row: Row | None
    proven: bool


#: The contenders of each problem, best first.
Listed = Mapping[Problem, Sequence[Contender]]


def contenders(found: Findings, floors: Floors) -> dict[Problem, list[Contender]]:
    """Every correct kernel with finals or a confirmation on a problem, best first.

    Of several confirmations the one with the lowest bound counts: measuring again never turns a
    loss into a win. A confirmation that was not led (`is_led`) is held against a floor of its own,
    and counts only where no other exists. A kernel that failed once on a problem is no contender
    there; a refused kernel is one nowhere.
    """
    measured: dict[Problem, dict[str, list[Field]]] = {}
    failed = failures(found)
    for each in found.fields:
        for kernel, status in each.statuses.items():
            if status in CORRECT and all(
                kernel in each.samples.get(protocol, ()) for protocol in PROTOCOLS
            ):
                measured.setdefault(each.problem, {}).setdefault(kernel, []).append(each)
    result = {}
    for problem, kernels in measured.items():
        right = (k for k in kernels if k not in found.refused and (problem, k) not in failed)
        listed = [_contender(found, floors, kernel, kernels[kernel]) for kernel in right]
        if listed:
            result[problem] = sorted(listed, key=lambda c: (-c.gain, c.kernel))
    return result


def failures(found: Findings) -> set[tuple[Problem, str]]:
    """The kernels that failed on a problem, in finals or a confirmation."""
    return {
        (each.problem, kernel)
        for each in found.fields
        for kernel, status in each.statuses.items()
        if status not in CORRECT
    }


def _contender(found: Findings, floors: Floors, kernel: str, fields: Sequence[Field]) -> Contender:
    confirms = [each for each in fields if each.stage == "confirm"]
    confirms = [each for each in confirms if is_led(each)] or confirms
    selected = next((each for each in reversed(fields) if each.stage == "finals"), fields[-1])
    gain = math.sqrt(math.prod(paired_ratio(selected.samples[p], kernel) for p in PROTOCOLS))
    rows = [(row(each, kernel, found.device.name), each) for each in confirms]
    if not rows:
        return Contender(kernel, gain, selected, None, False)
    worst, field = min(rows, key=lambda pair: min(pair[0].hot.lcb, pair[0].cold.lcb))
    policy = WinPolicy(floors.get(is_led(field), max(floors.values())), RULE)
    proven = kernel in found.proofs and gain > 1.0 and policy.clears(worst)
    return Contender(kernel, gain, field, worst, proven)


def take_bootstraps(reply: Reply) -> None:
    """Those of a confirmation that just came in, while the GPU has the next: a report and a table
    will ask for them, and a run has hundreds, of milliseconds each."""
    for kernel, result in reply.results.items():
        for protocol, ours in result.samples.items():
            arms = {arm: us[protocol] for arm, us in reply.baselines.items() if protocol in us}
            _summarise({**arms, kernel: ours}, kernel)


def _summarise(samples: Mapping[str, Sequence[float]], kernel: str) -> Timing:
    theirs = ((arm, tuple(us)) for arm, us in samples.items() if arm in (FALLBACK, "cublaslt"))
    return _summarise_once(tuple(sorted(theirs)), tuple(samples[kernel]))


@functools.lru_cache(maxsize=1 << 14)
def _summarise_once(theirs: Frozen, ours: tuple[float, ...]) -> Timing:
    return summarise_times({**dict(theirs), "ours": ours}, "ours")


def row(field: Field, kernel: str, profile: str) -> Row:
    """The table row that names `kernel` with the figures of one job."""
    hot, cold = (_summarise(field.samples[protocol], kernel) for protocol in PROTOCOLS)
    pairs = len(field.samples["hot"][kernel])
    p = field.problem
    m, n, k, layout, dtype, out_dtype, acc, epilogue = p.key[:8]
    about = (m, n, k, layout, dtype, out_dtype, acc, epilogue)
    return Row(*about, kernel, profile, hot, cold, pairs, field.date, base=p.base, packed=p.packed)
