"""One run from problems to confirmed kernels: search, race, gate, finals, kernels that read ahead,
noise, confirmation.

Called by `hgemm-packs generate` with a store, a strategy, a builder and an evaluator. It can be
killed at any point and called again: it goes on with what the store has. It writes nothing but the
store, and decides no table: `table` does, from what is measured here.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from hgemm_packs.generator.core.gains import geometric, mean, wins
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import CompiledKernel, DeviceFacts, Reply, Verdict
from hgemm_packs.generator.run.early import EarlyStages
from hgemm_packs.generator.run.entrants import Counts
from hgemm_packs.generator.run.finals import UNSANITIZED, FinalStages, Sanitize, Won
from hgemm_packs.generator.run.followers import MOST_DEPENDENT, Followers
from hgemm_packs.generator.run.jobs import RunJobs
from hgemm_packs.generator.run.rounds import Rounds, Track, retell
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.store import busy
from hgemm_packs.generator.store.busy import NOTHING, BusySeconds
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.builder import Builder
from hgemm_packs.generator.workers.evaluators import Evaluator
from hgemm_packs.problem import Problem

#: How much of what the search leaves may be spent when the last race, gate job, finals, launches
#: behind one another and gate job of kernels that read ahead start.
RACED, GATED, FINISHED, TIMED, DEPENDENT_GATED = 0.3, 0.4, 0.6, 0.66, 0.7
_SHOWN_S = 0.1  # between two calls of `progress` within a stage


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may cost: GPU-seconds over all GPUs and all calls on one store. `search_share` of
    it goes into the search, in batches of `batch` choices, at most `patience` batches without
    progress for a problem, and none for one that a screen has `enough` times as fast as torch.
    `race_width` choices of each problem race, `finalists` are timed against the baselines. Of
    kernels that read ahead `dependent` are tried besides those known, and `dependent_confirmed`
    confirmed. `ahead` is how many times as fast as kernels with a proof others must be to go on."""

    gpu_seconds: float
    search_share: float = 0.7
    batch: int = 8
    patience: int = 3
    race_width: int = 8
    finalists: int = 3
    enough: float | None = None
    dependent: int = MOST_DEPENDENT
    dependent_confirmed: int = 3
    ahead: float | None = None

    @property
    def counts(self) -> Counts:
        """What the stages behind the search are told."""
        few = self.dependent, self.dependent_confirmed
        return Counts(self.race_width, self.finalists, *few, self.ahead)

    def limit(self, share_of_rest: float) -> float:
        """GPU-seconds of the search and a share of what it leaves."""
        share = self.search_share + (1.0 - self.search_share) * share_of_rest
        return self.gpu_seconds * share


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a run stands. `done` of `total` problems, or what `of` says, are through this stage's
    work, or noise and gate jobs are not counted; `spent` and `budget` are GPU-seconds, `spent` with
    earlier calls. `kernels` were built or found, `failures` counts refused builds and kernels in
    this call. `speedup` is the geometric mean, over problems with a time, of the best so far over
    torch, screened and later by finals: to watch, not to quote. `busy` says how long compilers and
    GPUs had work in this call."""

    stage: str
    total: int
    done: int
    spent: float
    budget: float
    kernels: int
    failures: int
    screened: int
    speedup: float
    of: str = "problems"
    busy: BusySeconds = NOTHING


class Progress(Protocol):
    """Called at the start of each stage and a few times a second, from the calling thread."""

    def __call__(self, snapshot: Snapshot) -> None: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run has to show, earlier calls on the store included. `finals` problems were measured
    against the baselines, `likely` won there, `confirmed` won again; `speedup` is the geometric
    mean of the latter, hot and cold, by medians and before the noise floor. `finished` searches
    came to an end of their own, the others to the end of the budget; of `unconfirmed` likely wins
    the budget did not reach the confirmation. `given_up` says why of problems a job of which failed
    whatever the kernels: the next call tries them once more."""

    problems: int
    finished: int
    screened: int
    kernels: int
    finals: int
    likely: int
    confirmed: int
    unconfirmed: int
    speedup: float
    spent: float
    quarantined: int
    given_up: Mapping[Problem, str]


