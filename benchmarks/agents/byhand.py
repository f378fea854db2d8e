"""Problems on which the table is furthest from the floor, and kernels written for them by hand: a
model's place, taken once.

    python -m benchmarks.agents.byhand pick               # writes kernels/problems.json
    python -m benchmarks.agents.byhand brief 3            # what a model would be asked of the third
    python -m benchmarks.agents.byhand check              # the gates that need no GPU
    python -m benchmarks.agents.byhand run OUT.jsonl --seconds 540       # the rest, on a GPU

`kernels/` has the sources, each NAME.cu with its launch record NAME.toml, whose comment says what
was hoped of it. A name is REGIME_MxNxK_LAYOUT_DTYPE, perhaps with one word more.

`run` goes problem by problem: kernels that the CPU's gates pass meet the numeric gate and then one
another, the table's kernel and torch, interleaved. Those that are ahead go through the evaluator,
the fastest first, and are timed once more, with other inputs. "won" is a kernel that passed every
gate and is ahead of torch and of the table's kernel by more than the table's noise floor, hot and
cold, in the second timing. A line a kernel and stage is written at once; a run that is started
again goes on. `benchmarks.folders add agents/byhand OUT.jsonl` puts them into the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.agents.contest import contest
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.candidate import Candidate, CandidateError, load
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.measure.evidence import ratio
from hgemm_packs.measure.lines_file import LinesFile
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import ALIGNED, Problem, alignments_of, regime

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parents[1] / "manifests" / "sm_90a" / "h200"
KERNELS = HERE / "kernels"
PICKED = KERNELS / "problems.json"

#: One aligned problem and one unaligned of each; "decode" are problems of up to 16 rows of A that
#: are not tiny, whatever their regime.
KINDS = ("tiny", "decode", "deep-K", "skinny", "mid", "small-K")
DECODE_ROWS = 16
RULE = (
    "Of each kind, of the problems whose packed rows all begin at multiples of 16 bytes and of the "
    "others: the row of the table whose matmul takes most over the floor, hot. matmul is the "
    "row's kernel where it has one, else torch; the floor is that of benchmarks.publish.h200_page."
)
CONTEST_S = 240.0
LOOK_S, GATES_S = 45.0, 150.0  # of what remains, less than which nothing more is begun


@dataclass(frozen=True, slots=True)
class Picked:
    """A problem, its kind, the name of the table's kernel and the times when it was picked."""

    kind: str
    problem: Problem
    kernel: str | None
    floor_us: float
    matmul_us: float
    torch_us: float

    @property
    def stem(self) -> str:
        """What names of its sources begin with."""
        p, kind = self.problem, self.kind.replace("-", "").lower()
        return f"{kind}_{p.m}x{p.n}x{p.k}_{p.layout}_{p.dtype}"


def kind_of(row: Row) -> str:
    found = regime(row.m, row.n, row.k)
    return "decode" if found != "tiny" and row.m <= DECODE_ROWS else found


def pick(source: SourceManifest) -> list[Picked]:
    """The problems of RULE, in the order of KINDS, the aligned one first."""
    from benchmarks.publish.h200_page import floor_us

    names = {kernel.id: kernel.name for kernel in source.kernels}
    furthest: dict[tuple[str, bool], tuple[float, Picked]] = {}
    for row in source.table:
        if row.epilogue != "none" or row.base != ALIGNED or not row.packed or row.batches > 1:
            continue
        problem = Problem(*row.key)
        takes = row.hot.us if row.kernel else row.hot.torch_us
        floor = floor_us(row.m, row.n, row.k)
        kind = kind_of(row), min(alignments_of(problem, ALIGNED)) == 16
        name = names[row.kernel] if row.kernel else None
        one = Picked(kind[0], problem, name, round(floor, 3), takes, row.hot.torch_us)
        if kind not in furthest or takes / floor > furthest[kind][0]:
            furthest[kind] = takes / floor, one
    return [furthest[kind, aligned][1] for kind in KINDS for aligned in (True, False)]


def write_picked(picked: Sequence[Picked]) -> None:
    problems = [
        {
            "kind": one.kind,
            "problem": [getattr(one.problem, name) for name in ("m", "n", "k", "layout", "dtype")],
            "kernel": one.kernel,
            "floor_us": one.floor_us,
            "matmul_us": one.matmul_us,
            "torch_us": one.torch_us,
        }
        for one in picked
    ]
    document = {"rule": RULE, "problems": problems}
    write_atomically(PICKED, (json.dumps(document, indent=1) + "\n").encode())


def read_picked() -> list[Picked]:
    return [
        Picked(**{**each, "problem": Problem(*each["problem"])})
        for each in json.loads(PICKED.read_text(encoding="utf-8"))["problems"]
    ]


