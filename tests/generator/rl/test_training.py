"""Training by trl's own loops, with models of a few thousand parameters and a few steps.

Needs the extra rl; what needs no trl is tested first.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.cli.console import UserError
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.rl import archive, stages
from hgemm_packs.generator.rl.dialogue import END, call_text, called
from hgemm_packs.generator.rl.episode import Episode
from hgemm_packs.generator.rl.judges import RecordedJudge
from hgemm_packs.generator.rl.recipe import Recipe, Training, add_line, keep_lines
from hgemm_packs.generator.rl.sampling import play
from hgemm_packs.generator.rl.stages import shuffle_groups
from hgemm_packs.generator.store.lines import read_records
from tests.generator.command import generate

REPLAY = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "replay"
SMALL = Recipe(
    episodes=2,
    archive_steps=2,
    archive_batch=4,
    family_steps=1,
    hgemm_steps=2,
    problems=2,
    group=2,
    every=1,
    samples=1,
    width=12,
    layers=1,
    turns=2,
)


@pytest.fixture(scope="module")
def judge() -> RecordedJudge:
    """Of the two smallest problems."""
    screens = recording.load(REPLAY / "h200.npz", any_catalogue=True)
    return RecordedJudge(dict([*screens.items()][:2]))


@pytest.fixture(scope="module")
def held_out() -> RecordedJudge:
    screens = recording.load(REPLAY / "h200_held_out.npz", any_catalogue=True)
    return RecordedJudge(dict([*screens.items()][:2]))


def test_the_two_recordings_share_no_problem() -> None:
    train, asked = (RecordedJudge.read(REPLAY / f"{n}.npz") for n in ("h200", "h200_held_out"))
    assert len(train.screens) == 54 and len(asked.screens) == 55
    assert not train.screens.keys() & asked.screens.keys()


def test_the_archive_shows_kernels_that_work_and_revisions_that_gain(judge: RecordedJudge) -> None:
    shown = archive.draw(judge, 6, 3, 0)
    assert archive.draw(judge, 6, 3, 0) == shown != archive.draw(judge, 6, 3, 1)
    assert Counter(len(each.messages) for each in shown) == {1: 12, 3: 12, 5: 12, 7: 12}
    for each in shown:
        assert (each.action is None) == (len(each.messages) == 7)
        replies = [str(m["content"]) for m in each.messages if m["role"] == "tool"]
        speeds = [float(reply.split()[1]) for reply in replies]
        assert all(reply.startswith("OK: ") for reply in replies) and speeds == sorted(speeds)
    first = [each for each in shown if len(each.messages) == 1]
    asked = Counter(str(each.messages[0]["content"]).rsplit(" ", 1)[1] == "any" for each in first)
    assert asked == {True: 6, False: 6}
    for each in first:
        family = str(each.messages[0]["content"]).rsplit(" ", 1)[1]
        assert each.action is not None
        assert family in ("any", json.loads(each.action)["family"])


def test_answers_are_read_back() -> None:
    action = '{"family":"sm90_direct","genome":{"mi":1}}'
    assert called(call_text(action)) == action
    assert called(END) is None and called("no call") is None
    assert called('<tool_call>{"name":"rm","arguments":{}}</tool_call>') is None
    assert called('<tool_call>{"name":"propose"') == '{"name":"propose"'
    assert called('<tool_call>{"name":"propose"}</tool_call>') == "null"


def test_shuffled_rewards_stay_in_their_group() -> None:
    rewards = [float(i) for i in range(32)]
    shuffled = shuffle_groups(rewards, 16, "0 hgemm 1")
    assert shuffled != rewards and shuffle_groups(rewards, 16, "0 hgemm 1") == shuffled
    assert shuffled != shuffle_groups(rewards, 16, "0 hgemm 2")
    assert sorted(shuffled[:16]) == rewards[:16] and sorted(shuffled[16:]) == rewards[16:]


def test_lines_behind_a_checkpoint_are_made_again(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    keep_lines(file, lambda line: True)
    assert not file.exists()
    for step in (1, 2, 3):
        add_line(file, {"step": step})
    with file.open("a", encoding="utf-8") as out:
        out.write('{"step"')  # what a kill leaves
    keep_lines(file, lambda line: line["step"] <= 2)
    assert file.read_text(encoding="utf-8") == '{"step": 1}\n{"step": 2}\n'


def test_a_folder_is_of_one_recipe(tmp_path: Path) -> None:
    Training(tmp_path, SMALL)
    Training(tmp_path, SMALL)
    with pytest.raises(ValueError, match="is of another recipe"):
        Training(tmp_path, Recipe(seed=1))


def test_only_whole_checkpoints_count(tmp_path: Path) -> None:
    training = Training(tmp_path, SMALL)
    assert training.checkpoint("hgemm") is None
    for step, whole in ((2, True), (10, True), (11, False)):
        folder = training.stage("hgemm") / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        if whole:
            (folder / "trainer_state.json").write_text("{}", encoding="utf-8")
    assert training.checkpoint("hgemm") == training.stage("hgemm") / "checkpoint-10"


def test_training_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    file = REPLAY / "h200.npz"
    options = ("--recorded", file, "--held-out", file)
    answer = generate("train", tmp_path / "t", *options)
    assert answer.code == 2 and "54 held-out problems are trained on" in answer.err
    answer = generate("train", tmp_path / "t", *options, "--model", tmp_path)
    assert answer.code == 2 and f"{tmp_path} is no folder of a model" in answer.err.replace(
        "\n", ""
    )


def test_training_without_trl_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UserError, match="training needs the extra rl"):
        stages.need_trl()


@pytest.fixture(scope="module")
def trained(
    judge: RecordedJudge, held_out: RecordedJudge, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    pytest.importorskip("trl")
    folder = tmp_path_factory.mktemp("trained")
    training = Training(folder, SMALL)
    assert stages.train(training, judge, held_out) == folder / "hgemm" / "model"
    return folder


def test_trl_trains_through_every_stage_and_the_lines_say_so(trained: Path) -> None:
    curve = read_records([trained / "curve.jsonl"])
    asked = [(line["stage"], line["step"]) for line in curve]
    assert asked == [("families", 0), ("families", 1), ("hgemm", 0), ("hgemm", 1), ("hgemm", 2)]
    for line in curve:
        assert len(line["rewards"]) == 2 and -1.5 <= line["mean"] <= 1
        assert line["mean"] == pytest.approx(sum(line["rewards"]) / 2, abs=1e-4)
    paid = read_records([trained / "rewards.jsonl"])
    assert [(line["stage"], line["step"], len(line["rewards"])) for line in paid] == [
        *(("families", 1, 4), ("hgemm", 1, 4), ("hgemm", 2, 4))
    ]


def test_a_killed_training_ends_as_one_that_was_not(
    trained: Path, judge: RecordedJudge, held_out: RecordedJudge, tmp_path: Path
) -> None:
    """Killed behind the first of two steps of the last stage: same lines, same weights."""
    import torch
    from safetensors.torch import load_file

    killed = tmp_path / "killed"
    shutil.copytree(trained, killed)
    for gone in ("done", "model", "checkpoint-2"):
        place = killed / "hgemm" / gone
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    with (killed / "curve.jsonl").open("a", encoding="utf-8") as out:
        out.write('{"stage": "hg')
    stages.train(Training(killed, SMALL), judge, held_out)
    for name in ("curve.jsonl", "rewards.jsonl"):
        assert read_records([killed / name]) == read_records([trained / name])
    weights, again = (
        load_file(folder / "hgemm" / "model" / "model.safetensors") for folder in (trained, killed)
    )
    assert weights.keys() == again.keys()
    for name, value in weights.items():
        torch.testing.assert_close(again[name], value, rtol=1e-5, atol=1e-6)


def test_a_model_of_a_folder_is_trained_by_adapters_and_goes_on(
    judge: RecordedJudge, held_out: RecordedJudge, trained: Path, tmp_path: Path
) -> None:
    """`--model`, with LoRA: nothing but what the adapters stand for changes. Killed like the one
    above, it ends with the same weights."""
    import torch
    from safetensors.torch import load_file

    start = trained / "archive" / "model"
    plan = replace(SMALL, model=str(start))
    folder, killed = tmp_path / "whole", tmp_path / "killed"
    stages.train(Training(folder, plan), judge, held_out)
    before, after = (load_file(each / "model.safetensors") for each in (start, _model(folder)))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}
    shutil.copytree(folder, killed)
    for gone in ("done", "model", "checkpoint-2"):
        place = killed / "hgemm" / gone
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    stages.train(Training(killed, plan), judge, held_out)
    again = load_file(_model(killed) / "model.safetensors")
    for name, value in after.items():
        torch.testing.assert_close(again[name], value, rtol=1e-5, atol=1e-6)


def _model(folder: Path) -> Path:
    return folder / "hgemm" / "model"


def test_trl_drives_the_environment_and_pays_what_it_says(
    judge: RecordedJudge, tmp_path: Path
) -> None:
    """trl's GRPOTrainer with the environment as others would use it. The model has learnt one
    action by heart, so that the reward of each rollout is known."""
    trl = pytest.importorskip("trl")
    import torch
    from datasets import Dataset

    from hgemm_packs.generator.rl import actions, models, trl_environment

    problem = next(iter(judge.screens))
    best = judge.space.text(judge.screens[problem].optimum()[0])
    task = actions.task(problem)
    blank = models.word_tokenizer([])
    said: list[dict[str, Any]] = [{"role": "user", "content": task}]
    prompt = blank.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    whole = prompt + call_text(best)
    tokenizer = models.word_tokenizer([whole])
    model = models.small_model(tokenizer, 0, width=24, layers=1)
    count = sum(p.numel() for p in model.parameters())
    assert count < 10_000
    ids = torch.tensor([tokenizer(whole)["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(400):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    trainer = trl.GRPOTrainer(
        model,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=64,
            max_tool_calling_iterations=1,
            max_steps=2,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": ""}], **actions.row_of(problem)}]
        ),
        processing_class=tokenizer,
        environment_factory=trl_environment.factory(judge, 1),
    )
    trainer.train()
    worth = judge.judge(problem, best).reward
    logged = [each for each in trainer.state.log_history if "reward" in each]
    assert len(logged) == 2
    for each in logged:
        assert each["tools/call_frequency"] == 1.0
        assert each["rewards/KernelEnvironment/mean"] == pytest.approx(worth, abs=1e-5)
    episodes = [Episode(judge, problem, 1) for _ in range(3)]
    play(model, tokenizer, episodes, 0, 40)
    assert [episode.turns for episode in episodes] == [[(best, judge.judge(problem, best))]] * 3
