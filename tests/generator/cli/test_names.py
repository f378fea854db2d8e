"""What a pack of `generate` is called: never as the project's own are."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.pack.folder import Pack
from hgemm_packs.profiles import names
from tests.generator.cli.made_run import Made
from tests.generator.command import generate, simulated


def name_in(folder: Path) -> str:
    pack = Pack.open(folder / "pack")
    pack.close()
    return pack.manifest.pack.name


def test_a_pack_is_called_after_its_machine_or_as_its_user_says(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pack of `generate` was called like the project's own, hgemm-packs-sm90a."""
    copied = Path(shutil.copytree(made.run, tmp_path / "copied"))
    assert name_in(made.run) == names.of_machine("Simulated GPU")
    assert name_in(made.run).startswith("local-")
    monkeypatch.setattr(platform, "node", lambda: "gpu_box.example.org")
    assert generate("pack", copied).code == 0
    assert name_in(copied) == name_in(made.run), "it stays what it was called"
    (copied / "source.json").unlink()
    assert generate("pack", copied).code == 0
    assert name_in(copied) == "local-gpu-box-example-org-Simulated-GPU"
    assert generate("pack", copied, "--name", "ours-7").code == 0
    assert simulated(*made.options, "--run", copied).code == 0
    assert read_source(copied / "source.json").pack.name == name_in(copied) == "ours-7"
    # As an earlier version has left it.
    text = (copied / "source.json").read_text(encoding="utf-8")
    (copied / "source.json").write_text(text.replace("ours-7", "hgemm-packs-sm90a"))
    assert generate("pack", copied).code == 0
    assert name_in(copied) == "local-gpu-box-example-org-Simulated-GPU"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hgemm-packs-sm90a", "names that begin with 'hgemm-packs-' are the project's own"),
        ("HGEMM-packs-mine", "names that begin with 'hgemm-packs-' are the project's own"),
        ("../mine", "cannot be a pack's name"),
        ("", "cannot be a pack's name"),
    ],
)
def test_a_name_that_no_pack_of_a_user_may_have(
    name: str, words: str, made: Made, tmp_path: Path
) -> None:
    for command in (
        ("--shapes", made.options[1], "--run", tmp_path / "run"),
        ("pack", made.run, "--out", tmp_path / "out"),
        ("refine", made.run),
        ("resume", made.run),
    ):
        code, _, err = generate(*command, "--name", name)
        assert code == 2 and words in err and len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists() and not (tmp_path / "out").exists()
