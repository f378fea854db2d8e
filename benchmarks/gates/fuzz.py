"""Coverage-guided fuzzing of everything that reads bytes of others: manifests, packs, receipts.

nice python -m benchmarks.gates.fuzz WORK [--executions 10000000] [--out FILE] needs atheris==3.0.0
and goes on where it stopped.

Rounds of libFuzzer through atheris, each a process of its own over the corpus in WORK, which starts
as tests/fuzz/seeds. A finding is any exception but PackError, more than 100 ms of processor time,
or a read outside a pack's two files; it stays open until its input no longer shows it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "fuzz" / "seeds"
OUT = ROOT / "benchmarks" / "results" / "distribution" / "fuzz.json"
#: Share of the executions. One costs 30 us of the decoder, 0.2 ms of a manifest and more of a pack.
SHARES = {
    "json": 0.55,
    "manifest": 0.37,
    "pack": 0.05,
    "receipt": 0.015,
    "lock": 0.01,
    "policy": 0.005,
}
READERS = (
    "pack.strict_json",
    "pack.manifest_checks",
    "pack.manifest_reader",
    "pack.manifest_fields",
    "pack.manifest",
    "pack.folder",
    "pack.receipts",
    "distribution.policy",
    "distribution.lockfile",
)
MODULES = [*(f"hgemm_packs.{name}" for name in READERS), "tomllib._parser"]
ROUND = 50_000
COUNTED_EVERY = 500
LONGEST_S = 0.1
#: Of changes, how many start from a seed: most of the corpus is refused at once for what is wrong.
FROM_SEED = 0.4
#: An input of libFuzzer's; the good manifest has 4.5 KB.
MAX_INPUT_BYTES = 16384


class Watch:
    """Runs one target, counts, and writes down what must not happen."""

    def __init__(self, read: Callable[[bytes], None], work: Path, target: str) -> None:
        from tests.fuzz.targets import accepted

        self._accepted, self._read, self._target = accepted, read, target
        self._findings, self._count = work / "findings", work / f"{target}.count"
        self._findings.mkdir(parents=True, exist_ok=True)
        self._runs = self._taken = 0

    def __call__(self, data: bytes) -> None:
        begin = time.thread_time()
        try:
            self._taken += self._accepted(self._read, data)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self._note(f"{type(error).__name__} in {last.name}", data)
        if time.thread_time() - begin > LONGEST_S and self._is_slow(data):
            self._note("hang", data)
        self._runs += 1
        if self._runs % COUNTED_EVERY == 0:
            self._count.write_text(f"{self._runs} {self._taken}")

    def _is_slow(self, data: bytes) -> bool:
        """The best of five: a garbage collection or a page fault is not the input's doing."""
        best = LONGEST_S * 2
        for _ in range(5):
            begin = time.thread_time()
            symptom(self._read, data)
            best = min(best, time.thread_time() - begin)
        return best > LONGEST_S

    def _note(self, what: str, data: bytes) -> None:
        """One input for each symptom of a target; the first is as good as any."""
        name = hashlib.sha256(f"{self._target} {what}".encode()).hexdigest()[:16]
        if not (self._findings / f"{name}.json").exists():
            (self._findings / f"{name}.bin").write_bytes(data)
            facts = {"target": self._target, "what": what, "bytes": len(data)}
            (self._findings / f"{name}.json").write_text(json.dumps(facts))


def symptom(read: Callable[[bytes], None], data: bytes) -> str | None:
    """What the input does that it must not, None where all is well."""
    from tests.fuzz.targets import accepted

    begin = time.thread_time()
    try:
        accepted(read, data)
    except Exception as error:
        return repr(error)[:300]
    return "hang" if time.thread_time() - begin > LONGEST_S else None


