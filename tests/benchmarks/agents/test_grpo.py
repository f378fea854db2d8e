"""Trainings of GRPO travel as one file, and their plot follows from the lines."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from benchmarks.agents import grpo
from hgemm_packs.generator.rl.recipe import Recipe
from hgemm_packs.generator.store import shards
from hgemm_packs.generator.store.lines import read_records


def training(folder: Path, control: bool, means: list[float], model: str = "") -> None:
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(
        json.dumps({"control": control, "family_steps": 5, "model": model})
    )
    steps = [("families", 0), ("families", 5), ("hgemm", 0), ("hgemm", 10)]
    lines = (
        {"stage": stage, "step": step, "rewards": [mean - 0.25, mean + 0.25]}
        for (stage, step), mean in zip(steps, means, strict=True)
    )
    (folder / "curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "hgemm").mkdir()
    (folder / "hgemm" / "model").write_text("not kept")


def test_trainings_come_back_as_they_were(tmp_path: Path) -> None:
    work, raw = tmp_path / "work", tmp_path / "raw"
    training(work / "one", False, [-0.5, 0.0, 0.0, 0.5])
    training(work / "two", True, [-0.5, -0.5, -0.5, -0.25])
    (work / "one.log").write_text("not kept")
    assert grpo.say(work / "one") == "one: -0.500 0.000 0.000 0.500"
    grpo.keep(work, tmp_path / "grpo.zip")
    assert grpo.take(tmp_path / "grpo.zip", raw) == [raw / "one", raw / "two"]
    kept = sorted(str(file.relative_to(raw)) for file in raw.rglob("*") if file.is_file())
    assert kept == [f"{a}/{b}" for a in ("one", "two") for b in ("curve.jsonl.zip", "recipe.json")]
    for name in kept:
        if name.endswith(".zip"):
            lines = (work / name).with_suffix("").read_text().splitlines()
            assert list(read_records([raw / name])) == [json.loads(line) for line in lines]
        else:
            assert (raw / name).read_bytes() == (work / name).read_bytes()
    # Steps of both stages are counted together; the start of the second is the end of the first.
    assert grpo.curves(raw) == {
        "": {
            False: [{0: -0.5, 5: 0.0, 15: 0.5}],
            True: [{0: -0.5, 5: -0.5, 15: -0.25}],
        }
    }
    with pytest.raises(FileExistsError, match="results are never rewritten"):
        grpo.take(tmp_path / "grpo.zip", raw)
    training(raw / "language", False, [-0.5, 0.25, 0.25, 0.75], "a/model")
    packed = raw / "language" / "curve.jsonl"
    packed.with_suffix(".jsonl.zip").write_bytes(shards.pack(read_records([packed])))
    assert grpo.curves(raw)["a/model"] == {False: [{0: -0.5, 5: 0.25, 15: 0.75}], True: []}
    grpo.plot(raw, tmp_path / "a.png")
    grpo.plot(raw, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    "name", ["../x/recipe.json", "one/model", "recipe.json", "/one/recipe.json"]
)
def test_foreign_files_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as file:
        file.writestr(name, "{}")
    with pytest.raises(ValueError, match=r"is no file of benchmarks\.agents\.grpo"):
        grpo.take(tmp_path / "foreign.zip", tmp_path / "raw")
    assert not (tmp_path / "raw").exists()


def test_trainings_of_a_model_have_names_of_their_own() -> None:
    plain, of_model = Recipe(seed=3), Recipe(seed=3, model="some/where/small", control=True)
    assert grpo.name_of(plain) == "seed3-rewarded"
    assert grpo.name_of(of_model) == "small-seed3-control"
