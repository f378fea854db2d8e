"""A run of `benchmarks.agents.byhand` on a GPU: kernels through every gate, and beside one another.

What is written here is the raw result; which kernels there are is said by `byhand`.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.agents.byhand_problems import KERNELS, Picked, sources
from benchmarks.agents.contest import contest
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import load
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.measure.evidence import ratio
from hgemm_packs.measure.lines_file import LinesFile

CONTEST_S = 240.0
LOOK_S, GATES_S = 30.0, 90.0  # of what remains, less than which nothing more is begun
ADMIT_AT_ONCE = 4  # numeric gates beside one another: nothing is timed meanwhile

#: Status of what the device or another kernel is to blame for: asked again by the next run.
LOST = "LOST"

Line = Mapping[str, Any]
#: What the gates say of a source, and its kernel where they pass it.
Admitted = tuple[Line, CompiledKernel | None]


class Session:
    """A run on a GPU, as far as its seconds reach. Every line has "problem", "file", "sha256" of
    source and record, "stage", "status", "words" and "won"."""

    def __init__(self, out: Path, seconds: float, source: SourceManifest, device: int = 0) -> None:
        self._end = time.monotonic() + seconds
        self._source, self._device = source, device
        self._file = LinesFile(out)
        self._done = {
            (line["sha256"], line["stage"]): line
            for line in read_records([out])
            if line["status"] != LOST
        }

    def _left(self, needed: float) -> bool:
        return self._end - time.monotonic() >= needed

    def run(self, picked: Sequence[Picked]) -> None:
        ahead: list[tuple[float, Picked, Path]] = []
        with ThreadPoolExecutor(ADMIT_AT_ONCE) as threads:
            asked = {path: threads.submit(self._admit_in_time, path) for path in self._new(picked)}
        for one in picked:
            for line in self._look(one, {path: each.result() for path, each in asked.items()}):
                if (line.get("gain") or 0.0) > 1.0:
                    ahead.append((line["gain"], one, KERNELS / line["file"]))
        taken = set()
        for _, one, path in sorted(ahead, key=lambda each: -each[0]):
            judged = self._done.get((digest(path), "gates"))
            refused = judged is not None and not judged["won"]  # the next best has its turn
            if one.stem not in taken and not refused and self._left(GATES_S):
                taken.add(one.stem)
                self._judge(one, path)

    def _new(self, picked: Sequence[Picked]) -> list[Path]:
        found = [path for one in picked for path in sources(one)]
        return [path for path in found if (digest(path), "look") not in self._done]

    def _write(self, one: Picked, path: Path, stage: str, **fields: Any) -> Line:
        line = {
            "problem": str(one.problem),
            "file": path.name,
            "sha256": digest(path),
            "stage": stage,
            "won": False,
            **fields,
        }
        self._file.write(line)
        print(
            f"{path.stem} {stage}: {line['status']} {line.get('ratios', line['words'])}", flush=True
        )
        return line

    def _look(self, one: Picked, admitted: Mapping[Path, Admitted]) -> Iterator[Line]:
        """A line for each source of a problem: refused, or timed beside the others."""
        kernels: dict[str, CompiledKernel] = {}
        for path in sources(one):
            if (line := self._done.get((digest(path), "look"))) is not None:
                yield line
            elif path in admitted:
                fields, kernel = admitted[path]
                if kernel is not None:
                    kernels[path.name] = kernel
                elif fields:
                    yield self._write(one, path, "look", **fields)
        if kernels and self._left(LOOK_S):
            yield from self._time(one, kernels)

    def _admit_in_time(self, path: Path) -> Admitted:
        if not self._left(LOOK_S):
            return {}, None
        try:
            return self._admit(path)
        except (IsolationError, RuntimeError) as error:
            return lost(error), None

    def _admit(self, path: Path) -> Admitted:
        """The built kernel that the CPU's gates and the numeric gate pass, or what they say. Called
        by several threads."""
        made = load(path)
        verdicts, built = evaluate.build_gates(made)
        if built is None:
            return said(verdicts[-1]), None
        kernel = compiler.as_kernel(built)
        with Worker() as worker:
            further = verdicts[-1].evidence
            verdict = evaluate.numeric_gate(worker, kernel, self._device, further=further)
        return said(verdict), kernel if verdict.passed else None

    def _time(self, one: Picked, kernels: Mapping[str, CompiledKernel]) -> Iterator[Line]:
        try:
            found = self._contest(one, kernels)
        except (IsolationError, RuntimeError) as error:
            for name in kernels:
                yield self._write(one, KERNELS / name, "look", **lost(error))
            return
        for name, fields in found.items():
            yield self._write(one, KERNELS / name, "look", **fields)

    def _contest(
        self, one: Picked, kernels: Mapping[str, CompiledKernel]
    ) -> dict[str, dict[str, Any]]:
        """By file: status, median times and ratios over torch and the table's kernel. Raises
        IsolationError and RuntimeError."""
        table = self._table_kernel(one)
        field = [*kernels.values(), *([table] if table else [])]
        with Worker() as worker:
            worker.call(in_process.warm_up, self._device, timeout_s=evaluate.WARM_UP_S)
            seed = secrets.randbits(48)
            arguments = field, one.problem, self._device, seed
            found = worker.call(contest, *arguments, timeout_s=CONTEST_S)
        samples = found["samples"]
        rivals = {"torch": samples["torch"], **({"table": samples[table.id]} if table else {})}
        return {
            name: compare(found["status"][kernel.id], found["detail"][kernel.id], each, rivals)
            for name, kernel in kernels.items()
            for each in [samples[kernel.id]]
        }

    def _table_kernel(self, one: Picked) -> CompiledKernel | None:
        for kernel in self._source.kernels:
            if kernel.name == one.kernel:
                return compiler.as_kernel(compiler.build_one(kernel.family, kernel.genome))
        return None

    def _judge(self, one: Picked, path: Path) -> None:
        """Every gate by the evaluator, and the times that decide."""
        if (digest(path), "gates") in self._done:
            return
        made = load(path)
        answer = Evaluator(self._device).judge(made, one.problem)
        fields: dict[str, Any] = {
            "status": answer.status,
            "words": answer.words,
            "gates": {verdict.gate: verdict.status.value for verdict in answer.verdicts},
            "evaluated": {protocol: each._asdict() for protocol, each in answer.times.items()},
        }
        if answer.correct:
            kernel = compiler.as_kernel(compiler.build_source(made.source, made.fields))
            timed = self._contest(one, {path.name: kernel})[path.name]
            fields |= {name: timed[name] for name in ("us", "ratios", "gain")}
            fields["won"] = answer.status == "OK" and wins(timed, self._source.policy.noise_floor)
        self._write(one, path, "gates", **fields)


def digest(path: Path) -> str:
    """Of source and record, which a line speaks of."""
    both = path.read_bytes() + b"\0" + path.with_suffix(".toml").read_bytes()
    return hashlib.sha256(both).hexdigest()


def said(verdict: Verdict) -> Line:
    return {"status": verdict.status.value, "words": f"{verdict.gate}: {verdict.detail}"[:2000]}


def lost(error: Exception) -> Line:
    return {"status": LOST, "words": f"{type(error).__name__}: {error}"[:2000]}


def compare(
    status: str,
    detail: str,
    ours: Mapping[str, Sequence[float]],
    rivals: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, Any]:
    """Median times in us, and ratios (value, lower bound) over each rival by protocol; "gain" is
    the least of their values. Only status and words where nothing was timed."""
    if status != "OK" or not ours:
        return {"status": status, "words": detail}
    ratios: dict[str, dict[str, list[float]]] = {}
    us: dict[str, dict[str, float]] = {}
    for protocol, samples in ours.items():
        us[protocol] = {"ours": round(median(samples), 4)}
        ratios[protocol] = {}
        for rival, each in rivals.items():
            found = ratio(each[protocol], samples)
            us[protocol][rival] = round(median(each[protocol]), 4)
            ratios[protocol][rival] = [round(found.value, 4), round(found.lcb, 4)]
    gain = min(value for each in ratios.values() for value, _ in each.values())
    return {"status": status, "words": detail, "us": us, "ratios": ratios, "gain": gain}


def wins(timed: Mapping[str, Any], noise_floor: float) -> bool:
    """Ahead of every rival by more than the noise, hot and cold."""
    bounds = [lcb for each in timed["ratios"].values() for _, lcb in each.values()]
    return len(timed["ratios"]) == 2 and min(bounds) > 1.0 + noise_floor