def sources(one: Picked) -> list[Path]:
    """The sources that were written for a problem."""
    return sorted(p for p in KERNELS.glob("*.cu") if f"{p.stem}_".startswith(f"{one.stem}_"))


def brief(one: Picked) -> int:
    """What `generate solve` would ask a model of a problem, and where each part is from."""
    p = one.problem
    words = ["-m", "hgemm_packs", "generate", "solve", f"{p.m},{p.n},{p.k}", "--layout", p.layout]
    words += ["--dtype", p.dtype, "--write", "source", "--show-prompt"]
    return subprocess.run([sys.executable, *words], check=False).returncode


class Session:
    """A run on a GPU, as far as its seconds reach. Every line has "problem", "file", "sha256" of
    source and record, "stage", "status", "words" and "won"."""

    def __init__(self, out: Path, seconds: float, source: SourceManifest, device: int = 0) -> None:
        self._end = time.monotonic() + seconds
        self._source, self._device = source, device
        self._file = LinesFile(out)
        self._done = {(line["sha256"], line["stage"]): line for line in read_records([out])}

    def _left(self, needed: float) -> bool:
        return self._end - time.monotonic() >= needed

    def run(self, picked: Sequence[Picked]) -> None:
        ahead: list[tuple[float, Picked, Path]] = []
        for one in picked:
            for line in self._look(one):
                if (gain := line.get("gain")) and gain > 1.0:
                    ahead.append((gain, one, KERNELS / line["file"]))
        taken = set()
        for _, one, path in sorted(ahead, key=lambda each: -each[0]):
            if one.stem not in taken and self._left(GATES_S):
                taken.add(one.stem)
                self._judge(one, path)

    def _write(self, one: Picked, path: Path, stage: str, **fields: Any) -> dict[str, Any]:
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

    def _look(self, one: Picked) -> Iterator[Mapping[str, Any]]:
        """A line for each source of a problem: refused, or timed beside the others."""
        kernels: dict[str, CompiledKernel] = {}
        for path in sources(one):
            if (line := self._done.get((digest(path), "look"))) is not None:
                yield line
                continue
            if not self._left(LOOK_S):
                continue
            refused, kernel = self._admit(path)
            if kernel is None:
                yield self._write(one, path, "look", **refused)
            else:
                kernels[path.name] = kernel
        if kernels and self._left(LOOK_S):
            yield from self._time(one, kernels)

    def _admit(self, path: Path) -> tuple[dict[str, Any], CompiledKernel | None]:
        """The built kernel that the CPU's gates and the numeric gate pass, or what they say."""
        made = read(path)
        verdicts, built = evaluate.build_gates(made)
        if built is None:
            return said(verdicts[-1]), None
        kernel = compiler.as_kernel(built)
        with Worker() as worker:
            further = verdicts[-1].evidence
            verdict = evaluate.numeric_gate(worker, kernel, self._device, further=further)
        return said(verdict), kernel if verdict.passed else None

    def _time(
        self, one: Picked, kernels: Mapping[str, CompiledKernel]
    ) -> Iterator[Mapping[str, Any]]:
        try:
            found = self._contest(one, kernels)
        except (IsolationError, RuntimeError) as error:
            for name in kernels:
                words = f"{type(error).__name__}: {error}"
                yield self._write(one, KERNELS / name, "look", status="LOST", words=words)
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
        made = read(path)
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


def read(path: Path) -> Candidate:
    """Raises CandidateError with the name of the file."""
    try:
        return load(path)
    except OSError as error:
        raise CandidateError(f"{path.name}: {error}") from None


def said(verdict: Any) -> dict[str, Any]:
    return {"status": verdict.status.value, "words": f"{verdict.gate}: {verdict.detail}"[:2000]}


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


def check(picked: Sequence[Picked]) -> int:
    """Prints what the gates that need no GPU say of every source; how many they refuse."""
    refused = 0
    for one in picked:
        for path in sources(one):
            answer = Evaluator(None).judge(read(path), one.problem)
            refused += not answer.verdict.passed
            print(f"{path.stem}: {'passed' if answer.verdict.passed else answer.words}", flush=True)
    return refused


def _out_of_time(*_: object) -> None:
    raise TimeoutError("the seconds of the run are over; what is written stays")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("pick")
    verbs.add_parser("brief").add_argument("number", type=int)
    verbs.add_parser("check")
    run = verbs.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("--seconds", type=int, default=540)
    given = parser.parse_args(words)
    if given.verb == "pick":
        write_picked(pick(read_source(MANIFEST)))
        return 0
    picked = read_picked()
    if given.verb == "brief":
        return brief(picked[given.number - 1])
    if given.verb == "check":
        return min(check(picked), 1)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(given.seconds)
    try:
        Session(given.out, given.seconds, read_source(MANIFEST)).run(picked)
    except TimeoutError as error:
        print(error, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
