"""Mutants that passed the gates of the CPU, through those that run kernels: the numeric gate in
many processes at a time, the state gate alone, then in many the sanitizer, and bit by bit beside
the honest kernel.

Called by `run`. A process that has seen a bad kernel is never used again. What fails for want of
memory, say, stays undecided with the reason, and the next call of the run decides it. A line is
also written for each gate that its mutant passes (`MET`), so that a killed run asks no gate twice.
Compilers work ahead in processes of their own: the lines may come from a machine without a GPU.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import queue
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.families import BATCHED, GROUPED
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.redteam.mutation import compare, judge
from hgemm_packs.generator.redteam.mutation.draw import draw
from hgemm_packs.generator.redteam.mutation.judge import Line
from hgemm_packs.generator.redteam.on_gpu import PROCESSES, Spares
from hgemm_packs.generator.run import evaluate

OF_MANY = (*GROUPED, *BATCHED)  # families of which a launch is many products
MET = "met"  # of a line: gates of a GPU that its mutant has passed

GATE_S = 20.0  # many times what an honest kernel takes; one that waits for ever takes it all
COMPARE_S = 120.0

Write = Callable[[Line], None]
Gate = Callable[[Worker, CompiledKernel, int, Line], Verdict]


def finish(seed: int, lines: Sequence[Line], device: int, write: Write) -> None:
    """Decide the mutants of these lines; `write` takes each line with what became of it. Raises
    SanitizerUnavailable where the tool cannot work at all: without it no mutant has passed."""
    if not lines:
        return
    with _Ahead(seed, sorted(lines, key=lambda line: len(_met(line))), compile_mutant) as ahead:
        passed = _Stage(seed, device, write, ahead).gate(lines, numeric)
        # Alone: kernels of other processes would clear what a bad one keeps.
        passed = _Stage(seed, device, write, ahead).gate(passed, state, processes=1)
        filling = [line for line in passed if _fills(line)]
        held = _Stage(seed, device, write, ahead).gate(filling, large, processes=1)
        passed = [*(line for line in passed if not _fills(line)), *held]
        clean = _sanitize(seed, passed, write, ahead)
    with _Ahead(seed, clean, compile_pair) as ahead:
        _Stage(seed, device, write, ahead).compare(clean)


def _fills(line: Line) -> bool:
    """Whether a mutant meets problems that fill a card: those that the size gate asks for, or all
    of them where that gate asks for no numbers of groups or products."""
    return bool(line.get("large")) or line["family"] in OF_MANY


def _met(line: Line) -> Sequence[str]:
    return tuple(line.get(MET, ()))


def passed_on(line: Line, gate: str, began: float) -> Line:
    """A line whose mutant has passed one gate more."""
    more = time.monotonic() - began + line.get("gpu_seconds", 0.0)
    return line | {MET: [*_met(line), gate], "gpu_seconds": round(more, 3)}


class _Ahead:
    """Mutants that processes compile in the order in which they will be asked for; what they make
    is in the cache then."""

    def __init__(
        self, seed: int, lines: Sequence[Line], compile_one: Callable[[int, int], None]
    ) -> None:
        self.seed, self.lines, self.compile_one = seed, lines, compile_one
        self.coming: dict[int, Future[None]] = {}

    def __enter__(self) -> _Ahead:
        count = min(os.cpu_count() or 1, max(len(self.lines), 1))
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, mp_context=context)
        for line in self.lines:
            number = int(line["number"])
            self.coming[number] = self._pool.submit(self.compile_one, self.seed, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def wait(self, line: Line) -> None:
        """Return once a mutant is compiled, or will not be ahead."""
        coming = self.coming.get(int(line["number"]))
        if coming is not None:
            coming.exception()  # whoever asks for the kernel meets it


def compile_mutant(seed: int, number: int) -> None:
    """Compile a mutant into the cache."""
    made = draw(seed, number).candidate
    compiler.build_source(made.source, made.fields)


def compile_pair(seed: int, number: int) -> None:
    """Compile a mutant and the honest kernel beside it into the cache."""
    honest = draw(seed, number).honest
    compiler.build_source(honest.source, honest.fields)
    compile_mutant(seed, number)


def numeric(worker: Worker, kernel: CompiledKernel, device: int, line: Line) -> Verdict:
    """Verdict of the numeric gate, with the problems that the size gate asks for."""
    further = {"planned": line.get("planned", ())}
    return evaluate.numeric_gate(worker, kernel, device, GATE_S, further)


def state(worker: Worker, kernel: CompiledKernel, device: int, line: Line) -> Verdict:
    """Verdict of the state gate."""
    further = {"planned": line.get("planned", ())}
    return evaluate.state_gate(worker, kernel, device, GATE_S, further)


def large(worker: Worker, kernel: CompiledKernel, device: int, line: Line) -> Verdict:
    """Verdict of the numeric gate with the problems that fill a card."""
    if line["family"] in OF_MANY:
        worker.call(in_process.warm_up, device, timeout_s=evaluate.WARM_UP_S)
        verdict = evaluate.large_gate(worker, kernel, device)
        if not verdict.passed or not line.get("large"):
            return verdict
    further = {"large": line["large"]}
    return evaluate.numeric_gate(worker, kernel, device, evaluate.GATE_S, further)


def kernel(seed: int, line: Line) -> CompiledKernel:
    """The mutant of a line."""
    made = draw(seed, line["number"]).candidate
    return compiler.as_kernel(compiler.build_source(made.source, made.fields))


def honest_kernel(seed: int, line: Line) -> CompiledKernel:
    """The kernel whose bits the mutant of a line must have."""
    honest = draw(seed, line["number"]).honest
    return compiler.as_kernel(compiler.build_source(honest.source, honest.fields))


def decided(line: Line, outcome: str, gate: str, detail: str, began: float) -> Line:
    """A line with what became of its mutant, and the seconds that it took beside a GPU."""
    more = time.monotonic() - began + line.get("gpu_seconds", 0.0)
    return line | {
        "outcome": outcome,
        "gate": gate,
        "detail": detail[: judge.WORDS],
        "gpu_seconds": round(more, 3),
    }


class _Stage:
    """Work that needs a process on the GPU, over many mutants."""

    def __init__(self, seed: int, device: int, write: Write, ahead: _Ahead) -> None:
        self.seed, self.device, self.write, self.ahead = seed, device, write, ahead
        self.passed: list[Line] = []

    def gate(self, lines: Sequence[Line], ask: Gate, processes: int = PROCESSES) -> list[Line]:
        """Those of the lines whose mutants pass a gate; each answer is written."""
        gate = ask.__name__
        self.passed = [line for line in lines if gate in _met(line)]
        left = [line for line in lines if gate not in _met(line)]
        self._share(left, functools.partial(self._gate, ask), processes)
        return sorted(self.passed, key=lambda line: line["number"])

    def compare(self, lines: Sequence[Line]) -> None:
        """Write of each line whether its mutant's bits are those of the honest kernel."""
        self._share(lines, self._compare, PROCESSES)

    def _share(
        self, lines: Sequence[Line], work: Callable[[Spares, Line], None], processes: int
    ) -> None:
        if not lines:
            return
        todo: queue.SimpleQueue[Line] = queue.SimpleQueue()
        for line in lines:
            todo.put(line)
        count = min(processes, os.cpu_count() or 1, len(lines))

        def serve() -> None:
            while True:
                try:
                    line = todo.get_nowait()
                except queue.Empty:
                    return
                work(spares, line)

        with Spares(self.device) as spares, ThreadPoolExecutor(count) as pool:
            for future in [pool.submit(serve) for _ in range(count)]:
                future.result()

    def _gate(self, ask: Gate, spares: Spares, line: Line) -> None:
        self.ahead.wait(line)
        built = kernel(self.seed, line)
        with spares.lend() as worker:
            began = time.monotonic()
            try:
                verdict = ask(worker, built, self.device, line)
            except RuntimeError as error:  # not the kernel's: no memory left, say
                worker.close()
                self.write(decided(line, judge.UNDECIDED, "", str(error), began))
                return
        if verdict.passed:
            self.passed.append(passed_on(line, ask.__name__, began))
            self.write(self.passed[-1])
        else:
            self.write(decided(line, judge.CAUGHT, verdict.gate, verdict.detail, began))

    def _compare(self, spares: Spares, line: Line) -> None:
        self.ahead.wait(line)
        honest, built = honest_kernel(self.seed, line), kernel(self.seed, line)
        with spares.lend() as worker:
            began = time.monotonic()
            try:
                found = worker.call(
                    compare.on_device,
                    honest,
                    built,
                    self.device,
                    secrets.randbits(48),
                    timeout_s=COMPARE_S,
                )
            except (IsolationError, RuntimeError) as error:
                worker.close()
                found = [str(error)]
        outcome = judge.SLIPPED if found else judge.UNSEEN
        self.write(decided(line, outcome, "", "; ".join(found), began))


