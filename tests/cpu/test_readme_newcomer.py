"""README as a new user follows it: what it says first, and what its lines do together."""

from __future__ import annotations

import re
from pathlib import Path

from hgemm_packs import settings

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
FAQ = (REPOSITORY / "docs" / "faq.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    (found,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", README, re.M | re.S)
    return str(found)


def test_newcomer_01_turning_it_off_has_every_way_and_restores_a_model() -> None:
    text = section("Turning it off")
    for words in (
        "HGEMM_PACKS_OFF=1",
        "hgemm_packs.disable()",
        "hgemm_packs.resume()",
        "hgemm_packs.disabled()",
        "hgemm_packs.restore(model)",
        "hgemm-packs gc --max-mb 0",
        "pip uninstall hgemm-packs",
    ):
        assert words in text


def test_newcomer_05_no_export_of_the_path_drops_another() -> None:
    exports = re.findall(r"export HGEMM_PACKS_PATH=(\S+)", README)
    parts = [part for each in exports for part in each.strip('"`.').rstrip('"`.').split(":")]
    assert parts and all(part.startswith("$PWD/") for part in parts)
    # One line in a block to be copied; the other is that line, longer.
    blocks = "".join(re.findall(r"^```\n(.*?)^```$", README, re.M | re.S))
    assert blocks.count("export HGEMM_PACKS_PATH") == 1
    assert "joined by `:`" in section("Install")


def test_newcomer_08_what_is_not_published_is_said_first() -> None:
    first = section("How a pack reaches you").strip().splitlines()[0]
    assert first.startswith("Nothing is published yet")


def test_every_variable_is_in_the_table_and_no_other() -> None:
    listed = re.findall(r"^\| `(HGEMM_PACKS_\w+)` \|", README, re.M)
    known = re.findall(r"^(HGEMM_PACKS_\w+)  ", settings.__doc__ or "", re.M)
    assert sorted(listed) == sorted(known) and len(known) == 9


def test_newcomer_10_the_changelog_has_a_section_of_this_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', project, re.M)
    assert re.findall(r"^## (\S+)", text, re.M)[0] == version


def test_newcomer_10_questions_have_answers() -> None:
    questions = re.findall(r"^\*\*(.*?)\*\* (.*)$", FAQ, re.M)
    assert len(questions) >= 12
    assert all(question.endswith("?") and answer for question, answer in questions)
