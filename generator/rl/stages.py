"""Training by trl: SFT on an archive, then GRPO on kernels of a family, then on HGEMM.

The loops are trl's own; the environment, rewards and questions about held-out problems are ours.
A killed training goes on from its last checkpoint when it is called again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hgemm_packs.cli.console import UserError
from hgemm_packs.generator.rl import archive, models
from hgemm_packs.generator.rl.actions import row_of
from hgemm_packs.generator.rl.archive import Shown
from hgemm_packs.generator.rl.dialogue import END, call_text
from hgemm_packs.generator.rl.episode import Episode
from hgemm_packs.generator.rl.judges import RecordedJudge
from hgemm_packs.generator.rl.recipe import ARCHIVE, FAMILIES, HGEMM, Recipe, Training, add_line
from hgemm_packs.generator.rl.sampling import play
from hgemm_packs.generator.rl.trl_environment import Rollout, episode_of

#: Seeds of held-out episodes begin here, apart from those of training.
ASKED = 7_000
#: Steps between checkpoints of the first stage.
ARCHIVE_EVERY = 100


def train(training: Training, judge: RecordedJudge, held_out: RecordedJudge) -> Path:
    """Run what is left of the stages; returns the folder of the trained model. Raises UserError
    without the extra `rl`."""
    need_trl()
    if not training.is_done(ARCHIVE):
        shown = archive.draw(
            judge, training.recipe.episodes, training.recipe.turns, training.recipe.seed
        )
        learn_archive(training, shown)
    for stage, before in ((FAMILIES, ARCHIVE), (HGEMM, FAMILIES)):
        if not training.is_done(stage):
            practise(training, stage, training.model(before), judge, held_out)
    return training.model(HGEMM)


def need_trl() -> None:
    """Raises UserError where trl is not installed."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    try:
        import datasets  # noqa: F401
        import trl  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"training needs the extra rl ({error.name} is not installed)") from error


def learn_archive(training: Training, shown: Sequence[Shown]) -> None:
    """SFT: the loss is that of the answers."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    plan = training.recipe
    model, tokenizer = _first(plan, shown)
    rows = [_row(tokenizer, each) for each in shown]
    made = SFTTrainer(
        model,
        args=SFTConfig(
            **_common(training, ARCHIVE, plan.archive_rate, plan.archive_batch),
            max_steps=plan.archive_steps,
            max_length=models.LONGEST,
            lr_scheduler_type="cosine",
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=_adapters(plan),
    )
    _run(training, ARCHIVE, made)


def practise(
    training: Training,
    stage: str,
    start: Path,
    judge: RecordedJudge,
    held_out: RecordedJudge,
) -> None:
    """GRPO. Advantages are rewards less their group's mean over the group's spread, so that every
    problem counts alike."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    plan = training.recipe
    model, tokenizer = models.read_model(start)
    checkpoint = training.checkpoint(stage)
    step = int(checkpoint.name.split("-")[1]) if checkpoint else -1
    training.forget(stage, step)
    made = GRPOTrainer(
        model,
        reward_funcs=Rewards(training, stage),
        args=GRPOConfig(
            **_common(training, stage, plan.rate, plan.problems * plan.group),
            max_steps=plan.steps(stage),
            num_generations=plan.group,
            max_completion_length=plan.dialogue_tokens,
            max_tool_calling_iterations=plan.turns,
            scale_rewards="group",
            shuffle_dataset=False,
            beta=0.0,
            temperature=1.0,
            lr_scheduler_type="linear",
        ),
        train_dataset=Dataset.from_list(_schedule(plan, stage, judge)),
        processing_class=tokenizer,
        environment_factory=lambda: Rollout(judge, plan.turns),
        peft_config=_adapters(plan),
        callbacks=[_asking(training, stage, held_out, tokenizer)],
    )
    _run(training, stage, made)


def _first(plan: Recipe, shown: Sequence[Shown]) -> tuple[Any, Any]:
    """The model to begin with, and its tokenizer."""
    if plan.model:
        return models.read_model(Path(plan.model))
    blank = models.word_tokenizer([])
    texts = (_text(blank, each) for each in shown)
    tokenizer = models.word_tokenizer(texts)
    return models.small_model(tokenizer, plan.seed, plan.width, plan.layers), tokenizer


def _text(tokenizer: Any, shown: Shown) -> str:
    row = _row(tokenizer, shown)
    return row["prompt"] + row["completion"]


def _row(tokenizer: Any, shown: Shown) -> dict[str, str]:
    prompt = tokenizer.apply_chat_template(
        list(shown.messages), tokenize=False, add_generation_prompt=True
    )
    return {"prompt": prompt, "completion": call_text(shown.action) if shown.action else END}