def _sanitize(seed: int, lines: Sequence[Line], write: Write, ahead: _Ahead) -> list[Line]:
    """Those of the lines in whose mutants no tool finds anything; each answer is written."""
    clean = [line for line in lines if sanitizer.GATE in _met(line)]
    left = [line for line in lines if sanitizer.GATE not in _met(line)]
    if not left:
        return clean
    seats: list[sweep.Seat] = [None] * (os.cpu_count() or 1)
    # A process takes as long to start as ten kernels: few share one, and one with findings is
    # asked again alone.
    size = sweep.group_size(len(left) * len(sanitizer.TOOLS), len(seats))
    groups = sweep.deal(left, size)
    for line in left:
        ahead.wait(line)
    items = [[sweep.item(kernel(seed, line), line) for line in group] for group in groups]
    began = time.monotonic()
    for place, verdicts in sweep.check_groups(items, seats):
        for line, verdict in zip(groups[place], verdicts, strict=True):
            if verdict.passed:
                clean.append(passed_on(line, sanitizer.GATE, began))
                write(clean[-1])
            else:
                write(_refused(line, verdict, began))
        began = time.monotonic()
    return sorted(clean, key=lambda line: line["number"])


def _refused(line: Line, verdict: Verdict, began: float) -> Line:
    return decided(line, judge.CAUGHT, sanitizer.GATE, verdict.detail, began)