def generate(
    store: Store,
    problems: Sequence[Problem],
    strategy: Strategy,
    builder: Builder,
    evaluator: Evaluator,
    budget: Budget,
    progress: Progress = lambda snapshot: None,
    *,
    spaces: Callable[[Problem], Space] = Space,
    seed: int | None = None,
    sanitize: Sanitize = UNSANITIZED,
    followers: Followers | None = lambda problem: (),
) -> Summary:
    """Search kernels for `problems` and confirm what looks like wins, within the budget.

    Every answer is committed before it is used, those that wait when an exception ends the run
    included; calling again with the same store goes on from there. `seed` is the first call's, from
    the system if not given; the seed of every job follows from it. `sanitize` judges the confirmed
    kernels, last of all. `followers` are tried behind one another beside what every run tries so;
    None: nothing is.
    Raises ValueError when the store has measurements of another kind of GPU, DevicesLost when the
    last device is gone, StoreError.
    """
    problems = list(dict.fromkeys(problems))
    evaluator.prepare()  # what will confirm: it imports, and takes no GPU before the last gates
    with _open_jobs(store, builder, evaluator, budget, strategy.name, problems, seed) as flow:
        tracks = retell(flow, strategy, problems, spaces, budget.batch)
        stages = EarlyStages(
            flow,
            tracks,
            budget.counts,
            followers,
            share=budget.limit(TIMED) - budget.limit(0.0),
        )
        screen = _begin_screen(flow, stages, budget, progress)
        rounds = Rounds(
            flow,
            strategy,
            tracks,
            batch=budget.batch,
            patience=budget.patience,
            enough=budget.enough,
            over=stages.add,
        )
        screen.stage("search", lambda: sum(track.finished for track in tracks))
        rounds.run(lambda: flow.spent - stages.spent < budget.limit(0.0), stages.start_next)
        entrants = stages.entrants
        screen.stage("race", lambda: sum(bool(e.ranking) for e in entrants))
        stages.race(budget.limit(RACED))
        screen.stage("gate", lambda: 0)
        stages.gate(budget.limit(GATED))
        screen.stage("finals", lambda: sum(bool(e.gains) for e in entrants))
        stages.finals(budget.limit(FINISHED))
        return _confirm_winners(flow, stages, screen, budget, sanitize)


def find_dependent_kernels(
    store: Store,
    won: Won,
    builder: Builder,
    evaluator: Evaluator,
    budget: Budget,
    progress: Progress = lambda snapshot: None,
    *,
    spaces: Callable[[Problem], Space] = Space,
    seed: int | None = None,
    followers: Followers = lambda problem: (),
) -> dict[Problem, list[CompiledKernel]]:
    """Kernels that read ahead, for what earlier runs `won`: of each problem the `budget.finalists`
    fastest behind one another, among few that passed the gate. What they are worth
    `generate measure dependent` measures, so nothing is confirmed. Goes on and raises as `generate`
    does."""
    with _open_jobs(store, builder, evaluator, budget, "follow", list(won), seed) as flow:
        tracks = [Track(problem, spaces, order) for order, problem in enumerate(won)]
        stages = FinalStages(flow, tracks, budget.counts, followers)
        screen = _begin_screen(flow, stages, budget, progress)
        screen.stage("build", lambda: sum(bool(e.gains) for e in stages.entrants))
        stages.won(won)
        screen.stage("behind", lambda: sum(bool(e.dependent_kernels) for e in stages.entrants))
        stages.time_dependent(budget.limit(TIMED))
        screen.stage("gate", lambda: 0)
        return stages.choose_few(budget.limit(1.0), budget.finalists)


@contextlib.contextmanager
def _open_jobs(
    store: Store,
    builder: Builder,
    evaluator: Evaluator,
    budget: Budget,
    strategy: str,
    problems: Sequence[Problem],
    seed: int | None,
) -> Iterator[RunJobs]:
    runs = store.runs()
    seed = runs[0]["seed"] if runs else secrets.randbits(63) if seed is None else seed
    _check_same_gpu(store, evaluator.facts())
    config = {"strategy": strategy, "seed": seed, "budget": asdict(budget)}
    config |= {"problems": len(problems), "toolchain": dict(builder.toolchain)}
    run = store.add_run(config)
    with contextlib.closing(RunJobs(store, builder, evaluator, run=run, seed=seed)) as flow:
        yield flow
    busy.add(store.folder, run, flow.busy.seconds())


def _begin_screen(
    flow: RunJobs, stages: FinalStages, budget: Budget, progress: Progress
) -> _ProgressDisplay:
    screen = _ProgressDisplay(flow, stages, budget, progress)
    flow.tick = screen.tick
    screen.stage("ceilings", lambda: 0)
    _ceilings(flow)
    return screen


