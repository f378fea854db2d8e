"""`generate attack`: a model, or a rule, tries to pass the gates with wrong kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

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
from hgemm_packs.generator.cli.agents.solve import default_device, read_problem
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.evaluator import DEVICES
from hgemm_packs.generator.llm.words import ChatError


@app.command(rich_help_panel=AGENTS)
def attack(
    sizes: Annotated[str, typer.Argument(metavar='"M,N,K"', help="Sizes of the product.")],
    layout: Annotated[str, typer.Option(help="Storage of A and B.")] = "nt",
    dtype: Annotated[str, typer.Option(help="Type of A, B and C.")] = "f16",
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help=f"{DEVICES} Default: gpu, else none.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Wrong kernels to try.")] = 16,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for what gets through: a case for the corpus.")
    ] = Path("attacks"),
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print the prompt, and ask nobody.")
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
    """Try to pass the gates with wrong kernels.

    A model writes them; without --server a rule plants faults in honest kernels. Ends with 1 where
    one got through: a person looks at it, and it becomes a gate and a case of the corpus. Without
    a GPU what only its gates decide stays undecided.
    """
    from hgemm_packs.generator.agents.roles.red_team import THROUGH, RedTeam
    from hgemm_packs.generator.agents.setting import facts_of
    from hgemm_packs.generator.evaluator.evaluator import Evaluator
    from hgemm_packs.generator.evaluator.places import open_device

    problem = read_problem(sizes, layout, dtype)
    asked = Asked(server, model, key_file, tokens, money, price, record, replay)
    chat = open_chat(asked, out_folder, dry=show_prompt)
    where = open_device(device or default_device(without="none"))
    team = RedTeam(problem, Evaluator(where), facts_of(where), chat, out_folder)
    out = console()
    if show_prompt:
        out.print(team.prompt().show(), soft_wrap=True)
        return
    try:
        found = team.attack(count, seed)
    except ChatError as error:
        raise UserError(str(error)) from None
    rows = Table("attack", "outcome", "gate", "what is wrong")
    for each in found:
        rows.add_row(each.attack.name, each.outcome, each.gate, each.attack.what[:80])
    out.print(rows)
    through = [each for each in found if each.outcome == THROUGH]
    out.print(f"{len(through)} of {len(found)} got through")
    if through:
        out.print(f"look at them: {out_folder}")
        raise typer.Exit(1)
