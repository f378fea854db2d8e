"""What the committed evidence lacks and what fills it: where a session on a GPU begins.

    python -m benchmarks.publish.missing [--json] [--measured EXPORT]
    python -m benchmarks.publish.missing --list ITEM > pairs.jsonl

The second prints the problems and kernels of an item as --shapes of `generate measure`. All
follows from committed files; nothing is measured or compiled (30 s). So of the kernels that may be
chosen for dependent launch only rows' own are looked at: which others build as they did is known to
a compiler alone, and `generate contenders --near` lists those. GPU-seconds are by the paces below,
"?" where none is known. A list, no gate: it exits with 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from benchmarks import folders
from benchmarks.publish import summary
from benchmarks.publish.missing_commands import COMMANDS, TABLE
from hgemm_packs.cli.console import console
from hgemm_packs.generator.campaigns import campaign, sanitize
from hgemm_packs.generator.campaigns import missing as lack
from hgemm_packs.generator.campaigns.missing import Gap
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.store import export

RESULTS = summary.RESULTS

# GPU-seconds on an H200, by AGENTS.md unless another source is named.
CONFIRM_S = TRIAL_S = 0.3  # a problem, a trial: 1130 of both in 170 s on two GPUs, in led blocks
PUBLIC_S = 0.06  # a row, in one process on one GPU
PDL_S = 0.1  # a line: 1712 of contenders/03 in 100 s on one GPU, 515 of choice/03 in 36 on two
SUSTAINED_S = 2.4  # a line: 170 of sustained/03 in 207 s on two GPUs, 4.5 arms of 0.4
SANITIZED_S = 0.1  # a kernel and tool, with twelve processes a GPU (sanitizer/spaces)
GATE_S, COVERING = 2 * 0.13, 466  # a kernel in both ways through the numeric gate; kernels
CASE_S, CASES = 0.8, 163  # of the red team, compilers included: 125 s with 16 cores, 95 with 32
SWEEP_S = 0.83  # a problem: 400 to 430 for 500
ROW_S = 0.8  # by a pack's kernels: 173 s for the 220 problems of confirmations/08, M to 8192
FOLLOW_S = 0.25  # a row: 226 of launches behind one another, 280 of the gate, for 2137


@dataclass(frozen=True, slots=True)
class Kind:
    """What an item's things are in words, which of COMMANDS fills them, and the GPU-seconds that
    one of them takes."""

    what: str
    how: str
    each_s: float | None = None


#: In the order in which a session does them: what others follow from comes first.
KINDS = {
    "trials": Kind("trials of torch against itself in led blocks", "left", TRIAL_S),
    "near": Kind("left to torch but ahead, not confirmed in led blocks", "left", CONFIRM_S),
    "finals": Kind("left to torch but ahead in finals, never confirmed", "left", CONFIRM_S),
    "rows": Kind("rows with a kernel, not confirmed in led blocks", "rows", CONFIRM_S),
    "sustained": Kind("confirmed wins from 1e11 flop on, not sustained", "sustain", SUSTAINED_S),
    "dependent": Kind("rows whose own kernel was never launched dependent", "choose", PDL_S),
    "published": Kind("rows that nobody called in public", "publish", PUBLIC_S),
    "sanitized": Kind("kernels and sanitizers without a record", "sanitize", SANITIZED_S),
    "gated": Kind("kernels of covering genomes, numeric gate not passed", "space", GATE_S),
    "clean": Kind("covering genomes and sanitizers without a record", "clean", SANITIZED_S),
    "lagging": Kind("rows that lag the other type by 2%, by another kernel", "lag", FOLLOW_S),
    "honest": Kind("honest kernels that the red team saw refused", "redteam", CASE_S),
    "cheats": Kind("cheats that the gate that must did not reject", "redteam", CASE_S),
    "tests": Kind("GPU tests of these sources", "tests"),
    "redteam": Kind("red team of these sources", "redteam", CASES * CASE_S),
    "space": Kind("gates over the spaces of these sources", "space", COVERING * GATE_S),
    "host": Kind("host cost of these sources", "host"),
    "load": Kind("load cost of these sources", "load"),
    "wheel": Kind("wheels of these sources", "wheel"),
    "chained": Kind("chained layers of these sources", "chained"),
    **{
        name: Kind(f"problems of the list {name} without a row", name, SWEEP_S)
        for name in problems.NAMED
    },
    "engines": Kind("problems of the list engines without a row", "engines", ROW_S),
}

RUNTIME = ("csrc/launcher", "hgemm_packs", ":!hgemm_packs/cli")
GATES = ("csrc/kernels", "generator/families", "generator/gates")
#: Of the items that are one result: its file, and what it depends on, as git takes paths.
OF_SOURCES = {
    "tests": ("gpu_tests.json", (*RUNTIME, "csrc/kernels", "tests/gpu", TABLE)),
    "redteam": ("redteam_h200.json", (*GATES, "csrc/launcher", "generator/redteam")),
    "space": ("space_gates.json", GATES),
    "host": (
        "host_cost.json",
        (
            "csrc/launcher",
            "hgemm_packs/launcher.py",
            "hgemm_packs/nn",
            "hgemm_packs/torch_state.py",
        ),
    ),
    "load": ("load_cost.json", (*RUNTIME, TABLE)),
    "wheel": ("distribution/wheel_gpu.json", (*RUNTIME, "packaging", "setup.py", TABLE)),
    "chained": (
        "chained.json",
        (*RUNTIME, "csrc/kernels", "generator/devices/protocols.py", TABLE),
    ),
}


def items(place: Path) -> Iterator[Gap]:
    """All that is or could be missing, in no order; `place` is the export. Raises OSError,
    ValueError and PackError for files that are not as they are committed."""
    source = read_source(summary.MANIFEST)
    calls = summary.chain_records()
    choices, second, mixed = (
        campaign.answers(folders.list_files(*folders.find_folders(option), results=RESULTS))
        for option in ("--dependent", "--published", "--mixed")
    )
    found = export.load(place)
    yield from lack.find_unled(source, found)
    yield lack.find_undependent(source, [*choices, *second])
    yield lack.find_unpublished(source, calls)
    yield lack.find_lagging(source, calls)
    yield lack.find_unsustained(found, summary.energy_lines())
    done = sanitize.pairs_on_file([RESULTS / "sanitizer" / "tables"])
    wanted = lack.choose_dependent(source, found, choices, second, mixed, calls)
    yield lack.find_unsanitized(wanted, sanitizer.OF_TABLES, done)
    for item, (file, paths) in OF_SOURCES.items():
        document = read(file)
        yield result(item, file, paths, document)
        if document and item == "space":
            yield lack.find_ungated(document)
            yield lack.find_unclean(document, sanitizer.OF_TABLES)
        if document and item == "redteam":
            yield from lack.find_undecided(document)
    for name in problems.NAMED:
        yield lack.find_unlisted(source, name, problems.read(name))


def read(file: str) -> dict[str, Any] | None:
    path = RESULTS / file
    if not path.is_file():
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def result(item: str, file: str, paths: Sequence[str], document: Mapping[str, Any] | None) -> Gap:
    """Whether a result is of the sources that are here. One that names no commit is of the one
    that filed it, or older."""
    if document is None:
        return Gap(item, 1, 1, f"{file} is absent")
    commit, measured = commit_of(document), "measured at"
    if commit is None:
        filed = git("log", "-1", "--format=%h", "--", str(RESULTS / file))
        commit, measured = "".join(filed or ()) or "no commit", "filed at"
    changed = git("diff", "--name-only", commit, "HEAD", "--", *paths)
    return lack.find_outdated(item, f"{measured} {commit[:9]}", changed)


def commit_of(document: Mapping[str, Any]) -> str | None:
    """The commit that a result says it was measured at."""
    parts = (document, document.get("measured_on"), document.get("kernels"))
    noted = (part["commit"] for part in parts if isinstance(part, dict) and "commit" in part)
    return next((str(commit).rstrip("+") for commit in noted), None)


def git(*words: str) -> list[str] | None:
    """The lines that git answers with; None where it fails."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=summary.REPOSITORY, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()


