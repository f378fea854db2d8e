"""docs/kernel.md quotes the sources: each quote, file and derived block still stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, Genome

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "kernel.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n```(?P<kind>\w+(?: \w+)?)\n(?P<text>.*?)^```$", re.M | re.S
)
NAMED = re.compile(r"`([\w./]+)`:")
PATH = re.compile(r"`((?:csrc|generator|hgemm_packs|tests|benchmarks|docs)/[\w./]+)`")


class Quote(NamedTuple):
    path: str
    text: str


def blocks(kind: str) -> list[tuple[str, str]]:
    """(line before, text) of the fenced blocks of one kind."""
    return [(m["before"], m["text"]) for m in re.finditer(BLOCK, PAGE) if m["kind"] == kind]


def quotes() -> list[Quote]:
    found = []
    for before, text in [*blocks("cuda"), *blocks("c"), *blocks("python")]:
        named = NAMED.fullmatch(before)
        assert named, f"a quote without its file:\n{text}"
        found.append(Quote(named[1], text))
    return found


def stands(quote: str, source: str) -> bool:
    """Whether the pieces between `...` are runs of whole lines of the source, one after the other;
    indentation aside."""
    lines = [line.strip() for line in source.splitlines()]
    at = 0
    for piece in re.split(r"^\s*\.\.\.\n", quote, flags=re.M):
        wanted = [line.strip() for line in piece.splitlines()]
        starts = (i for i in range(at, len(lines)) if lines[i : i + len(wanted)] == wanted)
        start = next(starts, None)
        if start is None:
            return False
        at = start + len(wanted)
    return True


def test_every_quote_stands_in_the_file_it_names() -> None:
    found = quotes()
    assert len(found) >= 10
    for path, text in found:
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert stands(text, source), f"{path} no longer says:\n{text}"


@pytest.mark.parametrize(
    ("quote", "there"),
    [
        ("  b;\n  c;\n", True),
        ("a;\n...\nc;\n", True),
        ("a;\nc;\n", False),  # not one after the other
        ("c;\n...\na;\n", False),  # in another order
        ("b\n", False),  # part of a line
        ("b;\n...\nb;\n", False),  # once, not twice
    ],
)
def test_a_changed_quote_is_noticed(quote: str, there: bool) -> None:
    assert stands(quote, "a;\n  b;\n  c;\n") is there


def example() -> Genome:
    ((_, text),) = blocks("json genome")
    genome: Genome = json.loads(text)
    return genome


def test_the_example_has_the_macros_that_the_page_shows() -> None:
    ((_, text),) = blocks("c macros")
    source = compiler.render("sm90_oneshot", example())
    assert source.startswith(text)
    assert not source.removeprefix(text).startswith("#define")


def test_the_example_has_the_launch_record_that_the_page_shows() -> None:
    ((_, text),) = blocks("json record")
    fields = FAMILIES["sm90_oneshot"].fields(example())
    shown = json.loads(text)
    assert shown == {name: fields[name] for name in shown}
    assert {"cluster", "grid", "smem_bytes", "tma", "dims"} <= shown.keys()


def test_the_table_lists_every_family() -> None:
    rows = re.findall(r"^\| `(sm90_\w+)` \|", PAGE, flags=re.M)
    assert sorted(rows) == sorted(FAMILIES | GROUPED | BATCHED)


def test_every_path_on_the_page_exists() -> None:
    named = set(PATH.findall(PAGE)) | {quote.path for quote in quotes()}
    assert len(named) >= 15
    for path in named:
        # X stands for the stem of any family.
        assert (REPOSITORY / path.replace("/X.", "/oneshot.")).is_file(), path
