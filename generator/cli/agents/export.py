"""`generate export`: what a run tried, as trainers of language models take it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import console
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.rl import exports

Format = Enum("Format", {name: name for name in exports.FORMATS}, type=str)  # type: ignore[misc]


@app.command("export", rich_help_panel=AGENTS)
def export_run(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a search, or of `generate solve`.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="File of lines to write.")],
    format_: Annotated[
        Format, typer.Option("--format", help="Answers to learn, pairs, or turns with rewards.")
    ],
) -> None:
    """Write a run's proposals as turns with rewards: for SFT, preferences or GRPO.

    docs/reinforcement.md of the repository lists the fields of a line.
    """
    count = exports.write(run, format_.value, out)
    console().print(f"wrote {out}: {count} lines", soft_wrap=True)
    if not count:
        raise typer.Exit(1)
