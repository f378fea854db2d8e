"""The part of the red-team run that launches kernels: numeric and isolation gates in many processes
at a time, the state gate alone, then the sanitizer in many, then times, alone.

Called by `run`. A process that has seen a bad kernel is never used again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.core.spec import CompiledKernel, DeviceFacts, Verdict
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.gates import isolation, sanitizer, sweep
from hgemm_packs.generator.gates.isolation import Worker
from hgemm_packs.generator.gates.state import gate as state
from hgemm_packs.generator.redteam.book import Book
from hgemm_packs.generator.redteam.corpus import PASS, Case
from hgemm_packs.generator.redteam.outcome import CaseOutcome
from hgemm_packs.generator.run import evaluate
from hgemm_packs.pack.manifest import DimRange, KernelEntry
from hgemm_packs.problem import Problem

PROCESSES, SPARES = 10, 6  # each a context on the one GPU
GATE_S = 60.0
FATAL_S = 10.0  # for a kernel that is expected never to end
#: Of the machine, not of the kernel: asked again by a run that goes on.
NO_VERDICTS = ("error", "unavailable")
SIDE = 256  # of the problem that honest kernels are timed on


class _Pass:
    """One GPU stage over the corpus: what it works on, and where its outcomes go."""

    def __init__(
        self,
        cases: Sequence[Case],
        built: Mapping[str, Built],
        outcomes: dict[str, CaseOutcome],
        device: int,
        settled: Callable[[int], None],
        book: Book,
    ) -> None:
        self.cases = {case.name: case for case in cases}
        self.kernels = {name: compiler.as_kernel(built[name]) for name in self.cases}
        self.outcomes, self.device, self._settled = outcomes, device, settled
        self._book, self._stage = book, ""
        self._left = {name for name in self.cases if not book.restore(outcomes[name])}
        self._lock = threading.Lock()
        settled(len(self.cases) - len(self._left))

    def begin(self, stage: str) -> list[str]:
        """Cases that no gate has rejected and that `stage` has not met."""
        self._stage = stage
        alive = [name for name in self.cases if self.outcomes[name].got_gate == PASS]
        return [name for name in alive if name in self._left and not self._book.has(stage, name)]

    def file_verdict(self, name: str, gate: str, detail: str, seconds: float, final: bool) -> None:
        """File what a gate said; `final` when no gate comes after it."""
        with self._lock:
            outcome = self.outcomes[name]
            outcome.undecided = False
            outcome.got_gate, outcome.detail = gate, detail[:600]
            outcome.seconds = round(outcome.seconds + seconds, 3)
            final = final or gate != PASS
            if gate not in NO_VERDICTS:
                self._book.write(self._stage, outcome, final)
            if final:
                self._left.discard(name)
                self._settled(len(self.cases) - len(self._left))

    def numeric(self) -> None:
        """Numeric and isolation gates. What is expected to kill its process comes last."""
        order = sorted(
            (self.cases[name] for name in self.begin("numeric")),
            key=lambda c: (isolation.GATE in c.expect, not c.honest),
        )
        if not order:
            return
        todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        for case in order:
            todo.put(case.name)
        count = min(PROCESSES, os.cpu_count() or 1, len(order))
        with Spares(self.device) as spares, ThreadPoolExecutor(count) as pool:
            serving = [pool.submit(self._serve, todo, spares, self._numeric) for _ in range(count)]
            for future in serving:
                future.result()

    def state(self) -> None:
        """The state gate. Alone: other processes' kernels would clear what a bad one keeps."""
        todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in self.begin("state"):
            if self._meets_state(name):
                todo.put(name)
        if not todo.empty():
            with Spares(self.device) as spares:
                self._serve(todo, spares, self._state)

    def _numeric(self, worker: Worker, name: str, limit_s: float) -> Verdict:
        further = self.outcomes[name].further
        return evaluate.numeric_gate(worker, self.kernels[name], self.device, limit_s, further)

    def _state(self, worker: Worker, name: str, limit_s: float) -> Verdict:
        further = self.outcomes[name].further
        return evaluate.state_gate(worker, self.kernels[name], self.device, limit_s, further)

    def _serve(
        self, todo: queue.SimpleQueue[str], spares: Spares, gate: Callable[..., Verdict]
    ) -> None:
        worker = spares.take()
        try:
            while True:
                try:
                    name = todo.get_nowait()
                except queue.Empty:
                    return
                if not worker.alive:
                    worker = spares.take()
                began = time.monotonic()
                limit_s = FATAL_S if isolation.GATE in self.cases[name].expect else GATE_S
                try:
                    verdict = gate(worker, name, limit_s)
                except RuntimeError as error:  # not the kernel's: no memory left, say
                    worker.close()
                    self.file_verdict(
                        name, "error", str(error), time.monotonic() - began, final=True
                    )
                else:
                    self._file(name, verdict, time.monotonic() - began)
        finally:
            worker.close()

    def _meets_state(self, name: str) -> bool:
        """Whether the state gate must reject a case, or pass it."""
        return self.cases[name].honest or state.GATE in self.cases[name].expect

    def _file(self, name: str, verdict: Verdict, seconds: float) -> None:
        case = self.cases[name]
        gate = PASS if verdict.passed else verdict.gate
        more = sanitizer.GATE in case.expect or case.honest
        more = more or (self._stage == "numeric" and self._meets_state(name))
        self.file_verdict(name, gate, verdict.detail, seconds, final=not more)

    def sanitize(self) -> None:
        """The sanitizer: each bad kernel alone, the slowest of all, then honest ones in groups."""
        names = self.begin("sanitizer")
        if not names:
            return
        honest = [n for n in names if self.cases[n].honest]
        bad = [n for n in names if sanitizer.GATE in self.cases[n].expect]
        seats: list[sweep.Seat] = [None] * (os.cpu_count() or 1)
        size = sweep.group_size(len(honest) * len(sanitizer.TOOLS), len(seats))
        groups = [*([name] for name in bad), *sweep.deal(honest, size)]
        items = [[self._item(name) for name in names] for names in groups]
        told: set[str] = set()
        last = time.monotonic()
        try:
            for place, verdicts in sweep.check_groups(items, seats):
                now = time.monotonic()
                for name, verdict in zip(groups[place], verdicts, strict=True):
                    gate, final = PASS if verdict.passed else verdict.gate, name in bad
                    self.file_verdict(
                        name, gate, verdict.detail, (now - last) / len(verdicts), final
                    )
                told.update(groups[place])
                last = now
        except sanitizer.SanitizerUnavailable as error:
            for name in bad:
                if name not in told:  # an honest kernel goes on without
                    self.file_verdict(name, "unavailable", str(error), 0.0, final=True)

    def _item(self, name: str) -> sanitizer.Item:
        return sweep.item(self.kernels[name], self.outcomes[name].further)

    def measure(self) -> None:
        """Times of the honest kernels, one after the other, for the plausibility gate."""
        names = [name for name in self.begin("timing") if self.cases[name].honest]
        if not names:
            return
        worker = _start_worker(self.device)
        try:
            facts = evaluate.measure_facts(worker, self.device)
            for name in names:
                if not worker.alive:
                    worker = _start_worker(self.device)
                began = time.monotonic()
                verdict = self._plausible(worker, self.kernels[name], facts)
                gate = PASS if verdict.passed else verdict.gate
                self.file_verdict(name, gate, verdict.detail, time.monotonic() - began, final=True)
        finally:
            worker.close()

    def _plausible(self, worker: Worker, kernel: CompiledKernel, facts: DeviceFacts) -> Verdict:
        problem, seed = _problem(kernel), secrets.randbits(48)
        verdict = evaluate.call_gate(
            worker,
            in_process.measure,
            "race",
            kernel,
            problem,
            self.device,
            seed,
            limit_s=GATE_S,
        )
        if verdict.gate == "timing" and verdict.passed:
            return evaluate.plausible(verdict, problem, facts)
        return verdict