def seconds(each: Gap) -> float | None:
    """GPU-seconds that an item takes, by the pace of its kind."""
    pace = KINDS[each.item].each_s
    return None if pace is None else round(pace * each.missing, 1)


def table(found: Iterable[Gap]) -> Table:
    """What is missing, and which of COMMANDS fills it."""
    made = Table("item", "missing", "of", "GPU-s", "command", "what")
    for each in found:
        kind, took = KINDS[each.item], seconds(each)
        counts = map(str, (each.missing, each.of))
        detail = f"\n[dim]{escape(each.detail)}[/dim]" if each.detail else ""
        spent = "?" if took is None else f"{took:.0f}"
        made.add_row(each.item, *counts, spent, kind.how, f"{kind.what}{detail}")
    return made


def plain(each: Gap) -> dict[str, Any]:
    """An item as a line of JSON."""
    kind = KINDS[each.item]
    return {
        "item": each.item,
        "what": kind.what,
        "missing": each.missing,
        "of": each.of,
        "detail": each.detail,
        "gpu_seconds": seconds(each),
        "command": COMMANDS[kind.how],
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each item")
    parser.add_argument("--list", choices=("dependent", "published", "sustained"), metavar="ITEM")
    parser.add_argument(
        "--measured", type=Path, default=RESULTS / folders.CONFIRMATIONS, help="an export"
    )
    options = parser.parse_args(arguments)
    order = list(KINDS)
    found = sorted(items(options.measured), key=lambda each: order.index(each.item))
    if options.list:
        each = next(each for each in found if each.item == options.list)
        print("".join(f"{json.dumps(line)}\n" for line in each.lines), end="")
        return 0
    missing = [each for each in found if each.missing]
    if options.json:
        print("".join(f"{json.dumps(plain(each))}\n" for each in missing), end="")
        return 0
    screen = console()
    screen.print(table(missing))
    for how in dict.fromkeys(KINDS[each.item].how for each in missing):
        screen.print(f"[bold]{how}[/bold]")
        for command in COMMANDS[how]:
            screen.print(f"  {command}", markup=False, soft_wrap=True)
    total = sum(seconds(each) or 0.0 for each in missing)
    screen.print(f"{total:.0f} GPU-s where a pace is known")
    screen.print(
        f"nothing is missing: {', '.join(each.item for each in found if not each.missing)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