def fuzz(target: str, work: Path, runs: int, seed: int) -> None:
    """One round, in this process, which ends in libFuzzer and does not come back."""
    import atheris

    with atheris.instrument_imports(include=MODULES):
        for name in MODULES:
            importlib.import_module(name)
    from tests.fuzz import mutations
    from tests.fuzz.targets import targets

    rng = random.Random()
    whole = [path.read_bytes() for path in sorted((SEEDS / target).iterdir())]

    def change(data: bytes, max_size: int, number: int) -> bytes:
        rng.seed(number)
        if rng.random() < FROM_SEED:
            data = rng.choice(whole)
        new = mutations.mutate(rng, data, lambda part: atheris.Mutate(part, max_size))
        return new[:max_size]

    corpus = work / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    with targets() as reads:
        arguments = [
            sys.argv[0],
            f"-runs={runs}",
            f"-seed={seed}",
            "-timeout=20",
            "-mutate_depth=1",
        ]
        arguments += [f"-max_len={MAX_INPUT_BYTES}", f"-artifact_prefix={work}/crash-"]
        arguments += [str(corpus), str(SEEDS / target)]
        watch = Watch(reads[target], work, target)
        atheris.Setup(arguments, watch, custom_mutator=change)
        atheris.Fuzz()


def one_round(target: str, work: Path, seed: int) -> dict[str, Any]:
    """A round in a process of its own; a process that dies of its input is a finding."""
    count = work / f"{target}.count"
    count.unlink(missing_ok=True)
    begin = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gates.fuzz", str(work), "--round", target]
    command += ["--seed", str(seed)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    runs, taken = map(int, count.read_text().split()) if count.exists() else (0, 0)
    facts = {
        "target": target,
        "executions": runs,
        "accepted": taken,
        "returncode": ended.returncode,
    }
    facts["seconds"] = round(time.monotonic() - begin, 1)
    if ended.returncode:
        facts["said"] = ended.stderr[-2000:]
    return facts


def read_rounds(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def campaign(work: Path, executions: int) -> None:
    """Rounds until each target has its share, the one that is furthest behind next."""
    path = work / "rounds.jsonl"
    rounds = read_rounds(path)
    done = Counter(dict.fromkeys(SHARES, 0))
    for each in rounds:
        done[each["target"]] += each["executions"]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("executions", total=executions, completed=done.total())
        while done.total() < executions:
            target = min(SHARES, key=lambda name: done[name] / SHARES[name])
            rounds.append(one_round(target, work, len(rounds) + 1))
            with path.open("a") as log:
                log.write(json.dumps(rounds[-1]) + "\n")
            done[target] += rounds[-1]["executions"]
            progress.update(task, completed=done.total(), description=target)
            if rounds[-1]["returncode"] and not rounds[-1]["executions"]:
                raise SystemExit(rounds[-1]["said"])


def summary(work: Path) -> dict[str, Any]:
    """The figures, with every finding tried again on the code as it is."""
    from tests.fuzz.targets import targets

    rounds = read_rounds(work / "rounds.jsonl")
    findings = []
    with targets() as reads:
        for path in sorted((work / "findings").glob("*.json")):
            facts = json.loads(path.read_text())
            now = symptom(reads[facts["target"]], path.with_suffix(".bin").read_bytes())
            findings.append({**facts, "now": now})
    crashed = sum(1 for each in rounds if each["returncode"])
    by_target = {
        name: {
            field: round(sum(each[field] for each in rounds if each["target"] == name), 1)
            for field in ("executions", "accepted", "seconds")
        }
        for name in SHARES
    }
    return {
        "engine": f"atheris {version('atheris')}",
        "python": sys.version.split()[0],
        "executions": sum(each["executions"] for each in rounds),
        "seconds": round(sum(each["seconds"] for each in rounds), 1),
        "findings_total": len(findings) + crashed,
        "findings_open": sum(1 for each in findings if each["now"]) + crashed,
        "findings": findings,
        "targets": by_target,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--executions", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--round", choices=sorted(SHARES), help="one round in this process")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if asked.round:
        fuzz(asked.round, work, ROUND, asked.seed)
    campaign(work, asked.executions)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(summary(work), indent=1) + "\n")


if __name__ == "__main__":
    main()
