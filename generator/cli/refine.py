"""`generate refine`: what a run won, launched behind one another and for long, on the GPUs here."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.campaigns import campaign, refine, remeasure
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, Task
from hgemm_packs.generator.campaigns.refine import Refinement
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import SEARCH, Gpus, Keep, Name, Run, app
from hgemm_packs.generator.cli.results import write_pack
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.gains import geometric
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Evaluator, Local
from hgemm_packs.profiles import names

SECONDS = 0.5  # of an arm that is sustained: a card settles at its power limit in half of that
TIMEOUT_S = 120.0  # of one problem


@app.command("refine", rich_help_panel=SEARCH)
def refine_run(
    run: Run,
    gpus: Gpus = 0,
    deadline: Annotated[float, typer.Option(help="Stop after this many seconds.")] = float("inf"),
    keep: Keep = 0.99,
    name: Name = None,
) -> None:
    """Measure a run's wins dependent and sustained, and write its pack.

    The measurements are those of `generate measure dependent` and `generate measure sustained`. The
    pack follows from them. The same command goes on where it stopped. The pack leaves a large
    problem to torch until the problem has been measured for long.
    """
    if name is not None:
        names.check(name)
    ends = time.monotonic() + deadline
    count = search.gpus_here(gpus)
    Store(run, readonly=True).close()  # nothing is made of a wrong name
    with Store(run) as store:  # nobody else adds to it or to the lines beside it
        mine = Refinement(store)
        first = [
            (refine.DEPENDENT, mine.dependent_tasks()),
            (refine.SUSTAINED, mine.sustained_tasks()),
        ]
        tallies = _measure(mine, first, count, ends)
        if not any(tally.left for tally in tallies):
            last = [(refine.PUBLISHED, mine.published_tasks(keep))]
            tallies += _measure(mine, last, count, ends)
        write_pack(console(), store, run, keep, name)
        _say_gains(mine.gains(read_source(run / "source.json")))
    if any(tally.left + tally.failed for tally in tallies):
        raise typer.Exit(1)


def _measure(
    mine: Refinement, parts: list[tuple[str, list[Task]]], count: int, ends: float
) -> list[CampaignCounts]:
    """Do the tasks of each file, in processes of their own; how each ended."""
    out, tallies = console(), []
    with contextlib.closing(_evaluator(mine.folder, count)) as evaluator:
        remeasure.check_device(mine.found, evaluator.facts())
        for name, tasks in parts:
            with progress(out, name.removesuffix(".jsonl")) as tick:
                try:
                    tally = campaign.run(
                        mine.folder / name,
                        tasks,
                        evaluator,
                        _header(name),
                        deadline_s=ends - time.monotonic(),
                        tick=tick,
                    )
                except campaign.Hopeless as error:  # of this file; the others may do
                    tally = CampaignCounts(campaign.FIRST, campaign.FIRST, words=str(error))
            tallies.append(tally)
            out.print(f"{name}: {tally.written} lines, {tally.failed} failed, {tally.left} left")
            if tally.words:
                out.print(f"the last failure: {tally.words}")
    return tallies


def _say_gains(gains: list[tuple[float, float]]) -> None:
    words = ""
    if gains:
        plain, behind = (geometric(each) for each in zip(*gains, strict=True))
        words = f", {behind:.3f}x torch, {plain:.3f}x launched plainly, by the second measurement"
    console().print(f"dependent launch: {len(gains)} problems{words}")


def _evaluator(folder: Path, count: int) -> Evaluator:
    from hgemm_packs.generator.devices import protocols

    settings = protocols.ProtocolSettings(seconds=SECONDS)
    make = partial(protocols.make, settings=settings)
    return Local(make, count, logs=folder / "logs", timeout_s=TIMEOUT_S)


def _header(name: str) -> campaign.Line:
    info = compiler.generator_info()
    return {"benchmark": f"refine: {name}", "commit": info.commit + ("+" if info.dirty else "")}
