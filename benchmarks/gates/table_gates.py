"""Every kernel of a pack through the gates of a finalist, timed: what the table's kernels are
worth, and what the gates cost a search.

    python -m benchmarks.gates.table_gates cpu PACK OUT.jsonl [-j N] [--every 1]
    python -m benchmarks.gates.table_gates gpu PACK OUT.jsonl [-j N] [--every 1] [--part 1/1]
    python -m benchmarks.gates.table_gates state PACK OUT.jsonl [-j N] [--every 1] [--part 1/1]
    python -m benchmarks.gates.table_gates large PACK OUT.jsonl [--every 1] [--part 1/1]

`cpu` asks the static gate, the binary gate, the data-flow gate and the size gate, `gpu` the numeric
gate and `state` the state gate, in -j processes at a time; `large` puts problems that fill a card
to one kernel of each class (`gates/sizes.py`), one at a time. Seconds are a finalist's on a GPU
where -j is left out, and each 50th kernel, by --every, is enough for them. Of two GPUs each takes a
--part, 1/2 and 2/2 (`benchmarks.gpus`). All go on where OUT.jsonl ends. It has a line for each
kernel and part: whether the kernel passed, else the gate and its words, and the seconds of the
gates without the start of a process, `cpu` also those of a CPU. They end with 1 where a kernel was
refused. `python -m benchmarks.gates.figures` sums up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks import gpus
from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.families import family
from hgemm_packs.generator.gates import sizes
from hgemm_packs.generator.gates.isolation import Worker
from hgemm_packs.generator.gates.source import static
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.workers import builder
from hgemm_packs.measure.lines_file import LinesFile
from hgemm_packs.pack.manifest import KernelEntry

LIMIT_S, DEVICE = 300.0, 0
#: Functions of `evaluate` by what they are called here.
GPU_GATES = {"gpu": "numeric_gate", "state": "state_gate", "large": "large_gate"}
Line = dict[str, Any]
Answers = Iterator[tuple[CompiledKernel, Line]]


def judge(kernel: CompiledKernel) -> Line:
    """What the gates of the CPU say of a kernel."""
    fields = dict(kernel.fields)
    source = compiler.render(fields["family"], family(fields["family"]).whole(fields["genome"]))
    began, cpu = time.monotonic(), cpu_seconds()
    verdict = static.check(source, fields)
    if verdict.passed:
        verdict = builder.inspect(kernel)
    return said(verdict, began) | {"cpu_s": round(cpu_seconds() - cpu, 4)}


def cpu_seconds() -> float:
    """What this process and those that it has started took of a CPU."""
    return sum(os.times()[:4])


def said(verdict: Verdict, began: float) -> Line:
    """The part of a line that a verdict makes."""
    words = {"passed": verdict.passed, "gate": verdict.gate, "detail": verdict.detail[:600]}
    return words | {"seconds": round(time.monotonic() - began, 4)}


def by_cpu(kernels: Sequence[CompiledKernel], processes: int) -> Answers:
    """Answers of the gates of the CPU, in order."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from zip(kernels, pool.map(judge, kernels), strict=True)


def by_gpu(
    gate: Callable[..., Verdict], kernels: Sequence[CompiledKernel], processes: int
) -> Answers:
    """Answers of a gate on a GPU, as they come; a process that a kernel has lost is another's
    before the next."""
    workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def ask(kernel: CompiledKernel) -> tuple[CompiledKernel, Line]:
        worker = workers.get()
        try:
            worker.call(in_process.warm_up, DEVICE, timeout_s=evaluate.WARM_UP_S)
            began = time.monotonic()
            return kernel, said(gate(worker, kernel, DEVICE, LIMIT_S), began)
        finally:
            workers.put(worker if worker.alive else Worker())

    for _ in range(processes):
        workers.put(Worker())
    try:
        with ThreadPoolExecutor(processes) as pool:
            for future in as_completed([pool.submit(ask, kernel) for kernel in kernels]):
                yield future.result()
    finally:
        while not workers.empty():
            workers.get().close()


def one_of_each_class(entries: Mapping[str, KernelEntry]) -> dict[str, KernelEntry]:
    """The first kernel of each class, by name."""
    first: dict[tuple[Any, ...], KernelEntry] = {}
    for entry in entries.values():
        facts = {"dtype": entry.dtype, "name": entry.name}
        first.setdefault(sizes.class_of(sizes.fields_of(entry) | facts), entry)
    return {entry.name: entry for entry in first.values()}


def run(
    part: str, pack: Packed, out: Path, processes: int, every: int = 1, of: gpus.Part = gpus.ALL
) -> int:
    """Ask of each kernel, or each of so many, of a part of them, that `out` lacks; how many were
    refused in all."""
    records = read_records([out]) if out.exists() else []
    known = {line["id"]: line for line in records if line.get("part") == part}
    entries = pack.entries if part != "large" else one_of_each_class(pack.entries)
    asked = gpus.share([*entries.items()][::every], of)
    left = [pack.built(name) for name, each in asked if each.id not in known]
    if part == "cpu":
        answers = by_cpu(left, processes)
    else:
        answers = by_gpu(getattr(evaluate, GPU_GATES[part]), left, processes)
    file = LinesFile(out)
    try:
        with progress(console(), f"gates, {part}") as tick:
            for kernel, answer in answers:
                about = {"part": part, "id": kernel.id, "name": str(kernel.fields["name"])}
                known[kernel.id] = about | answer | {"processes": processes}
                file.write(known[kernel.id])
                tick(len(known), len(asked))
    finally:
        file.close()
    return sum(not line["passed"] for line in known.values())


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("cpu", *GPU_GATES))
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path, help="jsonl file; what it has is not asked again")
    parser.add_argument("-j", dest="processes", type=int, help="at a time")
    parser.add_argument("--part", dest="of", type=gpus.part_of, default=gpus.ALL, help="as 1/2")
    parser.add_argument("--every", type=int, default=1, help="kernels of the pack that are asked")
    given = parser.parse_args(words)
    usual = (os.cpu_count() or 1) if given.part == "cpu" else 1
    pack, processes = Packed(given.pack), given.processes or usual
    refused = run(given.part, pack, given.out, processes, given.every, given.of)
    console().print(f"{refused} kernels refused")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
