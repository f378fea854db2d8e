"""The build service of a run: choices in, kernels that passed the binary gate out, in parallel.

Called by the orchestrator from several threads while GPUs measure. Compilation itself, its cache
and the gate are `compiler`'s and `gates.binary`'s; here are the processes, and what happens when
the compiler takes one of them down.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, Protocol

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.families import FAMILIES, FREE, family
from hgemm_packs.generator.families.base import InvalidGenome
from hgemm_packs.generator.gates import binary
from hgemm_packs.generator.gates.coverage import gate as coverage
from hgemm_packs.generator.gates.dataflow import gate as dataflow
from hgemm_packs.generator.gates.source import static
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, OF_BATCH

#: A kernel takes a second; a compiler that takes this long has lost its way and is ended.
COMPILE_S = 120
#: For so many compilers a process that inspects, which nothing queues before: GPUs wait for it.
COMPILERS_PER_INSPECTOR = 2


class Builder(Protocol):
    """Compiles choices. `toolchain` is all that decides the result; `workers` is how many kernels
    are built at a time, 0 when `compiler` does its work in the caller's thread."""

    workers: int
    toolchain: Mapping[str, Any]

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        """The kernel of each choice, or the verdict that refused it. Any thread may call."""
        ...

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        """The verdict of the gates that read code on each kernel, by id: that of the first which
        refuses it, else of the last. Any thread may call."""
        ...


class ProcessBuilder:
    """`workers` compiler processes, as many as there are CPUs by default, and some that inspect.

    Raises BuildError unless the pinned compiler is installed.
    """

    def __init__(self, workers: int | None = None) -> None:
        compiler.check_nvrtc()
        self.workers = workers or os.cpu_count() or 1
        self.toolchain: Mapping[str, Any] = toolchain()
        self._lock = threading.Lock()
        self._compilers = _Processes(self.workers)
        self._inspectors = _Processes(-(-self.workers // COMPILERS_PER_INSPECTOR))
        self._pending: dict[Choice, Future[CompiledKernel | Verdict]] = {}

    def begin(self, choices: Sequence[Choice]) -> None:
        """Compile choices that `build` will be asked for, without waiting for any."""
        for choice in choices:
            self._submit(choice)

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        """A choice that another thread has asked for is waited for, not compiled twice. Raises what
        the disassembler raises when it is missing."""
        futures = {choice: self._submit(choice) for choice in choices}
        return {choice: self._result(choice, future) for choice, future in futures.items()}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        with self._lock:
            futures = {kernel.id: self._inspectors.submit(inspect, kernel) for kernel in kernels}
        return {id_: future.result() for id_, future in futures.items()}

    def _submit(self, choice: Choice) -> Future[CompiledKernel | Verdict]:
        with self._lock:
            if choice not in self._pending:
                self._pending[choice] = self._compilers.submit(make, choice)
            return self._pending[choice]

    def _result(
        self, choice: Choice, future: Future[CompiledKernel | Verdict]
    ) -> CompiledKernel | Verdict:
        try:
            return future.result()
        except BrokenProcessPool:
            return self._build_apart(choice)
        finally:
            with self._lock:
                self._pending.pop(choice, None)

    def _build_apart(self, choice: Choice) -> CompiledKernel | Verdict:
        """Build in a process of its own: some choice took a whole pool down, maybe this one."""
        with _pool(1) as pool:
            try:
                return pool.submit(make, choice).result()
            except BrokenProcessPool:
                words = f"{choice.name}: the compiler died or took {COMPILE_S} s"
                return Verdict("build", Status.BUILD, words)

    def close(self) -> None:
        """End the processes; what they are compiling is lost."""
        self._inspectors.close()
        self._compilers.close()

    def __enter__(self) -> ProcessBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Processes:
    """A pool that is made anew where a compiler has taken it down."""

    def __init__(self, count: int) -> None:
        self._count, self._pool = count, _pool(count)

    def submit(self, work: Callable[[Any], Any], item: Choice | CompiledKernel) -> Future[Any]:
        try:
            return self._pool.submit(work, item)
        except BrokenProcessPool:
            self._pool = _pool(self._count)
            return self._pool.submit(work, item)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def toolchain() -> dict[str, Any]:
    """Compiler, options, and a hash over the sources of all families as the compiler sees them."""
    sources = {name: compiler.expand_source(family.source) for name, family in FAMILIES.items()}
    text = "\0".join(f"{name}\0{source}" for name, source in sorted(sources.items()))
    return {
        "nvrtc": compiler.NVRTC_PIN,
        "arch": compiler.ARCH,
        "flags": list(compiler.FLAGS),
        "sources": hashlib.sha256(text.encode()).hexdigest(),
    }


#: Layouts of kernels that make several products in a launch.
OF_SEVERAL = (*OF_BATCH.values(), GROUPED_LAYOUT)


def make(choice: Choice) -> CompiledKernel | Verdict:
    """Build one choice and check its cubin as far as goes without disassembly, in this process:
    that would take as long as the compiler, and only finalists need it."""
    signal.alarm(COMPILE_S)  # unhandled: ends the process, in the midst of the compiler as well
    try:
        built = compiler.build_one(choice.family, choice.genome)
    except InvalidGenome as error:
        return Verdict("build", Status.PARSE, str(error))
    except compiler.BuildError as error:
        return Verdict("build", Status.BUILD, str(error))
    finally:
        signal.alarm(0)
    verdict = binary.check_image(built.entry_fields, built.cubin)
    return compiler.as_kernel(built) if verdict.passed else verdict


def inspect(kernel: CompiledKernel) -> Verdict:
    """The whole binary gate, and behind it the data-flow gate and the size gate, whose verdict
    carries the evidence of all; of a free source the static gate before these two. A kernel that
    the tested problems do not cover is refused: the numeric gate runs no others on it, but of
    several products at once, for which it draws its own. Raises SassError without the
    disassembler."""
    fields = kernel.fields
    verdict = binary.check(fields, kernel.cubin)
    if not verdict.passed:
        return verdict
    source = compiler.render(fields["family"], family(fields["family"]).whole(fields["genome"]))
    if fields["family"] in FREE and not (read := static.check(source, fields)).passed:
        return read
    followed = dataflow.check(fields, source)
    evidence = {**followed.evidence, "binary": verdict.evidence}
    if followed.passed:
        followed = coverage.check(fields, source)
        evidence |= followed.evidence
        further = [*followed.evidence.get("planned", ()), *followed.evidence.get("large", ())]
        if followed.passed and further and fields["param_layout"] not in OF_SEVERAL:
            told = f"untested: what {further[0]} alone decides, and no list has that problem"
            followed = replace(followed, status=Status.COVERAGE, detail=told)
    return replace(followed, evidence=evidence)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not forked: this process has threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Leave when the parent is gone, however it went: a pool's process would wait for ever. A death
    signal would come too early, when the thread that started the process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
