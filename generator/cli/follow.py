"""`generate follow`: kernels that read ahead, for the rows of a table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli import live, search
from hgemm_packs.generator.cli.app import EVIDENCE, Gpus, app
from hgemm_packs.generator.cli.results import write_followers
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.run import generate
from hgemm_packs.generator.run.generate import Budget
from hgemm_packs.generator.search import transfer
from hgemm_packs.generator.store.run_folder import Store

KERNELS = 2  # that read ahead, which are found for a row


@app.command(rich_help_panel=EVIDENCE)
def follow(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="A source manifest, which names the rows.")
    ],
    budget: Annotated[str, typer.Option(help="GPU time, summed over all GPUs.")] = "10m",
    run: Annotated[
        Path, typer.Option(help="Folder of the run. A run goes on from its folder.")
    ] = Path("generate-run"),
    gpus: Gpus = 0,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    shapes: Annotated[
        list[str] | None, typer.Option(help="Only problems of these lists. Repeatable.")
    ] = None,
    jobs: search.Jobs = search.CORES,
) -> None:
    """Find kernels that read ahead for the rows of a table.

    Nothing else is searched. RUN/pack gets the fastest kernels of dependent launch that passed the
    gate. RUN/pairs.jsonl names them: `generate measure dependent RUN/pack OUT.jsonl
    --shapes RUN/pairs.jsonl` measures them. `generate archive` unites their proofs with what the
    table was made of.
    """
    limit = Budget(search.seconds(budget), search_share=0.0, finalists=KERNELS)
    source = read_source(table)
    won, beside = transfer.rows(source)
    named = {p for place in shapes for p in problem_lists.read(place)} if shapes else won.keys()
    rows = sorted(won.keys() & named, key=problem_lists.cost)
    asked = problem_lists.filter(rows, layouts or (), dtypes or (), regimes or (), every)
    if not asked:
        raise UserError(f"{table} has no row of these problems")
    out, count = console(), search.gpus_here(gpus)
    with Store(run) as store:
        with (
            search.workers(run, jobs, count, "") as (builder, evaluator),
            live.show_progress(out) as watch,
        ):
            found = generate.find_dependent_kernels(
                store,
                {problem: won[problem] for problem in asked},
                builder,
                evaluator,
                limit,
                watch,
                followers=partial(transfer.move_choices, beside),
            )
        write_followers(out, store, source, found)
