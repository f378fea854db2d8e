"""`generate` itself: a store, a strategy, a builder, GPUs, and a budget; what other verbs share."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer
from threadpoolctl import threadpool_limits

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli import live, results
from hgemm_packs.generator.cli.app import (
    EFFORT,
    NAMED,
    PROBLEMS,
    WAY,
    KnownOption,
    LikeOption,
    app,
)
from hgemm_packs.generator.cli.results import conclude, say
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.families import computed
from hgemm_packs.generator.flashinfer_trace.problems import read_list
from hgemm_packs.generator.run import generate, start
from hgemm_packs.generator.run.generate import Budget
from hgemm_packs.generator.search import DEFAULT, STRATEGIES, Strategy, transfer
from hgemm_packs.generator.search.later import Later
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers import gpus
from hgemm_packs.generator.workers.builder import ProcessBuilder
from hgemm_packs.generator.workers.evaluators import Evaluator, Local
from hgemm_packs.generator.workers.known_builder import KnownBuilder
from hgemm_packs.problem import DTYPES, EPILOGUES, LAYOUTS, REGIMES, Problem
from hgemm_packs.profiles import names

if TYPE_CHECKING:
    from hgemm_packs.generator.gates.sweep import Waiting
    from hgemm_packs.generator.workers.ray_evaluator import RayEvaluator

CORES = os.cpu_count() or 1
_STRATEGY_SEEDS = 1 << 32  # as many as NumPy and scikit-learn take
_STRATEGIES, _LAYOUTS, _DTYPES, _REGIMES, _EPILOGUES = (
    ", ".join(each) for each in (sorted(STRATEGIES), LAYOUTS, DTYPES, REGIMES, EPILOGUES)
)
#: "winners" tries what --winners or --like names and no more. A line of the screen of help.
_HOW = f"{_STRATEGIES}; winners alone."
#: Said wherever a GPU is needed and none is there.
NO_DEVICE = "no CUDA device; `hgemm-packs generate doctor` says what is missing"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

Layouts = Annotated[list[str] | None, typer.Option(help=f"Only these layouts: {_LAYOUTS}.")]
Dtypes = Annotated[list[str] | None, typer.Option(help=f"Only these types: {_DTYPES}.")]
Regimes = Annotated[list[str] | None, typer.Option(help=f"Only these regimes: {_REGIMES}.")]
Every = Annotated[int, typer.Option(min=1, help="Only each N-th problem.")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="Compilers at a time.")]


def seconds(text: str) -> float:
    """Seconds of "600s", "10m", "2h" or "600". Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"{text!r} is no time: say 600s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def select_problems(
    shapes: Sequence[str],
    models: Sequence[str],
    layouts: Sequence[str],
    dtypes: Sequence[str],
    regimes: Sequence[str],
    every: int,
    epilogue: str = "none",
) -> list[Problem]:
    """The problems of several lists, each once and with that epilogue, cheapest first. Raises
    PackError or ValueError."""
    found = {p for place in shapes for p in read_list(place, models)}
    ordered = sorted(found, key=problem_lists.cost)
    chosen = problem_lists.filter(ordered, layouts, dtypes, regimes, every)
    if not chosen:
        raise ValueError("these lists and filters leave no problem")
    asked = [replace(problem, epilogue=epilogue) for problem in chosen]
    if epilogue == computed.GATED:  # for some layouts and sizes alone
        asked = [problem for problem in asked if Space(problem).core]
        if not asked:
            raise ValueError(f"no {epilogue} kernel takes any of these problems")
    return asked


def gpus_here(asked: int = 0) -> int:
    """How many GPUs to use: all that there are, or as many as asked for. Raises UserError when
    there are not so many."""
    count = gpus.count()
    if not count:
        raise UserError(NO_DEVICE)
    if asked > count:
        raise UserError(f"--gpus {asked}: the driver shows {count}")
    return asked or count


def searcher(name: str, seed: int, known: transfer.Known = MappingProxyType({})) -> Strategy:
    """The strategy of that name, after what is `known` to win. Raises UserError when it is unknown
    or lacks a package, or when nothing is left to ask for."""
    if name == transfer.ONLY:
        if not known:
            raise UserError(f"--strategy {name} needs --winners with a run or an export")
        return transfer.Transfer(known, None)
    found = _strategy(name, seed)
    return transfer.Transfer(known, found) if known else found


