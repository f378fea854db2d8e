"""What a training is: its settings, its folder, and lines that survive a kill.

Called by `stages`. A folder belongs to one recipe: another is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.rl.episode import TURNS
from hgemm_packs.generator.store.lines import read_records

#: Stages in order: shown an archive; GRPO on kernels of a family that the task names; GRPO on
#: HGEMM, any family.
ARCHIVE, FAMILIES, HGEMM = STAGES = ("archive", "families", "hgemm")

#: Dialogues that go through a language model together, in training.
AT_ONCE = 36


@dataclass(frozen=True)
class Recipe:
    """Settings of a training. `control` pays each rollout the reward of another of its group: what
    a model learns then it does not learn from rewards."""

    seed: int = 0
    control: bool = False
    turns: int = TURNS
    episodes: int = 64  # of each problem in the archive
    archive_steps: int = 600
    archive_batch: int = 64
    archive_rate: float = 1e-3
    family_steps: int = 30
    hgemm_steps: int = 90
    problems: int = 16  # of a GRPO step
    group: int = 16  # rollouts of a problem
    rate: float = 3e-4
    every: int = 10  # steps between questions about held-out problems, and between checkpoints
    samples: int = 8  # episodes of each held-out problem
    width: int = 192  # of the small model
    layers: int = 4
    model: str = ""  # a folder of transformers' instead; empty makes the small model
    recorded: tuple[str, ...] = ()  # digests of the recordings: trained on, held out

    @property
    def answer_tokens(self) -> int:
        """Tokens of one answer at most: a word of the small model is many of other models."""
        return 200 if self.model else 40

    @property
    def dialogue_tokens(self) -> int:
        """Tokens of all turns of a rollout at most, replies included."""
        return self.turns * (240 if self.model else 80)

    def parts(self, batch: int) -> int:
        """A batch of so many dialogues goes through the model in this many parts: the logits of a
        language model's words fill a GPU."""
        counts = (n for n in range(1, batch + 1) if batch % n == 0 and batch // n <= AT_ONCE)
        return next(counts) if self.model else 1

    def steps(self, stage: str) -> int:
        """Of a GRPO stage."""
        return {FAMILIES: self.family_steps, HGEMM: self.hgemm_steps}[stage]


class Training:
    """The folder of a training: recipe.json, curve.jsonl, rewards.jsonl, a folder a stage."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        """Raises ValueError where the folder is of another recipe."""
        self.folder, self.recipe = folder, recipe
        file, text = folder / "recipe.json", json.dumps(asdict(recipe), indent=1)
        if not file.exists():
            write_atomically(file, text.encode())
        elif file.read_text(encoding="utf-8") != text:
            raise ValueError(f"{folder} is of another recipe: see {file}")

    def stage(self, name: str) -> Path:
        return self.folder / name

    def model(self, name: str) -> Path:
        """Where a stage leaves its model."""
        return self.folder / name / "model"

    def is_done(self, name: str) -> bool:
        return (self.stage(name) / "done").exists()

    def finish(self, name: str) -> None:
        write_atomically(self.stage(name) / "done", b"")

    def checkpoint(self, name: str) -> Path | None:
        """The last whole checkpoint of a stage."""
        found = self.stage(name).glob("checkpoint-*/trainer_state.json")
        steps = sorted((int(file.parent.name.split("-")[1]), file.parent) for file in found)
        return steps[-1][1] if steps else None

    def forget(self, name: str, after: int) -> None:
        """Drop the lines of a stage behind a step: they will be made again."""
        for file in (self.curve, self.rewards):
            keep_lines(file, lambda line: line["stage"] != name or line["step"] <= after)

    @property
    def curve(self) -> Path:
        return self.folder / "curve.jsonl"

    @property
    def rewards(self) -> Path:
        return self.folder / "rewards.jsonl"


def digest_of(recording: Path) -> str:
    """What a recipe names a recording by. Raises OSError."""
    return hashlib.sha256(recording.read_bytes()).hexdigest()[:16]


def add_line(file: Path, line: Mapping[str, Any]) -> None:
    """Append a record, on disk when this returns."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def keep_lines(file: Path, keep: Callable[[Mapping[str, Any]], bool]) -> None:
    """Rewrite a file of lines without those that are not kept, and without a torn last one."""
    if file.exists():
        kept = [json.dumps(line) for line in read_records([file]) if keep(line)]
        write_atomically(file, "".join(f"{line}\n" for line in kept).encode())
