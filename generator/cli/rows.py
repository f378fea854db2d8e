"""`generate measure rows`: problems that a pack's table has not, by the kernels of that pack; and
`generate measure free`: those that free sources were written for, by these sources."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.campaigns.unseen import Chooser, Mix
from hgemm_packs.generator.cli import live, search
from hgemm_packs.generator.cli.app import Gpus
from hgemm_packs.generator.cli.measure import measures
from hgemm_packs.generator.cli.results import say
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families.free import family as free
from hgemm_packs.generator.run import generate, start
from hgemm_packs.generator.run.generate import Budget
from hgemm_packs.generator.run.packed import PackBuilder
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem

#: Kernels of a problem: by the formulas, and of the nearest rows. All of them are screened in one
#: job, and the best FINALISTS are timed against torch. Of 120 drawn layers the best kernel known
#: was among as many in 101.
CHOSEN, FINALISTS = Mix(formula=10, rows=6, predicted=0, drawn=0), 3
#: Of what is left of the budget, what screens may take: 0.1 s of 0.8 that a row takes on an H200.
SCREENS = 0.2


@measures.command("rows")
def measure_rows(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="Folder of a built pack.")],
    shapes: Annotated[
        list[str] | None, typer.Option(help='A list ("engines", "llm", ...) or a TOML file.')
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help='Only layers of these models: "Qwen3 *".')
    ] = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Only so many problems, the first of the lists.")
    ] = None,
    budget: Annotated[str, typer.Option(help="GPU time, summed over all GPUs.")] = "10m",
    run: Annotated[
        Path, typer.Option(help="Folder of the run. A run goes on from its folder.")
    ] = Path("generate-run"),
    gpus: Gpus = 0,
) -> None:
    """Measure problems that the table of a pack has no row of, by the pack's own kernels.

    Nothing is compiled or searched. Each problem tries the kernels of the nearest rows, and a few
    that formulas choose. `make table RUNS=RUN` adds the rows. The same command, given again,
    continues a run that was killed. `generate contenders --proven` makes a pack of more kernels.
    """
    seconds = search.seconds(budget)
    packed = Packed(pack)
    chooser, builder = Chooser(packed, CHOSEN), PackBuilder(packed)
    named = [p for place in shapes or () for p in problem_lists.read_in_order(place, models or ())]
    left = dict.fromkeys(named).keys() - set(packed.measured)
    asked = problem_lists.filter(
        [p for p in dict.fromkeys(named) if p in left and chooser.takes(p)],
        layouts or (),
        dtypes or (),
        regimes or (),
    )
    problems = asked[:most]
    if not problems:
        raise UserError(f"{pack} has a row, or no kernel, of each of these problems")
    out, count = console(), search.gpus_here(gpus)
    out.print(f"{len(problems)} of {len(asked)} problems without a row")
    chosen = {problem: chooser.choose(problem) for problem in problems}

    def space(problem: Problem) -> Space:
        return Space(problem, only=[builder.choice(name) for name in chosen[problem]])

    with (
        Store(run) as store,
        contextlib.closing(search.open_evaluator(run, count)) as evaluator,
        live.show_progress(out) as watch,
    ):
        summary = generate.generate(
            store,
            problems,
            Exhaustive(),
            builder,
            evaluator,
            _limit(store, seconds),
            watch,
            spaces=space,
            seed=search.run_seed(store, None),
            followers=None,
        )
    _tell(out, summary, run)


@measures.command("free")
def measure_free(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE...]", help="Names of sources. Default: all sources."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(help="A table, whose kernels are timed beside the sources'."),
    ] = None,
    budget: Annotated[str, typer.Option(help="GPU time, summed over all GPUs.")] = "4m",
    run: Annotated[
        Path, typer.Option(help="Folder of the run. A run goes on from its folder.")
    ] = Path("generate-run"),
    gpus: Gpus = 0,
) -> None:
    """Measure kernels of free source on the problems that they were written for.

    The sources are those that `generate admit` has taken. Gates, finals and confirmation are those
    of a search. `make table RUNS=RUN` adds what the run proves. The same command, given again,
    continues a run that was killed.
    """
    limit = Budget(search.seconds(budget), patience=1, dependent=0, dependent_confirmed=0)
    beside = read_source(table) if table is not None else None
    chosen = choices_by_problem([free.read(name) for name in sources or free.names()], beside)
    if not chosen:
        raise UserError("no free source is here: `hgemm-packs generate admit` takes one")
    out, count = console(), search.gpus_here(gpus)
    with (
        Store(run) as store,
        search.workers(run, min(search.CORES, 4 * len(chosen)), count, "") as (builder, evaluator),
        start.sanitizing(count, search.run_sanitizer) as sanitize,
        live.show_progress(out) as watch,
    ):
        summary = generate.generate(
            store,
            list(chosen),
            Exhaustive(),
            builder,
            evaluator,
            limit,
            watch,
            spaces=lambda problem: Space(problem, only=chosen[problem]),
            seed=search.run_seed(store, None),
            sanitize=sanitize,
            followers=None,
        )
    _tell(out, summary, run)


def _tell(out: Console, summary: generate.Summary, run: Path) -> None:
    """Say what a run without a search came to; the command ends with 1 where something is left."""
    say(
        out,
        f"{summary.finals} of {summary.problems} problems timed against torch, {summary.confirmed} "
        f"of {summary.likely} likely wins confirmed, {summary.spent:.0f} GPU-s: {run}",
    )
    if summary.unconfirmed or summary.finals < summary.problems:
        raise typer.Exit(1)


def choices_by_problem(
    sources: Sequence[free.Source], table: SourceManifest | None
) -> dict[Problem, list[Choice]]:
    """Choices of the sources by the problem of each, and of the kernel that the table's row names
    there."""
    found: dict[Problem, list[Choice]] = {}
    for each in sources:
        found.setdefault(each.problem, []).append(Choice.of(free.FAMILY.name, each.genome))
    kernels = {kernel.id: kernel for kernel in table.kernels} if table is not None else {}
    for row in table.table if table is not None else ():
        problem = Problem(*row.key)
        if problem in found and row.kernel is not None:
            kernel = kernels[row.kernel]
            whole = family(kernel.family).whole(kernel.genome)
            choice = Choice.of(kernel.family, whole)
            found[problem] += [choice] * (choice not in found[problem])
    return found


def _limit(store: Store, seconds: float) -> Budget:
    """The budget of a call on a store in which earlier calls have spent some of it: on other
    problems, perhaps, whose finals are no reason not to screen these."""
    spent = min(seconds, sum(store.spent_gpu_seconds().values()))
    share = (spent + SCREENS * (seconds - spent)) / seconds
    batch = CHOSEN.formula + CHOSEN.rows
    return Budget(seconds, share, batch, patience=1, race_width=FINALISTS, finalists=FINALISTS)
