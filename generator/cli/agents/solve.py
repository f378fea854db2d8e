"""`generate solve`: one problem, watched while agents work on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli.agents.model import (
    Asked,
    KeyOption,
    ModelOption,
    MoneyOption,
    PriceOption,
    RecordOption,
    ReplayOption,
    ServerOption,
    TokensOption,
    open_chat,
)
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.evaluator import DEVICES
from hgemm_packs.problem import Problem


def read_problem(text: str, layout: str, dtype: str) -> Problem:
    """The problem of "M,N,K" or "MxNxK". Raises UserError."""
    words = text.lower().replace("x", ",").split(",")
    if len(words) != 3 or not all(word.strip().isdecimal() for word in words):
        raise UserError(f'{text!r} is no problem: say "M,N,K", as "512,1024,512"')
    m, n, k = (int(word) for word in words)
    if min(m, n, k) < 1:
        raise UserError(f"{text!r} is no problem: sizes are 1 or more")
    try:
        return Problem(m, n, k, layout, dtype)
    except ValueError as error:
        raise UserError(str(error)) from None


@app.command(rich_help_panel=AGENTS)
def solve(
    sizes: Annotated[str, typer.Argument(metavar='"M,N,K"', help="Sizes of the product.")],
    layout: Annotated[str, typer.Option(help="Storage of A and B.")] = "nt",
    dtype: Annotated[str, typer.Option(help="Type of A, B and C.")] = "f16",
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help=f"{DEVICES} Default: gpu, else sim:1.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run, which goes on where it was killed.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page. Default: solve.html in the run.")
    ] = None,
    evaluations: Annotated[int, typer.Option(min=1, help="Kernels that are judged.")] = 64,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="No round begins after these seconds of work.")
    ] = None,
    write: Annotated[
        str, typer.Option(help='What a model writes: "genome" or "source".')
    ] = "genome",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    examples: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Runs whose kernels are shown as examples. Repeatable."),
    ] = None,
    show_prompt: Annotated[
        bool,
        typer.Option("--show-prompt", help="Print the run's prompts, or the first; ask nobody."),
    ] = False,
    server: ServerOption = None,
    model: ModelOption = None,
    key_file: KeyOption = None,
    tokens: TokensOption = None,
    money: MoneyOption = None,
    price: PriceOption = "0,0",
    record: RecordOption = None,
    replay: ReplayOption = None,
) -> None:
    """Watch agents look for the fastest kernel of one problem.

    Hypotheses are branches, those that gain are tried on, those that do not are closed. Without
    --server built-in rules take the model's place. Every kernel passes every gate of the device;
    the page has the tree, verdicts, times, cost and the winning change.
    """
    from hgemm_packs.generator.agents.setting import Setting, solve_problem

    problem = read_problem(sizes, layout, dtype)
    folder = run or Path(f"solve-{problem.m}x{problem.n}x{problem.k}-{layout}-{dtype}")
    asked = Asked(server, model, key_file, tokens, money, price, record, replay)
    setting = Setting(
        problem=problem,
        device=device or default_device(),
        folder=folder,
        page=html or folder / "solve.html",
        evaluations=evaluations,
        seconds=seconds,
        kind=write,
        seed=seed,
        examples=tuple(examples or ()),
    )
    out = console()
    chat = open_chat(asked, folder, dry=show_prompt)
    if show_prompt:
        from hgemm_packs.generator.agents.setting import show_prompts

        for text in show_prompts(setting, chat):
            out.print(text, soft_wrap=True)
        return
    lines, found = solve_problem(setting, chat, out)
    for text in lines:
        out.print(text, soft_wrap=True)
    if not found:
        raise typer.Exit(1)


def default_device(without: str = "sim:1") -> str:
    """The first GPU; `without` one, another device."""
    import torch

    return "gpu:0" if torch.cuda.is_available() else without
