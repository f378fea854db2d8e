"""compute-sanitizer over every kernel of a pack, on all GPUs of this host.

Called by `generate sanitize`. The pack may be a folder of covering genomes too: then over kernels
of every family's whole space. Each kernel runs the ragged problems of the sanitizer gate, many
kernels a process, several processes a GPU. The file of lines gets a header (commit, pack) and a
line for each kernel and tool; what has one is not run again unless its process came to no end, so a
run that was stopped goes on. Where a process found something or ended badly, each of its kernels
runs again alone, to tell whose it was. "launches" are those of the whole process, of "batch"
kernels; "findings" of -1: no end. At the deadline what still runs is dropped.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.campaigns import covering_kernels
from hgemm_packs.generator.campaigns.campaign import (
    FIRST,
    CampaignOptions,
    Hopeless,
    Line,
    LinesFile,
)
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.sanitizer import Item, SanitizerUnavailable, ToolRun
from hgemm_packs.generator.gates.sweep import Batch, Seat
from hgemm_packs.generator.store.lines import read_records


def pairs_on_file(places: Sequence[Path]) -> set[tuple[str, str]]:
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
    return [Batch(tool, group) for tool, each in left.items() for group in sweep.deal(each, size)]


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
        with contextlib.closing(sweep.sweep_batches(todo, self._seats, self._ends)) as answers:
            for answer in answers:
                if answer.run is None:
                    left += len(answer.batch.items)
                else:
                    self._file(answer.batch, answer.run, answer.seconds)
                    tick(len(self.findings))
        return left

    def _file(self, batch: Batch, run: ToolRun, seconds: float) -> None:
        for one, *_ in batch.items:
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
    folder = covering_kernels.CoveringKernels(place)
    built = [folder.kernel(line) for line in folder.built]
    return [(entry(kernel.fields, kernel.cubin), kernel.cubin) for kernel in built], folder.facts


def header(facts: Line, commit: str, tools: Sequence[str], seats: Sequence[Seat]) -> Line:
    return {
        "benchmark": "sanitize_pack",
        "commit": commit,
        "pack": facts,
        "tools": list(tools),
        "gpus": len(set(seats)),
        "processes": len(seats),
        "python": sys.version.split()[0],
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def count(places: Sequence[Path], ids: set[str]) -> dict[str, Counter[str]]:
    """Of each tool, kernels that are clean, with findings, or without an end, by their last
    line."""
    counts: dict[str, Counter[str]] = {}
    for (id_, tool), found in sorted(sanitizer.findings(read_records(places)).items()):
        if id_ not in ids:
            continue
        word = "clean" if found == 0 else "with findings" if found > 0 else "without an end"
        counts.setdefault(tool, Counter())[word] += 1
    return counts


def sanitize(
    place: Path,
    plan: CampaignOptions,
    tools: Sequence[str],
    seats: Sequence[Seat],
    every: int = 1,
    known: Sequence[Path] = (),
) -> bool:
    """Run the tools over each `every`-th kernel of `place`, in a process a seat, but what `known`
    lines have, and say how that ended. Whether each of these is clean under every tool by now."""
    ends, screen = time.monotonic() + plan.deadline, console()
    items, facts = kernels(place)
    items = items[::every]
    todo = batches(items, tools, pairs_on_file([*known, plan.out]), len(seats))
    total, left, words = sum(len(batch.items) for batch in todo), 0, ""
    screen.print(f"{len(items)} kernels, {total} runs left, {len(seats)} processes")
    file = LinesFile(plan.out)
    try:
        file.write({"header": header(facts, plan.sources, tools, seats)})
        running = Sweep(seats, ends, file.write)
        with progress(screen, "sanitizing") as tick:
            left = running.run(todo, lambda written: tick(written, total))
    except (SanitizerUnavailable, Hopeless) as error:
        words, left = str(error), total - len(running.findings)
    finally:
        file.close()
    counts = count([*known, plan.out], {one.id for one, *_ in items})
    for tool, each in counts.items():
        screen.print(f"{tool}: " + ", ".join(f"{n} {word}" for word, n in each.items()))
    screen.print(f"{left} left. {words}", markup=False)
    return not left and not any(set(each) - {"clean"} for each in counts.values())
