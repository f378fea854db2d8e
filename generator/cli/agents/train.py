"""`generate train`: a language model that proposes genomes, trained on recorded times."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.rl.recipe import Recipe

DEFAULT = Recipe()


def _count(default: int, words: str) -> Any:
    return typer.Option(default, min=1, help=words)


@app.command("train", rich_help_panel=AGENTS)
def train_model(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of the training.")],
    recorded: Annotated[Path, typer.Option(metavar="FILE", help="Recorded screens to train on.")],
    held_out: Annotated[
        Path, typer.Option(metavar="FILE", help="Recorded screens of other shapes, to ask about.")
    ],
    model: Annotated[
        str, typer.Option(metavar="FOLDER", help="A model of transformers. Default: a small one.")
    ] = "",
    seed: int = DEFAULT.seed,
    control: Annotated[
        bool, typer.Option("--control", help="Pay each rollout another's reward of its group.")
    ] = False,
    turns: int = _count(DEFAULT.turns, "Turns of an episode."),
    archive_steps: int = _count(DEFAULT.archive_steps, "SFT on the archive."),
    family_steps: int = _count(DEFAULT.family_steps, "GRPO on kernels of a named family."),
    hgemm_steps: int = _count(DEFAULT.hgemm_steps, "GRPO on HGEMM, any family."),
    problems: int = _count(DEFAULT.problems, "Problems of a GRPO step."),
    group: int = typer.Option(DEFAULT.group, min=2, help="Rollouts of a problem."),
) -> None:
    """Train a model to propose kernels: an archive, then families, then HGEMM (extra rl).

    A training that was killed goes on when it is called again. curve.jsonl in FOLDER has what
    held-out problems were worth, hgemm/model the model.
    """
    from hgemm_packs.generator.rl import stages
    from hgemm_packs.generator.rl.judges import RecordedJudge
    from hgemm_packs.generator.rl.recipe import Training, digest_of

    chosen = {
        "model": model,
        "seed": seed,
        "control": control,
        "turns": turns,
        "archive_steps": archive_steps,
        "family_steps": family_steps,
        "hgemm_steps": hgemm_steps,
        "problems": problems,
        "group": group,
        "recorded": (digest_of(recorded), digest_of(held_out)),
    }
    if model and not Path(model, "config.json").is_file():
        raise UserError(f"{model} is no folder of a model: it has no config.json")
    judge, asked = RecordedJudge.read(recorded), RecordedJudge.read(held_out)
    shared = judge.screens.keys() & asked.screens.keys()
    if shared:
        raise UserError(
            f"{len(shared)} held-out problems are trained on, as {min(map(str, shared))}"
        )
    recipe = Recipe(**{**asdict(DEFAULT), **chosen})
    made = stages.train(Training(folder, recipe), judge, asked)
    console().print(f"model: {made}", soft_wrap=True)
