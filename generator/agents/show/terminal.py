"""A run on the terminal: the tree of hypotheses as it grows, and lines in a log.

Called by `generate solve`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text
from rich.tree import Tree as Branches

from hgemm_packs.generator.agents.orchestrator import Event, Watch
from hgemm_packs.generator.agents.tree import Branch, Tree
from hgemm_packs.generator.agents.words import Attempt

#: Attempts of a branch that are shown, the last ones; the rest are counted.
SHOWN = 3


def line(attempt: Attempt) -> str:
    """An attempt in words."""
    if not attempt.correct or attempt.us is None:
        why = attempt.gate or attempt.words.split("\n")[0][:60]
        return f"{attempt.operator} {attempt.status} {why}".strip()
    return f"{attempt.operator} {attempt.status} {attempt.us:.3f} us, {attempt.speedup:.3f}x torch"


def summary(tree: Tree) -> str:
    """The whole run in a line."""
    asked = [each for each in tree.attempts if each.gate]
    refused = sum(not each.correct and each.status != "UNMEASURED" for each in asked)
    words = [f"{len(asked)} evaluations", f"{refused} refused"]
    words.append(f"{len(tree.live)} of {len(tree.branches)} hypotheses alive")
    top = tree.best
    words.append(f"best {top.speedup:.3f}x torch" if top and top.speedup else "nothing passed yet")
    return ", ".join(words)


def draw(tree: Tree, title: str) -> Branches:
    """The tree as rich draws it: no words of a model are markup."""
    drawn, top = Branches(Text(f"{title}: {summary(tree)}")), tree.best
    for branch in tree.branches:
        node = drawn.add(Text(_head(branch), style="dim" if branch.closed else ""))
        hidden = len(branch.attempts) - SHOWN
        if hidden > 0:
            node.add(Text(f"({hidden} before)", style="dim"))
        for attempt in branch.attempts[-SHOWN:]:
            best = top is not None and attempt.key == top.key and attempt.correct
            node.add(Text(line(attempt), style="bold green" if best else ""))
    return drawn


def _head(branch: Branch) -> str:
    top = branch.best
    figure = f"{top.score:.3f}x " if top else ""
    end = f" [closed: {branch.closed}]" if branch.closed else ""
    return f"{figure}{branch.hypothesis.words} ({branch.hypothesis.origin}){end}"


@contextlib.contextmanager
def watching(out: Console, title: str) -> Iterator[Watch]:
    """A watch that redraws the tree at every event; in a log it prints a line where the best of all
    has changed."""
    if out.is_terminal:
        with Live(console=out, auto_refresh=False, vertical_overflow="crop") as live:

            def redraw(event: Event) -> None:
                live.update(draw(event.tree, title), refresh=True)

            yield redraw
        return
    best = ""

    def note(event: Event) -> None:
        nonlocal best
        top = event.tree.best
        if event.what == "end" or (top is not None and top.key != best):
            best = top.key if top else ""
            out.print(f"{title}: {summary(event.tree)}", soft_wrap=True)

    yield note