class Spares:
    """Processes that start and warm up before they are needed."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._waiting: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def __enter__(self) -> Spares:
        for _ in range(PROCESSES + SPARES):
            self._waiting.put(_start_worker(self._device))
        return self

    def take(self) -> Worker:
        """The one that has waited longest; another starts in its place."""
        self._waiting.put(_start_worker(self._device))
        return self._waiting.get()

    @contextlib.contextmanager
    def lend(self) -> Iterator[Worker]:
        """The one that has waited longest. It waits again once it is given back, or another does in
        its place where it has been ended."""
        worker = self._waiting.get()
        try:
            yield worker
        except BaseException:
            worker.close()
            raise
        finally:
            self._waiting.put(worker if worker.alive else _start_worker(self._device))

    def __exit__(self, *_: object) -> None:
        while not self._waiting.empty():
            self._waiting.get().close()


def _start_worker(device: int) -> Worker:
    worker = Worker()
    worker.begin(in_process.warm_up, device, timeout_s=evaluate.WARM_UP_S)
    return worker


def _problem(kernel: CompiledKernel) -> Problem:
    """A small problem that a kernel admits."""
    record: KernelEntry = entry(kernel.fields, kernel.cubin)

    def side(rule: DimRange) -> int:
        step = rule.multiple_of
        return min(max(rule.min, -(-SIDE // step) * step), rule.max // step * step)

    sides = side(record.m), side(record.n), side(record.k)
    return Problem(*sides, record.layout, record.dtype, epilogue=record.epilogue)


def finish(
    cases: Sequence[Case],
    built: Mapping[str, Built],
    outcomes: dict[str, CaseOutcome],
    device: int,
    settled: Callable[[int], None],
    book: Book,
) -> None:
    """Decide every case that passed the gates of the CPU; `settled(count)` as they are. What `book`
    has is not decided again.

    Raises RuntimeError when the device fails for reasons of its own.
    """
    work = _Pass(cases, built, outcomes, device, settled, book)
    work.numeric()
    work.state()
    work.sanitize()
    work.measure()
