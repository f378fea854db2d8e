"""Mutants that passed the gates of the CPU, through those that run kernels: the numeric gate in
many processes at a time, the state gate alone, then in many the sanitizer, and bit by bit beside
the honest kernel.

Called by `run`. A process that has seen a bad kernel is never used again. What fails for want of
memory, say, stays undecided, and the next call of the run decides it.
"""

from __future__ import annotations

import functools
import os
import queue
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.redteam.mutation import compare, judge
from hgemm_packs.generator.redteam.mutation.draw import draw
from hgemm_packs.generator.redteam.mutation.judge import Line
from hgemm_packs.generator.redteam.on_gpu import PROCESSES, Spares
from hgemm_packs.generator.run import evaluate

NOT_COMPARED = "groups and batches are not compared"

GATE_S = 20.0  # many times what an honest kernel takes; one that waits for ever takes it all
COMPARE_S = 120.0

Write = Callable[[Line], None]
Gate = Callable[[Worker, CompiledKernel, int, Line], Verdict]


def finish(seed: int, lines: Sequence[Line], device: int, write: Write) -> None:
    """Decide the mutants of these lines; `write` takes each line with what became of it. Raises
    SanitizerUnavailable where the tool cannot work at all: without it no mutant has passed."""
    if not lines:
        return
    passed = _Stage(seed, device, write).gate(lines, numeric)
    # Alone: kernels of other processes would clear what a bad one keeps.
    passed = _Stage(seed, device, write).gate(passed, state, processes=1)
    _Stage(seed, device, write).compare(_sanitize(seed, passed, write))


def numeric(worker: Worker, kernel: CompiledKernel, device: int, line: Line) -> Verdict:
    """Verdict of the numeric gate, with the problems that the size gate asks for."""
    further = {"planned": line.get("planned", ())}
    return evaluate.numeric_gate(worker, kernel, device, GATE_S, further)


def state(worker: Worker, kernel: CompiledKernel, device: int, line: Line) -> Verdict:
    """Verdict of the state gate."""
    return evaluate.state_gate(worker, kernel, device, GATE_S)


def kernels(seed: int, line: Line) -> tuple[CompiledKernel, CompiledKernel]:
    """The honest kernel and the mutant of a line."""
    mutant = draw(seed, line["number"])
    made = mutant.candidate
    honest = compiler.build_source(mutant.base.source, mutant.base.fields)
    return (
        compiler.as_kernel(honest),
        compiler.as_kernel(compiler.build_source(made.source, made.fields)),
    )


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

    def __init__(self, seed: int, device: int, write: Write) -> None:
        self.seed, self.device, self.write = seed, device, write
        self.passed: list[Line] = []

    def gate(self, lines: Sequence[Line], ask: Gate, processes: int = PROCESSES) -> list[Line]:
        """Those of the lines whose mutants pass a gate; the others are written."""
        self._share(lines, functools.partial(self._gate, ask), processes)
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
        _, kernel = kernels(self.seed, line)
        with spares.lend() as worker:
            began = time.monotonic()
            try:
                verdict = ask(worker, kernel, self.device, line)
            except RuntimeError:  # not the kernel's: no memory left, say
                worker.close()
                return
        if verdict.passed:
            more = time.monotonic() - began + line.get("gpu_seconds", 0.0)
            self.passed.append(line | {"gpu_seconds": more})
        else:
            self.write(decided(line, judge.CAUGHT, verdict.gate, verdict.detail, began))

    def _compare(self, spares: Spares, line: Line) -> None:
        honest, kernel = kernels(self.seed, line)
        with spares.lend() as worker:
            began = time.monotonic()
            try:
                found = worker.call(
                    compare.on_device,
                    honest,
                    kernel,
                    self.device,
                    secrets.randbits(48),
                    timeout_s=COMPARE_S,
                )
            except (IsolationError, RuntimeError) as error:
                worker.close()
                found = [str(error)]
        outcome = judge.SLIPPED if found or found is None else judge.UNSEEN
        detail = NOT_COMPARED if found is None else "; ".join(found)
        self.write(decided(line, outcome, "", detail, began))


def _sanitize(seed: int, lines: Sequence[Line], write: Write) -> list[Line]:
    """Those of the lines in whose mutants no tool finds anything; the others are written."""
    items = []
    for line in lines:
        _, kernel = kernels(seed, line)
        items.append([(entry(kernel.fields, kernel.cubin), kernel.cubin)])
    clean, began = [], time.monotonic()
    for place, (verdict,) in sweep.check_groups(items, [None] * (os.cpu_count() or 1)):
        if verdict.passed:
            clean.append(lines[place])
        else:
            write(_refused(lines[place], verdict, began))
    return clean


def _refused(line: Line, verdict: Verdict, began: float) -> Line:
    return decided(line, judge.CAUGHT, sanitizer.GATE, verdict.detail, began)