def _strategy(name: str, seed: int) -> Strategy:
    if name not in STRATEGIES:
        raise UserError(f"no strategy {name!r}; known: {', '.join(sorted(STRATEGIES))}")
    try:
        return STRATEGIES[name](seed)
    except ModuleNotFoundError as error:
        extra = "pip install 'hgemm-packs[rivals]'"
        raise UserError(f"strategy {name!r} needs {error.name}: {extra}") from error


@app.callback(invoke_without_command=True)
def search(
    context: typer.Context,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            help='A list ("grid", "llm", ...), a TOML file, or a definition.json.',
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help='Only layers of these models: "Qwen3 *".', rich_help_panel=PROBLEMS),
    ] = None,
    layouts: Annotated[
        list[str] | None, typer.Option(help=f"Only {_LAYOUTS}.", rich_help_panel=PROBLEMS)
    ] = None,
    dtypes: Annotated[
        list[str] | None, typer.Option(help=f"Only {_DTYPES}.", rich_help_panel=PROBLEMS)
    ] = None,
    regimes: Annotated[
        list[str] | None, typer.Option(help=f"Only {_REGIMES}.", rich_help_panel=PROBLEMS)
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, help="Only each N-th problem.", rich_help_panel=PROBLEMS)
    ] = 1,
    epilogue: Annotated[
        str,
        typer.Option(help=f"{_EPILOGUES}.", show_default=False, rich_help_panel=PROBLEMS),
    ] = "none",
    budget: Annotated[
        str,
        typer.Option(help="GPU time, summed over GPUs: 600s, 10m, 2h.", rich_help_panel=EFFORT),
    ] = "10m",
    run: Annotated[
        Path,
        typer.Option(
            help="Folder of the run. A run goes on from its folder.", rich_help_panel=EFFORT
        ),
    ] = Path("generate-run"),
    name: Annotated[str | None, typer.Option(help=NAMED, rich_help_panel=EFFORT)] = None,
    gpus: Annotated[
        int,
        typer.Option(min=0, help="GPUs of this host. 0 means all GPUs.", rich_help_panel=EFFORT),
    ] = 0,
    ray: Annotated[
        str,
        typer.Option(
            help='Address of a Ray cluster whose GPUs to use, or "auto".',
            rich_help_panel=EFFORT,
        ),
    ] = "",
    jobs: Annotated[
        int,
        typer.Option("-j", "--jobs", min=1, help="Compilers at a time.", rich_help_panel=EFFORT),
    ] = CORES,
    strategy: Annotated[
        str, typer.Option(help=_HOW, show_default=False, rich_help_panel=WAY)
    ] = DEFAULT,
    winners: Annotated[
        list[Path] | None,
        typer.Option(
            help="A run, an export or a table, whose winners are tried first.", rich_help_panel=WAY
        ),
    ] = None,
    like: LikeOption = "",
    sanitized: KnownOption = None,
    keep: Annotated[
        float,
        typer.Option(
            min=0.5, max=1.0, help="Share of the gain that pruning must keep.", rich_help_panel=WAY
        ),
    ] = 0.99,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the search. Default: random.", rich_help_panel=WAY),
    ] = None,
) -> None:
    """Search kernels for problems on the GPUs here, and write a pack of what measured faster.

    The same command, given again, continues a search that was killed.
    """
    if context.invoked_subcommand is not None:
        _no_options(context)
        return
    if not shapes:
        raise UserError("say which problems: --shapes grid, --shapes llm or --shapes FILE.toml")
    if name is not None:
        names.check(name)
    limit = choose_budget(strategy, seconds(budget))
    known, behind = start.read_earlier(winners or ())
    out = console()
    # What is wrong is refused before a store is made.
    if like:
        start.check_card(like)
    alone = bool(like) and strategy == transfer.ONLY and not known
    if not alone and strategy != DEFAULT:  # which lacks no package, and takes a second to import
        searcher(strategy, 0, known)
    problems = select_problems(
        shapes, models or (), layouts or (), dtypes or (), regimes or (), every, epilogue
    )
    if ray:
        ray_evaluator()  # missed before a folder is made
    count = 0 if ray else gpus_here(gpus)
    with Store(run) as store:
        seed = run_seed(store, seed)
        with workers(run, jobs, count, ray) as (compilers, evaluator):
            # Read, imported and compiled while processes start on the GPUs and measure ceilings.
            card = start.find_card(like, partial(say, out)) if like else None
            make = partial(searcher, strategy, seed % _STRATEGY_SEEDS, known)
            chosen = None if alone else Later(strategy, make)
            begin = start.begin(card, chosen, limit, behind, problems)
            compilers.begin(begin.ahead)
            threading.Thread(target=results.load, daemon=True).start()
            builder = KnownBuilder(compilers, card.kernels if card else {})
            with (
                start.sanitizing(count or 1, run_sanitizer, sanitized or ()) as sanitize,
                live.show_progress(out) as watch,
            ):
                summary = generate.generate(
                    store,
                    problems,
                    begin.strategy,
                    builder,
                    evaluator,
                    begin.budget,
                    watch,
                    seed=seed,
                    sanitize=sanitize,
                    followers=begin.followers,
                )
        if card is not None:
            out.print(f"{builder.taken} kernels were taken from packs")
        conclude(out, store, run, summary, keep, name)


