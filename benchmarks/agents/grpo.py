"""GRPO on genome actions, on a GPU: does the reward of held-out problems rise, and only by rewards?

    python -m benchmarks.agents.grpo run OUT [--model FOLDER] [--seeds 0 1] [--seconds 480]
    python -m benchmarks.agents.grpo read MODEL.gguf FOLDER
    python -m benchmarks.agents.grpo take OUT/grpo.zip
    python -m benchmarks.agents.grpo plot

`read` makes FOLDER of a llama model's weights, which it takes out of their quantization (package
gguf). `run` trains a model twice a seed, all at once on one GPU: as it is, and as a control whose
rollouts are paid another's reward of their group. The model is a language model in a folder of
transformers', or the one that `generate train` makes from nothing; `--quick` is to see that it
runs. Rewards are times that an H200 was recorded with, so any GPU will do. OUT/grpo.zip has each
training's recipe, curve and raw rewards, also of trainings that the seconds cut short; `take` puts
them into the results, which `benchmarks.agents.figures` and `plot` read.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from hgemm_packs.generator.rl.recipe import HGEMM, STAGES, Recipe, Training, digest_of
from hgemm_packs.generator.store import shards
from hgemm_packs.generator.store.lines import read_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
RECORDED, HELD_OUT = (RESULTS / "replay" / f"{name}.npz" for name in ("h200", "h200_held_out"))
RAW, PLOT = RESULTS / "agents" / "grpo", RESULTS / "grpo.png"
BLANK = "small transformer of generator/rl/models.py, from random weights"
KEPT = ("recipe.json", "curve.jsonl", "rewards.jsonl", "about.json")
RECIPE = Recipe()
#: Of a language model, whose tokens cost a hundred times as much.
LANGUAGE = Recipe(
    turns=1,
    archive_steps=150,
    family_steps=8,
    hgemm_steps=20,
    problems=12,
    group=12,
    rate=2e-4,
    every=8,
    samples=4,
)
#: What a configuration says of the file that it was read from.
NOT_OF_LLAMA = ("quantization_config", "architectures", "_name_or_path", "dtype")
#: To see that it runs, on a CPU.
QUICK = Recipe(
    episodes=8,
    archive_steps=20,
    archive_batch=16,
    family_steps=1,
    hgemm_steps=2,
    problems=2,
    group=4,
    every=1,
    samples=1,
    width=48,
    layers=1,
)


def name_of(recipe: Recipe) -> str:
    model = f"{Path(recipe.model).name}-" if recipe.model else ""
    return f"{model}seed{recipe.seed}-{'control' if recipe.control else 'rewarded'}"


def train_one(folder: Path, recipe: Recipe) -> None:
    """One training, in this process."""
    import torch

    from hgemm_packs.generator.rl import stages
    from hgemm_packs.generator.rl.judges import RecordedJudge

    began = time.monotonic()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")
    stages.train(
        Training(folder, recipe), RecordedJudge.read(RECORDED), RecordedJudge.read(HELD_OUT)
    )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    about = {
        "device": device,
        "python": platform.python_version(),
        **{each: version(each) for each in ("torch", "transformers", "trl", "datasets")},
        "seconds": round(time.monotonic() - began, 1),
        "model": Path(recipe.model).name or BLANK,
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def read(weights: Path, folder: Path) -> None:
    """Write a llama model and its tokenizer as a folder that `--model` takes. Raises OSError, and
    ImportError without the package gguf."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    given = {"gguf_file": weights.name, "local_files_only": True}
    quantized = AutoModelForCausalLM.from_pretrained(weights.parent, **given)
    # transformers does not save a model that it read so: its numbers go into one that it does.
    config = quantized.config.to_dict()
    model = LlamaForCausalLM(LlamaConfig(**{n: config[n] for n in config if n not in NOT_OF_LLAMA}))
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(weights.parent, **given).save_pretrained(folder)


def run(out: Path, seeds: Sequence[int], seconds: float, base: Recipe) -> int:
    """All trainings at once; returns how many did not end by themselves. What is left of an earlier
    call goes on."""
    recorded = (digest_of(RECORDED), digest_of(HELD_OUT))
    recipes = [
        replace(base, seed=seed, control=control, recorded=recorded)
        for seed in seeds
        for control in (False, True)
    ]
    work = out / "work"
    work.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    started = []
    for recipe in recipes:
        with (work / f"{name_of(recipe)}.log").open("ab") as log:
            command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "one"]
            given = [str(work / name_of(recipe)), json.dumps(recipe.__dict__)]
            environment = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
            started.append(
                subprocess.Popen(command + given, stdout=log, stderr=log, env=environment)
            )
    for process in started:
        try:
            process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    keep(work, out / "grpo.zip")
    for recipe in recipes:
        print(say(work / name_of(recipe)))
    failed = [r for r, p in zip(recipes, started, strict=True) if p.returncode]
    for recipe in failed:
        log = (work / f"{name_of(recipe)}.log").read_text(encoding="utf-8", errors="replace")
        print(f"{name_of(recipe)} did not end:\n{log[-1500:]}")
    return len(failed)


