"""`generate resume`: finals and confirmations that a run has not had yet."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli import live, search
from hgemm_packs.generator.cli.app import SEARCH, Gpus, Keep, Name, Run, app
from hgemm_packs.generator.cli.results import conclude
from hgemm_packs.generator.run import generate, start
from hgemm_packs.generator.run.generate import Budget
from hgemm_packs.generator.search import DEFAULT
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.profiles import names


@app.command(rich_help_panel=SEARCH)
def resume(
    run: Run,
    budget: Annotated[str, typer.Option(help="GPU time on top of the time spent.")] = "2m",
    gpus: Gpus = 0,
    keep: Keep = 0.99,
    name: Name = None,
) -> None:
    """Finish a run without more search: finals and confirmations.

    Only finals and confirmations that are missing are measured.
    """
    out, more = console(), search.seconds(budget)
    if name is not None:
        names.check(name)
    with Store(run, readonly=True) as store:  # a run must be there: nothing is made of a wrong name
        problems = store.problems()
        if not problems:
            raise UserError(f"{run} has no problems yet: `hgemm-packs generate --run {run}` first")
    count = search.gpus_here(gpus)
    with Store(run) as store:
        rest = _rest(store, more)
        with (
            search.workers(run, search.CORES, count, "") as (builder, evaluator),
            start.sanitizing(count, search.run_sanitizer) as sanitize,
            live.show_progress(out) as watch,
        ):
            summary = generate.generate(
                store,
                problems,
                search.searcher(DEFAULT, 0),
                builder,
                evaluator,
                rest,
                watch,
                sanitize=sanitize,
            )
        conclude(out, store, run, summary, keep, name)


def _rest(store: Store, more: float) -> Budget:
    """No search, and as many kernels in each stage as the run began with: with others in it the
    finals of a problem would be measured again."""
    mine = {each.name for each in fields(Budget)}
    first = {k: v for k, v in store.runs()[0]["budget"].items() if k in mine}
    spent = sum(store.spent_gpu_seconds().values())
    share = spent / (spent + more)
    return replace(Budget(**first), gpu_seconds=spent + more, search_share=share, patience=0)
