"""compute-sanitizer over every kernel of a pack, on all GPUs of this host.

    python -m benchmarks.gates.sanitize_pack PACK OUT.jsonl [--tools memcheck,racecheck] ...

PACK may be a folder of `space_gates.py build` too: then over kernels of every family's whole space.
Each kernel runs the ragged problems of the sanitizer gate, many kernels a process, several
processes a GPU. OUT gets a header (commit, pack) and a line for each kernel and tool; what has one
is not run again unless its process came to no end, so a run that was stopped goes on; nor is what
--known, a file or folder of older lines, has. Where a process found something or ended badly, each
of its kernels runs again alone, to tell whose it was. "launches" are those of the whole process, of
"batch" kernels; "findings" of -1: no end. At the deadline what still runs is dropped.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.campaigns import covering_kernels
from hgemm_packs.generator.campaigns.campaign import FIRST, Hopeless, Line, LinesFile
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.sanitizer import Item, SanitizerUnavailable, ToolRun
from hgemm_packs.generator.gates.sweep import Batch, Seat
from hgemm_packs.generator.store.lines import read_records


def finished(places: Sequence[Path]) -> set[tuple[str, str]]:
    """(kernel id, tool) of what need not run again, by these files and folders of lines."""
    records = read_records(place for place in places if place.exists())
    return {
        (line["id"], line["tool"]) for line in records if "tool" in line and line["findings"] >= 0
    }


def batches(
    items: Sequence[Item], tools: Sequence[str], done: set[tuple[str, str]], processes: int
) -> list[Batch]:
    """What is left, dealt out so that kernels of a family are in different processes."""
    left = {tool: [item for item in items if (item[0].id, tool) not in done] for tool in tools}
    size = sweep.group_size(sum(map(len, left.values())), processes)
    return [Batch(tool, group) for tool, each in left.items() for group in sweep.dealt(each, size)]


class Sweep:
    """Runs batches in as many processes at a time as there are `seats`, each the name of a GPU;
    `write` gets a line for each kernel and tool."""

    def __init__(self, seats: Sequence[Seat], ends: float, write: Callable[[Line], None]) -> None:
        self._seats, self._ends, self._write = seats, ends, write
        self.findings: list[int] = []

    def run(self, todo: Sequence[Batch], tick: Callable[[int], None] = lambda written: None) -> int:
        """Returns how many lines are left. Raises SanitizerUnavailable, and Hopeless when the first
        kernels all came to no end."""
        left = 0
        with contextlib.closing(sweep.swept(todo, self._seats, self._ends)) as answers:
            for answer in answers:
                if answer.run is None:
                    left += len(answer.batch.items)
                else:
                    self._file(answer.batch, answer.run, answer.seconds)
                    tick(len(self.findings))
        return left

    def _file(self, batch: Batch, run: ToolRun, seconds: float) -> None:
        for one, _ in batch.items:
            self.findings.append(run.findings)
            self._write(
                {
                    "kernel": one.name,
                    "id": one.id,
                    "tool": run.tool,
                    "findings": run.findings,
                    "launches": run.launches,
                    "batch": len(batch.items),
                    "seconds": round(seconds, 2),
                    "detail": run.detail,
                }
            )
        if len(self.findings) >= FIRST and all(each < 0 for each in self.findings):
            raise Hopeless(run.detail)


def kernels(place: Path) -> tuple[list[Item], Line]:
    """Kernels of a pack or of a folder of covering genomes, and what a header says of either."""
    if not (place / covering_kernels.GENOMES).exists():
        packed = Packed(place)
        entries = packed.entries.values()
        return [(one, bytes(packed.pack.image(one))) for one in entries], packed.facts
    folder = covering_kernels.Folder(place)
    built = [folder.kernel(line) for line in folder.built]
    return [(entry(kernel.fields, kernel.cubin), kernel.cubin) for kernel in built], folder.facts


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("pack", type=Path, help="a built pack, or a folder of space_gates.py")
    made.add_argument("out", type=Path, help="jsonl file; what it has is not run again")
    made.add_argument(
        "--known", type=Path, action="append", default=[], help="lines that are on file already"
    )
    made.add_argument("--tools", default=",".join(sanitizer.OF_TABLES), help="of compute-sanitizer")
    made.add_argument("--deadline", type=float, default=float("inf"), help="seconds, then stop")
    made.add_argument("--processes", type=int, help=f"at a time; else {sweep.PER_GPU} a GPU")
    made.add_argument("--every", type=int, default=1, help="each so manieth kernel only")
    made.add_argument("--commit", help="of the sources; else asked of git")
    options = made.parse_args(arguments)
    options.tools = options.tools.split(",")
    if not set(options.tools) <= set(sanitizer.TOOLS):
        made.error(f"--tools: some of {', '.join(sanitizer.TOOLS)}")
    return options


def header(options: argparse.Namespace, facts: Line, seats: Sequence[Seat]) -> Line:
    info = compiler.generator_info()
    return {
        "benchmark": "sanitize_pack",
        "commit": options.commit or (info.commit + ("+" if info.dirty else "")),
        "pack": facts,
        "tools": options.tools,
        "gpus": len(set(seats)),
        "processes": len(seats),
        "python": sys.version.split()[0],
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def summary(places: Sequence[Path], ids: set[str]) -> dict[str, Counter[str]]:
    """Of each tool, kernels that are clean, with findings, or without an end, by their last
    line."""
    counts: dict[str, Counter[str]] = {}
    for (id_, tool), found in sorted(sanitizer.findings(read_records(places)).items()):
        if id_ not in ids:
            continue
        word = "clean" if found == 0 else "with findings" if found > 0 else "without an end"
        counts.setdefault(tool, Counter())[word] += 1
    return counts


def main(arguments: Sequence[str]) -> int:
    """0 when every kernel of the pack is clean under every tool."""
    ends = time.monotonic()
    options = parsed(arguments)
    ends += options.deadline
    (items, facts), names = kernels(options.pack), sweep.gpus()
    if not names:
        console().print("no GPU")
        return 2
    seats = sweep.seats(names, options.processes)
    items = items[:: options.every]
    done = finished([*options.known, options.out])
    todo = batches(items, options.tools, done, len(seats))
    total, left, words = sum(len(batch.items) for batch in todo), 0, ""
    console().print(f"{len(items)} kernels, {total} runs left, {len(seats)} processes")
    file = LinesFile(options.out)
    try:
        file.write({"header": header(options, facts, seats)})
        running = Sweep(seats, ends, file.write)
        with progress(console(), "sanitizing") as tick:
            left = running.run(todo, lambda written: tick(written, total))
    except (SanitizerUnavailable, Hopeless) as error:
        words, left = str(error), total - len(running.findings)
    finally:
        file.close()
    counts = summary([*options.known, options.out], {one.id for one, _ in items})
    for tool, count in counts.items():
        console().print(f"{tool}: " + ", ".join(f"{n} {word}" for word, n in count.items()))
    console().print(f"{left} left. {words}", markup=False)
    bad = any(set(count) - {"clean"} for count in counts.values())
    return int(bad or left > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