def keep(work: Path, packed: Path) -> None:
    """What is worth keeping of trainings, in one file."""
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for recipe in sorted(work.glob("*/recipe.json")):
            for each in map(recipe.with_name, KEPT):
                if each.exists():
                    file.write(each, f"{recipe.parent.name}/{each.name}")


def say(folder: Path) -> str:
    """A training in a line: mean held-out rewards at each question."""
    curve = read_records([folder / "curve.jsonl"]) if (folder / "curve.jsonl").exists() else []
    means = " ".join(f"{fmean(line['rewards']):.3f}" for line in curve)
    return f"{folder.name}: {means or 'nothing'}"


def take(packed: Path, raw: Path = RAW) -> list[Path]:
    """Put trainings beside those that are there, their lines packed; returns their folders. Raises
    ValueError for what is no file of `run`, and FileExistsError for a training that is there."""
    made = []
    with zipfile.ZipFile(packed) as file:
        names = [Path(each) for each in file.namelist()]
        if not names or any(len(n.parts) != 2 or n.name not in KEPT for n in names):
            raise ValueError(f"{packed} is no file of benchmarks.agents.grpo")
        for place in sorted({raw / name.parts[0] for name in names}):
            if place.exists():
                raise FileExistsError(f"{place} is there: results are never rewritten")
            made.append(place)
        for name in names:
            (raw / name.parts[0]).mkdir(parents=True, exist_ok=True)
            data = file.read(name.as_posix())
            if name.suffix == ".jsonl":
                records = [json.loads(line) for line in data.splitlines()]
                (raw / f"{name}.zip").write_bytes(shards.pack(records))
            else:
                (raw / name).write_bytes(data)
    return made


Curves = dict[bool, list[dict[int, float]]]


def curves(raw: Path = RAW) -> dict[str, Curves]:
    """By model, "" for the one made from nothing, and control: of each training, steps of all GRPO
    together -> mean held-out reward."""
    found: dict[str, Curves] = {}
    for file in sorted(raw.glob("*/recipe.json")):
        recipe: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        before = dict.fromkeys(STAGES, 0) | {HGEMM: recipe["family_steps"]}
        lines = read_records([file.with_name("curve.jsonl.zip")])
        curve = {before[each["stage"]] + each["step"]: fmean(each["rewards"]) for each in lines}
        of_model = found.setdefault(recipe["model"], {False: [], True: []})
        of_model[recipe["control"]].append(curve)
    return found


def _draw(axes: Any, control: bool, trainings: Sequence[Mapping[int, float]]) -> None:
    """The curves of one model's trainings, or of its controls, and their mean."""
    colour = "tab:gray" if control else "tab:blue"
    for curve in trainings:
        axes.plot([*curve], [*curve.values()], color=colour, alpha=0.35, linewidth=1)
    shared = sorted(set.intersection(*map(set, trainings))) if trainings else []
    means = [fmean(curve[step] for curve in trainings) for step in shared]
    label = "rewards shuffled in their group (control)" if control else "rewarded"
    axes.plot(shared, means, color=colour, linewidth=2.5, label=label)


def plot(raw: Path = RAW, out: Path = PLOT) -> None:
    """Held-out reward by step, a panel a model: every training thin, means thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    models = sorted(curves(raw).items(), reverse=True)
    figure, panels = pyplot.subplots(1, len(models), figsize=(6 * len(models), 4.2), squeeze=False)
    for axes, (model, of_model) in zip(panels[0], models, strict=True):
        for control, trainings in of_model.items():
            _draw(axes, control, trainings)
        axes.set_title(model or "a small transformer from random weights", fontsize=10)
        axes.set_xlabel("GRPO steps: kernels of a family, then HGEMM")
        axes.set_ylabel("mean reward on held-out problems")
        axes.grid(alpha=0.3)
        axes.legend(loc="best")
    figure.tight_layout()
    figure.savefig(out, dpi=120, metadata={"Software": None})


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    ran = verbs.add_parser("run")
    ran.add_argument("out", type=Path)
    ran.add_argument("--model", default="")
    ran.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    ran.add_argument("--seconds", type=float, default=480.0)
    ran.add_argument("--quick", action="store_true")
    one = verbs.add_parser("one")
    one.add_argument("folder", type=Path)
    one.add_argument("recipe")
    found = verbs.add_parser("read")
    found.add_argument("weights", type=Path)
    found.add_argument("folder", type=Path)
    taken = verbs.add_parser("take")
    taken.add_argument("packed", type=Path)
    verbs.add_parser("plot")
    given = parser.parse_args(arguments)
    if given.verb == "run":
        full = LANGUAGE if given.model else RECIPE
        base = replace(QUICK if given.quick else full, model=given.model)
        return int(run(given.out, given.seeds, given.seconds, base) > 0)
    if given.verb == "one":
        fields = json.loads(given.recipe)
        train_one(given.folder, Recipe(**{**fields, "recorded": tuple(fields["recorded"])}))
    elif given.verb == "read":
        read(given.weights, given.folder)
    elif given.verb == "take":
        for place in take(given.packed):
            print(place)
    else:
        plot()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
