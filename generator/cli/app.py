"""The typer application of `hgemm-packs generate`: the screen of its help, shared options.

The help of a group of verbs fits a screen: a line for each option and each verb, below the panels
that these name by `rich_help_panel`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from typer.core import TyperGroup

from hgemm_packs.cli.console import console

#: Panels of verbs, in this order.
SEARCH = "Search here"
LOOK = "Look and judge"
EVIDENCE = "Tables and evidence"
GATES = "Gates"
AGENTS = "Agents and trainers"
#: Panels of the options of a search.
PROBLEMS = "Which problems (--shapes, --models and filters may be repeated)"
EFFORT = "How long, and where"
WAY = "How to search"

LikeOption = Annotated[
    str, typer.Option(help='A card with a table ("H200"), to begin with.', rich_help_panel=WAY)
]
#: For who has such lines: not on the screen of help.
KnownOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--known",
        hidden=True,
        help="Lines of `generate sanitize`: their kernels are not asked about again.",
    ),
]

#: Verbs in the order of the screen.
ORDER = (
    *("resume", "refine", "pack", "merge"),
    *("eval", "report", "doctor"),
    *("archive", "table", "fit", "contenders", "measure", "remeasure", "follow", "trace"),
    *("redteam", "sanitize"),
    *("solve", "attack", "admit", "serve", "mcp", "export", "train"),
)
INDENT = (0, 0, 0, 2)
Row = tuple[str, str]


class Group(TyperGroup):
    """Verbs whose help has no boxes and a line for each option and verb."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        out = console()
        out.width = min(out.width, 100)
        out.print(f"Usage: {ctx.command_path} {' '.join(self.collect_usage_pieces(ctx))}")
        out.print(self.help or "")
        panels: dict[str, list[Row]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            name = getattr(option, "rich_help_panel", None)
            if record is not None and name:
                panels.setdefault(name, []).append((", ".join(option.opts[::-1]), _words(option)))
        verbs: dict[str, list[Row]] = {name: [] for name in (SEARCH, LOOK, EVIDENCE, GATES, AGENTS)}
        for name, verb in sorted(self.commands.items(), key=_place):
            first = (verb.help or "").strip().split("\n")[0]
            verbs.setdefault(_panel(verb), []).append((name, first))
        _print_panels(out, panels)
        _print_panels(out, {name: rows for name, rows in verbs.items() if rows})
        out.print(f"{ctx.command_path} VERB --help says what a verb wants.")


def _place(named: tuple[str, Any]) -> int:
    return ORDER.index(named[0]) if named[0] in ORDER else len(ORDER)


def _panel(verb: Any) -> str:
    name = getattr(verb, "rich_help_panel", None)
    return name if isinstance(name, str) else "Verbs"


def _words(option: Any) -> str:
    """What an option says of itself, with a default that is worth a word."""
    shown = isinstance(option.default, (str, int, float, Path)) and option.show_default
    return f"{option.help} [{option.default}]" if shown and option.default else str(option.help)


def _print_panels(out: Any, panels: dict[str, list[Row]]) -> None:
    width = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
    for name, rows in panels.items():
        out.print(f"{name}:")
        out.print(Padding(_grid(rows, width), INDENT))


def _grid(rows: Iterable[Row], width: int) -> Table:
    made = Table.grid(padding=(0, 2))
    made.add_column(min_width=width, no_wrap=True)
    made.add_column()
    for row in rows:
        made.add_row(*row)
    return made


app = typer.Typer(
    cls=Group,
    help="Search kernels for problems on the GPUs here, and write a pack of what measured faster.",
    add_completion=False,
    pretty_exceptions_enable=False,
    subcommand_metavar="[VERB ...]",
)

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run, as `generate --run` made it.")
]
Keep = Annotated[
    float,
    typer.Option(min=0.5, max=1.0, help="Share of the gain that pruning must keep."),
]
NAMED = "What the pack is called. Default: after this machine and its GPU."
Name = Annotated[str | None, typer.Option(help=NAMED)]
Gpus = Annotated[int, typer.Option(min=0, help="GPUs of this host to use. 0 means all GPUs.")]