def _schedule(plan: Recipe, stage: str, judge: RecordedJudge) -> list[dict[str, Any]]:
    """The rows of every step in order: each task once before any comes again. As one epoch, for a
    sampler that goes on from a checkpoint would begin a later epoch in another order."""
    rng = random.Random(f"{plan.seed} {stage}")
    tasks = [*_tasks(judge, stage)]
    found: list[dict[str, Any]] = []
    while len(found) < plan.steps(stage) * plan.problems:
        found += rng.sample(tasks, len(tasks))
    return found[: plan.steps(stage) * plan.problems]


def _tasks(judge: RecordedJudge, stage: str) -> Iterator[dict[str, Any]]:
    """Rows of the problems; of each family in the stage of families."""
    for problem, screen in judge.screens.items():
        families = {c.family for c in screen.choices} if stage == FAMILIES else {""}
        for only in sorted(families):
            prompt = [{"role": "user", "content": ""}]  # the environment's task is added to it
            yield {"prompt": prompt, "only": only, **row_of(problem)}


def _common(training: Training, stage: str, rate: float, batch: int) -> dict[str, Any]:
    import torch

    parts = training.recipe.parts(batch)
    every = ARCHIVE_EVERY if stage == ARCHIVE else training.recipe.every
    return {
        "output_dir": str(training.stage(stage)),
        "learning_rate": rate,
        "seed": training.recipe.seed,
        "save_steps": every,
        "logging_steps": every,
        "save_total_limit": 2,
        "report_to": "none",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": batch // parts,
        "gradient_accumulation_steps": parts,
        "bf16": bool(training.recipe.model) and torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
    }


def _adapters(plan: Recipe) -> Any:
    """LoRA for a model that was read; the small one is trained whole."""
    if not plan.model:
        return None
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def _run(training: Training, stage: str, trainer: Any) -> None:
    checkpoint = training.checkpoint(stage)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    model = trainer.model
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.save_pretrained(training.model(stage))
    trainer.processing_class.save_pretrained(training.model(stage))
    training.finish(stage)


class Rewards:
    """trl's reward function: of each rollout its episode's, or of another of its group."""

    __name__ = "episode"

    def __init__(self, training: Training, stage: str) -> None:
        self.training, self.stage = training, stage

    def __call__(self, *, environments: Sequence[Rollout], trainer_state: Any, **_: Any) -> Any:
        plan, step = self.training.recipe, int(trainer_state.global_step)
        episodes = [episode_of(each) for each in environments]
        earned = [episode.reward for episode in episodes]
        paid = shuffle_groups(earned, plan.group, f"{plan.seed} {self.stage} {step}")
        line = {
            "stage": self.stage,
            "step": step + 1,  # the one that these rewards make
            "problems": [str(episode.problem) for episode in episodes[:: plan.group]],
            "rewards": [round(reward, 4) for reward in earned],
        }
        add_line(self.training.rewards, line)
        return paid if plan.control else earned


def shuffle_groups(rewards: Sequence[float], size: int, seed: str) -> list[float]:
    """The rewards of each group of `size` in another order."""
    rng = random.Random(seed)
    groups = [list(rewards[at : at + size]) for at in range(0, len(rewards), size)]
    for group in groups:
        rng.shuffle(group)
    return [reward for group in groups for reward in group]


def ask(
    training: Training, stage: str, step: int, model: Any, tokenizer: Any, held_out: RecordedJudge
) -> None:
    """Have the model play the held-out problems, and write what came of it."""
    plan = training.recipe
    episodes = [
        Episode(held_out, problem, plan.turns)
        for problem in held_out.screens
        for _ in range(plan.samples)
    ]
    play(model, tokenizer, episodes, ASKED + plan.seed, plan.answer_tokens)
    rewards = [episode.reward for episode in episodes]
    line = {
        "stage": stage,
        "step": step,
        "mean": sum(rewards) / len(rewards),
        "rewards": [round(reward, 4) for reward in rewards],
        "speedups": [  # of the best turn; 0 where no turn was right
            round(max([judged.speedup or 0.0 for _, judged in e.turns], default=0.0), 4)
            for e in episodes
        ],
    }
    add_line(training.curve, line)


def _asking(training: Training, stage: str, held_out: RecordedJudge, tokenizer: Any) -> Any:
    """trl's callback that asks before the first step and after every so many."""
    from transformers import TrainerCallback

    class Asking(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
            if state.global_step == 0:
                ask(training, stage, 0, known["model"], tokenizer, held_out)

        def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
            last = state.global_step == training.recipe.steps(stage)
            if state.global_step % training.recipe.every == 0 or last:
                ask(training, stage, state.global_step, known["model"], tokenizer, held_out)

    return Asking()
