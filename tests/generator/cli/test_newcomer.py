"""What made a newcomer stumble over `generate`, by the lines of their review."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile import candidate
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.redteam import run as corpus_run
from tests.generator import foreign
from tests.generator.cli.test_cli_words import flat, write_foreign
from tests.generator.command import PROBLEMS, generate, listed

REPOSITORY = Path(__file__).resolve().parents[3]
#: Verbs and options of `generate` are read in one look.
SCREEN = 54
VERBS = ("resume", "remeasure", "contenders", "archive", "measure", "sanitize", "redteam", "eval")


def test_newcomer_06_redteam_with_gpu_wants_one() -> None:
    """It said that max_workers must be greater than 0."""
    code, out, err = generate("redteam", "--gpu")
    assert (code, out, err) == (2, "", f"hgemm-packs: {search.NO_DEVICE}\n")


def test_newcomer_07_the_record_of_a_kernel_is_documented(tmp_path: Path) -> None:
    """FILE.toml stood nowhere. The help names each field, and the page's example passes."""
    text = (REPOSITORY / "docs" / "candidate.md").read_text(encoding="utf-8")
    fields = {*candidate.DEFAULTS, *candidate.OPTIONAL, *candidate.REQUIRED}
    said = flat(generate("eval", "--help").out)
    for field in fields:
        assert f"`{field}`" in text and field in said, field
    for language, suffix in (("cuda", "cu"), ("toml", "toml")):
        found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (tmp_path / f"tiny.{suffix}").write_text(found[1], encoding="utf-8")
    code, out, _ = generate("eval", tmp_path / "tiny.cu", 64, 64, 64)
    assert code == 0 and out.count("OK") == 5


def test_newcomer_07_cases_of_the_corpus_run_by_eval() -> None:
    """They have a prelude and no record of their own, and eval knew neither."""
    for what in ("plain", corpus.KERNELS / "plain.cu"):
        code, out, _ = generate("eval", what, 64, 64, 64)
        assert code == 0 and out.count("OK") == 5
    code, out, _ = generate("eval", "clock_by_a_macro", 64, 64, 64)
    assert code == 1 and "STATIC" in out
    code, _, err = generate("eval", "nonsense", 64, 64, 64)
    assert (
        code == 2 and "'nonsense' is neither FILE.cu, nor JSON, nor a case of the red team" in err
    )


def test_newcomer_07_a_compile_error_prints_no_nul_byte(tmp_path: Path) -> None:
    path = write_foreign(tmp_path, inside="this is no C++;")
    code, out, _ = generate("eval", path, 64, 64, 128)
    assert code == 1 and "compilation failed" in out and "\0" not in out
    code, out, _ = generate("eval", "spills", 64, 64, 64)
    assert code == 1 and "spill" in out and "\0" not in out


def test_newcomer_07_a_broken_record_is_named(tmp_path: Path) -> None:
    """bad.toml was reported as bad.cu."""
    path = write_foreign(tmp_path)
    path.with_suffix(".toml").write_text("block = = 32\n", encoding="utf-8")
    code, _, err = generate("eval", path, 64, 64, 128)
    assert code == 2 and err.startswith(f"hgemm-packs: {foreign.SYMBOL}.toml: ")


def test_newcomer_12_redteam_looks_at_its_file_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes of kernels were compiled, then the path was wrong."""
    monkeypatch.setattr(corpus_run, "run", lambda *_, **__: pytest.fail("it ran"))
    code, out, err = generate("redteam", "--out", tmp_path / "absent" / "x.json")
    assert (code, out) == (2, "")
    assert err == f"hgemm-packs: {tmp_path}/absent/x.json: No such file or directory\n"
    code, out, err = generate("redteam", "--out", tmp_path / "x.json", "--case", "swapba")
    assert (code, out, err) == (2, "", "hgemm-packs: no case swapba in the corpus\n")
    assert list(tmp_path.iterdir()) == []


def test_newcomer_12_redteam_says_what_is_undecided(tmp_path: Path) -> None:
    """It said "58 of 58" and not that 55 more wait for a GPU."""
    words = (
        "--case",
        "clock_by_a_macro",
        "--case",
        "first_row_only_behind",
        "--case",
        "bias_twice",
    )
    code, out, _ = generate("redteam", "--out", tmp_path / "x.json", *words)
    assert code == 0 and "1 of 1 cheats rejected" in out
    assert "2 cases are undecided: only --gpu decides them" in out
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["undecided"] == 2


def test_newcomer_12_help_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['hgemm-packs', 'generate', {}]\n"
    code += "from hgemm_packs import cli; cli.main()"
    for words, answer in (("'--help'", 0), ("'measure', '--help'", 0), ("'doctor'", 1)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(words)], capture_output=True, text=True
        )
        assert done.returncode == answer, done.stderr
        assert "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", code.format("'eval', 'plain', '8', '8', '8'")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hgemm-packs: torch 2.10 or newer is needed: see pytorch.org\n"


def test_newcomer_12_ray_is_missed_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "hgemm_packs.generator.workers.ray_evaluator", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    shapes = listed(tmp_path / "shapes.toml", PROBLEMS)
    words = ("--shapes", shapes, "--run", tmp_path / "run", "--ray", "auto")
    code, _, err = generate(*words)
    assert code == 2 and "--ray needs ray: pip install 'hgemm-packs[ray]'" in err
    assert not (tmp_path / "run").exists()


def test_newcomer_12_an_unknown_model_brings_the_names() -> None:
    code, _, err = generate("--shapes", "llm", "--models", "Nope")
    assert code == 2 and "no model is called 'Nope'; known: " in flat(err)
    assert "Llama 3.1 8B" in flat(err) and "Qwen2.5 7B" in flat(err)


def test_the_help_fits_a_screen_and_names_verbs_alone() -> None:
    """It was 80 lines, and told a user of the wheel to run files of the repository."""
    code, out, _ = generate("--help")
    assert code == 0 and len(out.splitlines()) <= SCREEN
    panels = ["Search here:", "Look and judge:", "Tables and evidence:", "Gates:"]
    panels.append("Agents and trainers:")
    assert [line for line in out.splitlines() if line in panels] == panels
    assert {line.split()[0] for line in out.splitlines() if line.startswith("  ")} >= {*VERBS}
    for verb in ("follow", "refine", "contenders", "table", "resume", "measure"):
        assert "benchmarks/" not in generate(verb, "--help").out
