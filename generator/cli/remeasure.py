"""`generate remeasure`: the confirmations of an export once more, on the GPUs here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console, progress
from hgemm_packs.generator.campaigns import campaign, remeasure
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import EVIDENCE, Gpus, Keep, app
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.generator.workers.builder import Builder, ProcessBuilder

LINES, EXPORT = "lines.jsonl", "export"


@app.command("remeasure", rich_help_panel=EVIDENCE)
def remeasure_export(
    place: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="An export, or the folder of a run.")
    ],
    out_dir: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="Folder of lines.jsonl and export/. A later call goes on from it."
        ),
    ],
    gpus: Gpus = 0,
    deadline: Annotated[
        float, typer.Option(help="Stop after this many seconds, with the time of builds.")
    ] = float("inf"),
    least: Annotated[
        float, typer.Option(help="Least share of torch's speed. Slower kernels are left out.")
    ] = remeasure.LEAST,
    keep: Keep = 1.0,
    left_by: Annotated[
        Path | None,
        typer.Option(help="A table. Only problems that it leaves to torch are measured."),
    ] = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    jobs: search.Jobs = search.CORES,
    noise: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Measure torch against itself on each N-th problem. Default: 400 trials.",
        ),
    ] = None,
    only_build: Annotated[
        bool, typer.Option("--only-build", help="Fill the build cache and stop, without a GPU.")
    ] = False,
) -> None:
    """Measure the confirmations of an export once more.

    Problems that have a confirmation in led blocks are left out. OUT/export is an export of these
    measurements alone: `generate archive` unites both. The same command goes on where it stopped.
    """
    ends = time.monotonic() + deadline
    out, lines = console(), out_dir / LINES
    found = export.load(place)
    listed = remeasure.rank(found, least)
    asked = problem_lists.filter(listed, layouts or (), dtypes or ())
    done = remeasure.find_led(found)
    done |= remeasure.table_wins(read_source(left_by)) if left_by else set()
    listed = {problem: listed[problem] for problem in asked if problem not in done}
    if not listed:
        raise UserError(f"{place} has no kernel to confirm of these problems")
    kept = prune(listed, keep).kernels if keep < 1.0 else None
    todo = remeasure.find_missing(found, listed, lines)
    if only_build:
        with contextlib.closing(ProcessBuilder(jobs)) as builder:
            _build(found, todo, builder, kept)
        return
    count = search.gpus_here(gpus)
    header = {"strategy": "remeasure", "problems": len(listed), "least": least, "keep": keep}
    try:
        with search.workers(out_dir, jobs, count, "") as (builder, evaluator):
            remeasure.check_device(found, evaluator.facts())  # before minutes of builds
            made = _build(found, todo, builder, kept)
            tasks = remeasure.tasks(listed, made, noise, remeasure.count_missing_trials(found))
            with progress(out, "confirming") as tick:
                tally = remeasure.measure(
                    found,
                    tasks,
                    evaluator,
                    lines,
                    {**header, **_sources(builder)},
                    deadline_s=ends - time.monotonic(),
                    tick=tick,
                )
    finally:
        _export(found, lines, out_dir / EXPORT)
    out.print(f"{tally.written} lines written, {tally.failed} failures, {tally.left} left")
    if tally.words:
        out.print(f"the last failure: {tally.words}")
    if tally.failed + tally.left:
        raise typer.Exit(1)


def _sources(builder: Builder) -> campaign.Line:
    """What a header says of the code that built and measured."""
    info = compiler.generator_info()
    commit = info.commit + ("+" if info.dirty else "")
    return {"commit": commit, "toolchain": dict(builder.toolchain)}


def _build(
    found: Findings, todo: remeasure.Ranked, builder: Builder, kept: Sequence[str] | None
) -> remeasure.Kernels:
    """The kernels of the problems to do, with a word about them."""
    out = console()
    with progress(out, "building") as tick:
        made = remeasure.build(found, todo, builder, kept and set(kept), tick)
    size = sum(len(kernel.cubin) for kernel in made.kernels.values()) / 1e6
    words = f"{len(made.kernels)} kernels ({size:.1f} MB) for {len(made.wanted)} problems to do"
    out.print(words)
    if made.gone:
        words = f"{len(made.gone)} kernels build otherwise now, such as {made.gone[0]}: left out"
        out.print(words, soft_wrap=True)
    return made


def _export(found: Findings, lines: Path, folder: Path) -> None:
    """What there are lines of, as an export; of no lines none."""
    if not (lines.is_file() and campaign.answers([lines])):
        return
    fresh = remeasure.read(found, lines)
    export.write(fresh, folder)
    counts = f"{len(fresh.fields)} confirmations, {len(fresh.trials)} trials"
    words = f"{folder}: {counts}, {len(fresh.refused)} kernels refused"
    console().print(words, soft_wrap=True)