def _no_options(context: typer.Context) -> None:
    """Raise UserError for options of a search in front of a verb, which would not heed them."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            verb = context.invoked_subcommand
            raise UserError(f"--{name} in front of {verb!r}: put options behind the verb")


def run_seed(store: Store, asked: int | None) -> int:
    """The seed of a run: its first call's, else the one asked for, else from the system."""
    runs = store.runs()
    if runs:
        return int(runs[0]["seed"])
    return secrets.randbits(63) if asked is None else asked


def choose_budget(strategy: str, gpu_seconds: float) -> Budget:
    """The budget of a search. An exhaustive one goes on without progress, to the end."""
    budget = Budget(gpu_seconds)
    return replace(budget, patience=sys.maxsize) if strategy == "exhaustive" else budget


def run_sanitizer(
    count: int, kernels: Sequence[CompiledKernel], ahead: Waiting | None = None
) -> Iterator[dict[str, Verdict]]:
    """Verdicts of compute-sanitizer on `count` GPUs here, by kernel id, some at a time; none where
    it cannot work, which is said."""
    from hgemm_packs.generator.gates import sweep
    from hgemm_packs.generator.gates.sanitizer import OF_TABLES, SanitizerUnavailable

    left, seats = len(kernels), sweep.seats(gpus.names()[:count])
    try:
        if not seats:
            raise SanitizerUnavailable("this machine has no GPU")
        size = sweep.group_size(left * len(OF_TABLES), len(seats))
        groups = sweep.deal(kernels, size)
        items = [[(entry(one.fields, one.cubin), one.cubin) for one in each] for each in groups]
        for place, verdicts in sweep.check_groups(items, seats, OF_TABLES, ahead):
            yield dict(zip((one.id for one in groups[place]), verdicts, strict=True))
            left -= len(verdicts)
    except SanitizerUnavailable as error:
        console().print(f"{left} kernels without the sanitizer gate: {error}")


@contextlib.contextmanager
def workers(
    run: Path, jobs: int, count: int, ray: str
) -> Iterator[tuple[ProcessBuilder, Evaluator]]:
    """Compilers and GPUs, ended afterwards."""
    with (
        contextlib.closing(ProcessBuilder(jobs)) as builder,
        contextlib.closing(open_evaluator(run, count, ray)) as evaluator,
        # Small matrices: threads that wait for each other made an ask four times as long.
        threadpool_limits(1),
    ):
        yield builder, evaluator


def ray_evaluator() -> type[RayEvaluator]:
    """What asks a Ray cluster. Raises UserError without the package of that name."""
    try:
        from hgemm_packs.generator.workers.ray_evaluator import RayEvaluator
    except ModuleNotFoundError as error:
        raise UserError(f"--ray needs {error.name}: pip install 'hgemm-packs[ray]'") from error
    return RayEvaluator


def open_evaluator(run: Path, count: int, ray: str = "") -> Evaluator:
    """Processes on the GPUs here, or actors on those of a Ray cluster."""
    if not ray:
        return Local("hgemm_packs.generator.devices.gpu:make", count, logs=run / "logs")
    from hgemm_packs.generator.devices import gpu

    return ray_evaluator()(gpu.make, address=ray)
