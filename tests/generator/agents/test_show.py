"""What watchers see of a run: the page, the terminal, the winning change; and nothing of it is
markup or a script."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import pytest
from rich.console import Console

from hgemm_packs.generator.agents.orchestrator import Event
from hgemm_packs.generator.agents.show import lineage
from hgemm_packs.generator.agents.show.page import Cost, page
from hgemm_packs.generator.agents.show.terminal import draw, line, summary, watching
from hgemm_packs.generator.agents.tree import Tree
from hgemm_packs.generator.agents.words import MODEL, Hypothesis

from .grounds import attempt

EVIL = '<script>alert("x")</script>[bold]'


def genome(stages: int) -> dict[str, object]:
    return {"family": "sm90_wgmma", "genome": {"stages": stages, "tile_m": 128}}


def grown() -> Tree:
    """Two branches: one that wins in its third step, one of a model that says evil things."""
    tree = Tree(patience=2)
    tree.grow([Hypothesis("deeper", "sm90_wgmma", ("stages",)), Hypothesis(EVIL, origin=MODEL)])
    tree.add(0, [attempt(1, key="a", candidate=genome(3), speedup=1.1, operator="seed")])
    broken = attempt(
        2,
        branch=1,
        key="x",
        status="BUILD",
        gate="build",
        words=f"{EVIL}\nk.cu(1): error",
        speedup=None,
        us=None,
        candidate={"source": EVIL, "record": {}, "name": "k"},
    )
    tree.add(1, [broken])
    tree.add(0, [attempt(3, key="b", parent="a", candidate=genome(4), speedup=1.2)])
    tree.add(0, [attempt(4, key="c", parent="b", candidate=genome(6), speedup=1.5, us=2.0)])
    tree.add(1, [attempt(5, branch=1, key="y", status="HACK", speedup=9.0, us=0.1)])
    return tree


class Tags(HTMLParser):
    """The tags of a page, each closed in its turn, and its text."""

    VOID = ("meta", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    about = {"device": "sim:1", "model": EVIL}
    text = page(grown(), "1x2x3 nt f16", about, Cost(1.5, 1200, 0.0123, 3), EVIL)
    tags = Tags(text)
    assert tags.open == [] and not tags.seen & {"script", "link", "img", "iframe"}
    assert tags.links == []
    assert "<script>" not in text and "&lt;script&gt;" in text
    words = " ".join(tags.words)
    for told in ("1.500", "1200", "0.0123", "deeper", "BUILD", "HACK", "2.000", "k.cu(1): error"):
        assert told in words, told
    assert "2 changes after the first of its line" in words
    assert "-stages: 3" in words and "+stages: 6" in words


def test_a_page_without_a_winner_says_so() -> None:
    text = page(Tree(), "1x2x3 nt f16", {}, Cost(0.0), "nothing was tried")
    words = " ".join(Tags(text).words)
    assert "No kernel passed every gate." in words and "Nothing passed every gate." in words


def test_the_winning_change_is_against_the_first_of_its_line() -> None:
    tree = grown()
    top = tree.best
    assert top is not None and top.key == "c"
    assert [each.key for each in lineage.ancestors(tree, top)] == ["c", "b", "a"]
    changed = [each for each in lineage.winning_diff(tree) if each[:1] in "+-"]
    assert changed == ["-stages: 3", "+stages: 6"]
    assert lineage.winning_diff(Tree()) == []


def test_the_change_of_a_source_is_a_diff_of_its_lines() -> None:
    before = {"source": "a\nb\nc", "record": {"block": 32}}
    after = {"source": "a\nx\nc", "record": {"block": 64}}
    changed = [each for each in lineage.diff(before, after) if each[:1] in "+-"]
    assert changed == ['-record: {"block": 32}', '+record: {"block": 64}', "-b", "+x"]


def test_parents_that_go_in_a_circle_end() -> None:
    tree = Tree()
    tree.grow([Hypothesis("h")])
    tree.add(0, [attempt(1, key="a", parent="b"), attempt(2, key="b", parent="a")])
    assert [each.key for each in lineage.ancestors(tree, tree.attempts[0])] == ["a", "b"]


def test_attempts_and_trees_in_words() -> None:
    tree = grown()
    assert [line(each) for each in tree.attempts[:2]] == [
        "seed OK 4.000 us, 1.100x torch",
        "genome BUILD build",
    ]
    assert summary(tree) == ("5 evaluations, 2 refused, 1 of 2 hypotheses alive, best 1.500x torch")


def test_the_terminal_takes_no_words_for_markup() -> None:
    out = Console(file=io.StringIO(), width=150, force_terminal=True)
    out.print(draw(grown(), EVIL))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("[bold]") >= 2 and "closed: 2 steps without a gain" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_watching_shows_the_run_as_it_goes(terminal: bool) -> None:
    out = Console(file=io.StringIO(), width=150, force_terminal=terminal)
    tree = grown()
    with watching(out, "1x2x3") as watch:
        watch(Event("step", tree))
        watch(Event("step", tree))
        watch(Event("end", tree, "done"))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    told = "1x2x3: 5 evaluations, 2 refused"
    assert text.count(told) == (4 if terminal else 2)  # the last is what stays