def _confirm_winners(
    flow: RunJobs, stages: FinalStages, screen: _ProgressDisplay, budget: Budget, sanitize: Sanitize
) -> Summary:
    entrants = stages.entrants
    screen.stage("behind", lambda: sum(bool(e.dependent_kernels) for e in entrants))
    stages.time_dependent(budget.limit(TIMED))
    flow.evaluator.prepare()  # gates are not timed
    stages.gate_confirmable(budget.limit(DEPENDENT_GATED))
    flow.evaluator.fresh()  # what is published comes from processes that never selected anything
    screen.stage("noise", lambda: 0)
    sanitize.prepare()
    stages.noise(budget.limit(1.0))
    screen.stage("confirm", lambda: sum(e.confirmed is not None for e in entrants))
    stages.confirm(budget.limit(1.0))
    kernels = stages.find_unsanitized()
    screen.stage("sanitize", lambda: stages.sanitized, len(kernels), "kernels sanitized")
    stages.sanitize(kernels, sanitize.judge)
    screen.stage("done", lambda: len(entrants))
    return _summary(flow, stages)


def _check_same_gpu(store: Store, facts: DeviceFacts) -> None:
    for known in store.devices():
        if known.name != facts.name:
            raise ValueError(
                f"{store.folder} has measurements of {known.name}, here is {facts.name}: "
                "take another run folder"
            )


def _ceilings(flow: RunJobs) -> None:
    """Measure what the machine can do at most, unless the store knows. There is no veto without it,
    so that nothing else is measured before; compilers do not wait for it."""

    def learn(reply: Reply) -> None:
        peaks = {n: reply.evidence[n] for n in ("peak_tflops", "peak_gbps") if n in reply.evidence}
        flow.facts = replace(flow.facts, **peaks)

    known = flow.find_replies("ceilings", None, [])
    if known:
        learn(known[-1])
    else:
        flow.submit_first("ceilings", learn)


class _ProgressDisplay:
    """What `progress` is shown."""

    def __init__(
        self, flow: RunJobs, stages: FinalStages, budget: Budget, progress: Progress
    ) -> None:
        self._flow, self._stages, self._budget = flow, stages, budget
        self._progress = progress
        self._stage, self._of, self._total, self._shown = "", "", 0, 0.0
        self._done: Callable[[], int] = int

    def stage(
        self, name: str, done: Callable[[], int], total: int | None = None, of: str = "problems"
    ) -> None:
        self._stage, self._done, self._shown = name, done, 0.0
        self._of, self._total = of, len(self._stages.entrants) if total is None else total
        self.tick()

    def tick(self) -> None:
        if time.monotonic() - self._shown < _SHOWN_S:
            return
        self._shown = time.monotonic()
        flow, entrants = self._flow, self._stages.entrants
        snapshot = Snapshot(
            stage=self._stage,
            total=self._total,
            done=self._done(),
            spent=flow.spent,
            budget=self._budget.gpu_seconds,
            kernels=_count_built(flow),
            failures=flow.failures,
            screened=_count_screened(self._stages),
            speedup=geometric([e.gain for e in entrants]),
            of=self._of,
            busy=flow.busy.seconds(),
        )
        self._progress(snapshot)


def _count_built(flow: RunJobs) -> int:
    return sum(not isinstance(one, Verdict) for one in flow.kernels.values())


def _count_screened(stages: FinalStages) -> int:
    return sum(len(entrant.track.told) for entrant in stages.entrants)


def _summary(flow: RunJobs, stages: FinalStages) -> Summary:
    entrants, given_up = stages.entrants, dict(flow.given_up)
    likely = [entrant for entrant in entrants if entrant.winners]
    won = [e.confirmed for e in likely if e.confirmed is not None and wins(e.confirmed)]
    return Summary(
        problems=len(entrants),
        finished=sum(e.track.finished and e.track.problem not in given_up for e in entrants),
        screened=_count_screened(stages),
        kernels=_count_built(flow),
        finals=sum(bool(entrant.gains) for entrant in entrants),
        likely=len(likely),
        confirmed=len(won),
        unconfirmed=sum(e.confirmed is None and e.track.problem not in given_up for e in likely),
        speedup=geometric([mean(each) for each in won]),
        spent=flow.spent,
        quarantined=len(flow.store.quarantine_records()),
        given_up=given_up,
    )
