"""AGENTS.md stays one page, links of all pages lead somewhere, `make help` has every target."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted({*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")})
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_agents_is_one_page() -> None:
    assert (REPOSITORY / "AGENTS.md").stat().st_size <= 10_240


def test_every_page_of_docs_is_named_by_agents() -> None:
    linked = {link for link, _ in LINK.findall((REPOSITORY / "AGENTS.md").read_text())}
    pages = {str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "docs").rglob("*.md")}
    assert pages <= linked, pages - linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_help_has_every_target_once() -> None:
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.M)
    called = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^  make (\S+) +\S", called.stdout, flags=re.M)
    assert sorted(listed) == sorted(set(phony.split()) - {"help"})


NAMED = re.compile(
    r"`((?:csrc|generator|hgemm_packs|tests|benchmarks|docs|manifests|packaging|\.github|\.ci)/"
    r"[\w./-]*)`"
)
SCRIPT = re.compile(r"benchmarks\.([a-z]+)\.(\w+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_path_on_a_page_exists(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "kernel.md"):  # of its day; test_docs.py
        return
    text = page.read_text(encoding="utf-8")
    scripts = [f"benchmarks/{room}/{name}.py" for room, name in SCRIPT.findall(text)]
    missing = {path for path in NAMED.findall(text) + scripts if not (REPOSITORY / path).exists()}
    assert not missing
