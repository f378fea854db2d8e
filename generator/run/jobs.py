"""Jobs and builds on their way: what keeps every GPU busy, and commits each answer before use.

Called by the phases of a run (`rounds`, `finals`), from one thread. Compilers and devices work
meanwhile; their answers come back as events, one at a time. What was measured before is not
measured again, what no machine could do is put into quarantine here, and a problem whose job fails
whatever the kernels is given up.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from statistics import median
from time import monotonic
from typing import Any

from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    Job,
    Reply,
    Result,
    Status,
    Verdict,
    same,
)
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.generator.gates.coverage import gate as coverage
from hgemm_packs.generator.store.busy import Busy
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.builder import Builder
from hgemm_packs.generator.workers.evaluators import Evaluator
from hgemm_packs.problem import Problem

Built = Mapping[Choice, CompiledKernel | Verdict]
QUEUED = 2  # jobs a device: one running, one waiting
#: While one job holds up all others, so many times the batches are under way: compilers need not
#: wait for it.
HELD_UP = 4
#: How long a run that ends by an exception waits for what its devices are about to answer: longer
#: than most jobs take, shorter than anybody's patience.
GRACE_S = 2.0
_ABSENT = (math.inf,)  # the time of what was not measured
PASSED = (Status.OK, Status.SLOWER, Status.NOISE)


class RunJobs:
    """One run's traffic. `tick` is called after every event."""

    def __init__(
        self,
        store: Store,
        builder: Builder,
        evaluator: Evaluator,
        *,
        run: str,
        seed: int,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.builder, self.evaluator = store, builder, evaluator
        self.run, self._seed, self.tick = run, seed, tick
        self.toolchain = store.add_toolchain(builder.toolchain)
        self.facts = evaluator.facts()
        self.kernels: dict[Choice, CompiledKernel | Verdict] = {}
        self.refused = store.refused_kernels()
        self.given_up: dict[Problem, str] = {}  # why; until the next call on this store
        self.spent = sum(store.spent_gpu_seconds().values())
        self.spent_here: defaultdict[str, float] = defaultdict(
            float
        )  # GPU-seconds of this call by kind of job
        self.busy = Busy(monotonic)
        self.jobs = self.builds = self.failures = self._running = 0
        self._held = False  # by a job that all others wait for
        self._waiting: deque[Callable[[], None]] = deque()
        self._inspecting: set[str] = set()
        self._hopeful: list[tuple[set[str], Callable[[], None]]] = []  # wait for inspections
        self._asked: dict[Future[Reply], Job] = {}  # with the evaluator, not committed yet
        #: Batches to have under way so that neither GPUs nor compilers wait.
        self.ahead = QUEUED * evaluator.capacity + 2 + builder.workers // 4
        self._threads = ThreadPoolExecutor(self.ahead, "build")
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def close(self) -> None:
        """Forget what is under way, but for answers that are there or come within GRACE_S: they go
        into the store, or the next run would measure them again."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(self._asked, GRACE_S)
        for future, job in self._asked.items():
            # What ended the run is what its caller hears of, not what comes of this.
            with contextlib.suppress(Exception):
                self._commit(job, future.result(timeout=0))

    @property
    def under_way(self) -> int:
        """Batches that are built or measured, or wait for either."""
        return self.jobs + self.builds - self._held

    def _count_builds(self, more: int) -> None:
        self.builds += more
        self.busy.note(self.builds > 0, self._running > 0)

    def _count_running(self, more: int) -> None:
        self._running += more
        self.busy.note(self.builds > 0, self._running > 0)

    def seed(self, kind: str, problem: Problem | None, ids: Iterable[str]) -> int:
        """The seed of a job: the same when a killed run repeats it, another for every other job,
        and not to be guessed without the run's own."""
        text = f"{self._seed} {kind} {problem} {sorted(ids)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def build(self, choices: Sequence[Choice], then: Callable[[Built], None]) -> None:
        """Call `then` with the kernels of all `choices`: at once where they are known, else when
        they are built and the builds are in the store."""
        missing = [choice for choice in choices if not self._is_known(choice)]
        if not missing:
            then({choice: self.kernels[choice] for choice in choices})
            return
        self._count_builds(1)
        answer = partial(self._take_builds, choices, then)
        if self.builder.workers:
            self._expect(self._threads.submit(self._compile, missing), answer)
        else:
            done: Future[Built] = Future()
            done.set_result(self._compile(missing))
            self._expect(done, answer)

    def find_kernel(self, choice: Choice) -> CompiledKernel | Verdict | None:
        """What a choice was built to, in this call or before; None where it was not."""
        return self.kernels[choice] if self._is_known(choice) else None

    def _is_known(self, choice: Choice) -> bool:
        if choice not in self.kernels:
            stored = self.store.find_build(choice, self.toolchain)
            if stored is None:
                return False
            self.kernels[choice] = stored
        return True

    def _compile(self, choices: Sequence[Choice]) -> Built:
        built = self.builder.build(choices)
        for one in built.values():
            if isinstance(one, CompiledKernel):
                self.store.put_blob(one.cubin)  # slow, for it reaches the disk: here, not in step
        return built

    def _take_builds(
        self, choices: Sequence[Choice], then: Callable[[Built], None], new: Built
    ) -> None:
        self._count_builds(-1)
        with self.store.transaction():
            for choice, one in new.items():
                self.store.add_build(choice, self.toolchain, one)
        self.kernels.update(new)
        self.failures += sum(isinstance(one, Verdict) for one in new.values())
        then({choice: self.kernels[choice] for choice in choices})

    def inspect(self, kernels: Sequence[CompiledKernel], then: Callable[[], None]) -> None:
        """Take kernels through the gates that read their code; call `then` when the verdicts are in
        the store. A kernel that is on its way through them is waited for. What a run of before the
        last of them, the size gate, passed goes through them again."""
        seen = self.store.verdicts(coverage.GATE).keys() | self.refused.keys()
        missing = {kernel.id: kernel for kernel in kernels if kernel.id not in seen}
        if not missing:
            then()
            return
        self._hopeful.append((set(missing), then))
        fresh = [kernel for id_, kernel in missing.items() if id_ not in self._inspecting]
        if fresh:
            self._inspecting.update(kernel.id for kernel in fresh)
            self._count_builds(1)
            self._expect(self._threads.submit(self.builder.inspect, fresh), self._take_inspections)

    def _take_inspections(self, verdicts: Mapping[str, Verdict]) -> None:
        self._count_builds(-1)
        self.judge(verdicts)
        self._inspecting -= verdicts.keys()
        waiting, self._hopeful = self._hopeful, []
        for ids, then in waiting:
            ids -= verdicts.keys()
            if ids:
                self._hopeful.append((ids, then))
            else:
                then()

    def judge(self, verdicts: Mapping[str, Verdict]) -> None:
        """Commit a gate's verdicts; what is refused runs no more."""
        with self.store.transaction():
            for kernel, verdict in verdicts.items():
                self.store.add_verdict(kernel, verdict)
        failed = sum(not verdict.passed for verdict in verdicts.values())
        if failed:
            self.failures += failed
            self.refused = self.store.refused_kernels()

    def find_replies(
        self, kind: str, problem: Problem | None, ids: Sequence[str] | None = None
    ) -> list[Reply]:
        """Answers to this job, measured before under the conditions of this run; to any of its kind
        and problem where no kernels are named. A job all of whose kernels took their device along
        has none on record: they failed, whoever it was."""
        found = (done.reply for done in self.store.finished_jobs(kind, problem, ids))
        found = (r for r in found if r.device is None or same(r.device, self.facts))
        return [reply for reply in found if "failed" not in reply.evidence]

    def submit(
        self,
        kind: str,
        problem: Problem | None,
        kernels: Sequence[CompiledKernel],
        then: Callable[[Reply], None],
        repeat: int = 0,
    ) -> None:
        """Have a job done; `then` gets the reply when it is in the store, at once that of a problem
        which was given up. `repeat` tells a job from one before that asked the same."""
        self.jobs += 1
        self._waiting.append(partial(self._start, kind, problem, kernels, then, repeat))
        self._advance()

    def submit_first(self, kind: str, then: Callable[[Reply], None]) -> None:
        """Have a job without problem or kernels done before all others. What is asked for until it
        is answered is built and waits."""

        def go_on(reply: Reply) -> None:
            self._held = False
            then(reply)
            self._advance()

        self.submit(kind, None, [], go_on)
        self._held = True

    def _advance(self) -> None:
        """Give the evaluator what it can queue. The rest waits here, where a kernel that is refused
        meanwhile can still be left out: one that hangs is tried on few problems."""
        while self._waiting and not self._held and self._running < QUEUED * self.evaluator.capacity:
            self._waiting.popleft()()

    def _start(
        self,
        kind: str,
        problem: Problem | None,
        kernels: Sequence[CompiledKernel],
        then: Callable[[Reply], None],
        repeat: int,
    ) -> None:
        if problem in self.given_up:
            failed = Reply({}, evidence={"failed": self.given_up[problem]})
            self._events.put(partial(self._answer, then, failed))
            return
        unique = {kernel.id: kernel for kernel in kernels}
        out = {k: Result(self.refused[k]) for k in unique if k in self.refused}
        left = tuple(kernel for id_, kernel in unique.items() if id_ not in out)
        if out and not left:
            self._events.put(partial(self._answer, then, Reply(out)))
            return
        seed = self.seed(kind, problem, (kernel.id for kernel in left)) + repeat
        job = Job(kind, problem, left, seed)
        self._count_running(1)
        future = self.evaluator.submit(job)
        self._asked[future] = job
        self._expect(future, partial(self._commit_reply, future, out, then))

    def _expect(self, future: Future[Any], then: Callable[[Any], None]) -> None:
        future.add_done_callback(lambda f: self._events.put(lambda: then(f.result())))

    def _commit_reply(
        self,
        future: Future[Reply],
        out: Mapping[str, Result],
        then: Callable[[Reply], None],
        reply: Reply,
    ) -> None:
        """Commit a reply before anybody sees it."""
        self._count_running(-1)
        job = self._asked.pop(future)
        hacks = self._commit(job, reply)
        self.spent += reply.gpu_seconds
        self.spent_here[job.kind] += reply.gpu_seconds
        needed = job.kind != "behind"  # a win is confirmed without kernels that read ahead as well
        if needed and job.problem is not None and "failed" in reply.evidence:
            self.given_up[job.problem] = str(reply.evidence["failed"])
        failed = [k for k, r in reply.results.items() if r.status not in PASSED or k in hacks]
        if failed:
            self.failures += len(failed)
            self.refused = self.store.refused_kernels()
        results = {
            k: Result(Status.HACK, detail=hacks[k].detail) if k in hacks else r
            for k, r in reply.results.items()
        }
        self._advance()
        self._answer(then, replace(reply, results={**results, **out}))

    def _commit(self, job: Job, reply: Reply) -> dict[str, Verdict]:
        """Put a reply into the store, and into quarantine what cannot be true of it: that is
        returned."""
        hacks = self._implausible(job, reply)
        with self.store.transaction():
            self.store.add_reply(self.run, job, reply)
            for kernel, verdict in hacks.items():
                self.store.add_verdict(kernel, verdict, job.problem)
        return hacks

    def _answer(self, then: Callable[[Reply], None], reply: Reply) -> None:
        self.jobs -= 1
        then(reply)

    def _implausible(self, job: Job, reply: Reply) -> dict[str, Verdict]:
        found = {}
        for kernel, result in reply.results.items():
            if job.problem is not None and result.samples and result.status in PASSED:
                hot, cold = (median(result.samples.get(p) or _ABSENT) for p in ("hot", "cold"))
                verdict = plausibility.check(job.problem, hot, cold, self.facts)
                if not verdict.passed:
                    found[kernel] = verdict
        return found

    def drain(self, refill: Callable[[], bool], ahead: int | None = None) -> None:
        """Call `refill`, which starts something and says whether it did, while there is room; end
        when it starts nothing and all is answered. Raises what a build or a device raised."""
        room = self.ahead if ahead is None else ahead
        while True:
            while self.under_way < room * (HELD_UP if self._held else 1) and refill():
                pass
            if not self.jobs + self.builds:
                return
            self._events.get()()
            self.tick()

    def each(self, items: Iterable[Any], start: Callable[[Any], None]) -> None:
        """`drain` over items: `start` is called for each in turn, when there is room."""
        left = iter(items)

        def refill() -> bool:
            for item in left:
                start(item)
                return True
            return False

        self.drain(refill)
