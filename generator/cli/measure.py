"""`generate measure`: the kernels of a pack under one protocol, each answer a line on file; and
`generate sanitize`, the pack under compute-sanitizer.

Every verb here takes a pack and a file of lines, and goes on where that file ends. `rows` and
`free` are in a module of their own.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.campaigns import (
    campaign,
    chained,
    dependent,
    public,
    sustained,
    unseen,
)
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, CampaignOptions, ProblemFilter
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import EVIDENCE, GATES, Gpus, Group, app
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.tables.sustained import LEAST_FLOP
from hgemm_packs.generator.workers import gpus

measures = typer.Typer(
    cls=Group,
    help="Measure a pack: dependent, sustained, mixed, public, chained, unseen, rows; or free.",
    subcommand_metavar="VERB ...",
)
app.add_typer(measures, name="measure", rich_help_panel=EVIDENCE)

Pack = Annotated[Path, typer.Argument(metavar="PACK", help="Folder of a built pack.")]
Out = Annotated[
    Path,
    typer.Argument(
        metavar="OUT.jsonl", help="File of lines. Problems in the file are not measured again."
    ),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        help='Only problems of a list ("grid", "llm", "serving", ...), a TOML file or a file of '
        "JSON lines. Default: the whole table."
    ),
]
Deadline = Annotated[float, typer.Option(help="Stop after this many seconds.")]
Timeout = Annotated[float, typer.Option(help="Seconds that one problem may take, at most.")]
Commit = Annotated[
    str | None, typer.Option(help="Commit of the sources. Default: the commit that git names.")
]
FAR = float("inf")


def write_summary(out: Path, document: dict[str, object]) -> None:
    """Write the figures of a file of lines beside it, and print those of its groups."""
    path = out.with_suffix(".summary.json")
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["groups"], indent=1))
    console().print(f"wrong: {document['wrong']}; wrote {path}", soft_wrap=True)


def leave(tally: CampaignCounts, wrong: object = ()) -> None:
    """End a verb: with 1 where a task failed or is left, or a value was wrong."""
    if not tally.whole or wrong:
        raise typer.Exit(1)


@measures.command("dependent")
def measure_dependent(
    pack: Pack,
    out: Out,
    shapes: Shapes = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    gpus: Gpus = 0,
    deadline: Deadline = FAR,
    timeout: Timeout = 120.0,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of a problem, at most.")] = 11,
    target_us: Annotated[float, typer.Option(help="Microseconds of one replay.")] = 300.0,
    budget_us: Annotated[
        float, typer.Option(help="Microseconds that all replays of a problem may take.")
    ] = 12_500.0,
    commit: Commit = None,
) -> None:
    """Launch kernels behind one another: dependent, plain, and torch.

    The lines choose a row's kernel for dependent launch (`generate table --dependent`). Lines that
    are measured apart from the choice give the figures (`--published`). Without names of kernels
    in --shapes each problem has the kernel that its row names for dependent launch.
    """
    from hgemm_packs.generator.devices.protocols import ProtocolSettings

    plan = CampaignOptions(out, search.gpus_here(gpus), deadline, timeout, commit)
    wanted = ProblemFilter(shapes, layouts or (), dtypes or (), regimes or (), every)
    tally = dependent.measure(
        plan, Packed(pack), wanted, ProtocolSettings(blocks, target_us, budget_us)
    )
    found = dependent.summary(campaign.lines([out])[1])
    rows = Table("problems of", "count", *dependent.COLUMNS)
    for name, each in found["groups"].items():
        figures = (f"{each[column]:.3f}" for column in dependent.COLUMNS)
        rows.add_row(name, str(each["problems"]), *figures)
    rows.title = "torch over ours, geometric means"
    console().print(rows)
    for name in ("wrong", "not_programmatic"):
        console().print(f"{name}: {found[name]}", markup=False)
    leave(tally, found["wrong"])


@measures.command("sustained")
def measure_sustained(
    pack: Pack,
    out: Out,
    measured: Annotated[
        Path | None, typer.Option(help="An export: only kernels that it confirms take part.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds that each arm runs.")] = 1.5,
    contenders: Annotated[int, typer.Option(min=1, help="Kernels of a problem, at most.")] = 3,
    kernels: Annotated[
        list[str] | None, typer.Option(help="Only the kernels of these names or ids.")
    ] = None,
    least_flop: Annotated[float, typer.Option(help="Least operations of a problem.")] = LEAST_FLOP,
    shapes: Shapes = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    gpus: Gpus = 0,
    deadline: Deadline = FAR,
    timeout: Timeout = 120.0,
    commit: Commit = None,
) -> None:
    """Run large problems for long: time, power and clock at the power limit.

    The lines choose the kernels of large problems (`generate table --sustained`).
    `generate contenders` makes a pack of all that may be chosen.
    """
    from hgemm_packs.generator.devices.protocols import ProtocolSettings

    plan = CampaignOptions(out, search.gpus_here(gpus), deadline, timeout, commit)
    wanted = ProblemFilter(shapes, layouts or (), dtypes or (), regimes or (), every)
    among = sustained.Among(measured, kernels or (), least_flop)
    settings = ProtocolSettings(seconds=seconds, candidates=contenders)
    tally = sustained.measure(plan, Packed(pack), wanted, settings, among)
    write_summary(out, sustained.summary(*campaign.lines([out])))
    leave(tally)


@measures.command("mixed")
def measure_mixed(
    pack: Pack,
    out: Out,
    pairs: Annotated[
        Path | None, typer.Option(help="JSON lines of problems and further contenders.")
    ] = None,
    shapes: Shapes = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    deadline: Deadline = FAR,
    commit: Commit = None,
) -> None:
    """Launch kernels between other products: which one serves dependent launch.

    One GPU measures. The lines choose again among a row's kernels (`generate table --mixed`).
    """
    from hgemm_packs.generator.campaigns import mixed

    plan = CampaignOptions(out, search.gpus_here(1), deadline, commit=commit)
    wanted = ProblemFilter(shapes, layouts or (), dtypes or (), regimes or (), every)
    leave(mixed.measure(plan, Packed(pack), wanted, pairs))


@measures.command("public")
def measure_public(
    pack: Pack,
    out: Out,
    most_flop: Annotated[
        float, typer.Option(help="Only problems of fewer operations than this.")
    ] = math.inf,
    shapes: Shapes = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    deadline: Deadline = FAR,
    commit: Commit = None,
) -> None:
    """Call `matmul` in CUDA graphs that torch captures, against torch.matmul.

    One GPU measures. A kernel below 0.99 of torch leaves its row (`generate table --public`).
    """
    plan = CampaignOptions(out, search.gpus_here(1), deadline, commit=commit)
    wanted = ProblemFilter(shapes, layouts or (), dtypes or (), regimes or (), every)
    leave(public.measure(plan, Packed(pack), wanted, most_flop))


@measures.command("chained")
def measure_chained(
    pack: Pack,
    out: Out,
    count: Annotated[int, typer.Option(help="Problems of the grid.")] = 60,
    layers: Annotated[int, typer.Option(help="Problems of layers of language models.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the choice of problems.")] = 4,
    shapes: Shapes = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
    regimes: search.Regimes = None,
    every: search.Every = 1,
    gpus: Gpus = 0,
    deadline: Deadline = FAR,
    timeout: Timeout = 120.0,
    commit: Commit = None,
) -> None:
    """Run layers of a model with torch's elementwise kernels between the products.

    The lines choose nothing. They say how much of a kernel's gain is left there.
    """
    plan = CampaignOptions(out, search.gpus_here(gpus), deadline, timeout, commit)
    wanted = ProblemFilter(shapes, layouts or (), dtypes or (), regimes or (), every)
    draw = chained.Draw(count, layers, seed)
    tally = chained.measure(plan, Packed(pack), wanted, draw)
    write_summary(out, chained.summary(*campaign.lines([out])))
    leave(tally)


@measures.command("unseen")
def measure_unseen(
    pack: Pack,
    out: Out,
    layers: Annotated[int, typer.Option(help="Layers of models, with any M.")] = 1500,
    sizes: Annotated[int, typer.Option(help="Problems of random sizes.")] = 1500,
    unaligned: Annotated[
        int, typer.Option(help="Problems of random sizes, N or K no multiple of 8.")
    ] = 400,
    alone: Annotated[
        int, typer.Option(help="Problems more, half of them layers, to time torch alone on.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 11,
    deadline: Deadline = FAR,
    commit: Commit = None,
) -> None:
    """Time torch and promising kernels on problems that a seed draws.

    One GPU measures. Models of times are fitted to the lines (`generate fit`).
    """
    plan = CampaignOptions(out, search.gpus_here(1), deadline, commit=commit)
    leave(unseen.measure(plan, Packed(pack), unseen.Draw(layers, sizes, unaligned, alone, seed)))


@app.command("sanitize", rich_help_panel=GATES)
def sanitize_pack(
    pack: Annotated[
        Path, typer.Argument(metavar="PACK", help="Folder of a pack or of covering genomes.")
    ],
    out: Out,
    tools: Annotated[
        list[str] | None,
        typer.Option(help="Tools of compute-sanitizer. Default: memcheck and racecheck."),
    ] = None,
    known: Annotated[
        list[Path] | None, typer.Option(help="Files of earlier lines, or their folders.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time. Default: from cores and GPUs.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Only each N-th kernel.")] = 1,
    deadline: Deadline = FAR,
    commit: Commit = None,
) -> None:
    """Run every kernel of a pack under compute-sanitizer.

    All GPUs here take part.

    A table names only kernels that are clean by such lines (`generate table --sanitized`). A kernel
    that has a line does not run again, unless its process came to no end.
    """
    from hgemm_packs.generator.campaigns import sanitize
    from hgemm_packs.generator.gates import sanitizer, sweep

    asked = tuple(tools or sanitizer.OF_TABLES)
    if not set(asked) <= set(sanitizer.TOOLS):
        raise UserError(f"--tools {' '.join(asked)}: known are {', '.join(sanitizer.TOOLS)}")
    names = gpus.names()
    if not names:
        raise UserError(search.NO_DEVICE)
    plan = CampaignOptions(out, len(names), deadline, commit=commit)
    if not sanitize.sanitize(pack, plan, asked, sweep.seats(names, processes), every, known or ()):
        raise typer.Exit(1)
