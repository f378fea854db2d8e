"""A run as one page of HTML that needs nothing else: figures, the best by evaluation, the tree of
hypotheses with every verdict, and what the winner changed.

Called by `generate solve`. All that came from a model, a compiler or a file is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from hgemm_packs.generator.agents.show.lineage import ancestors, winning_diff
from hgemm_packs.generator.agents.tree import Branch, Tree
from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.report import html

STYLE = """
details { margin: .3rem 0; } summary { cursor: pointer; }
.closed > summary { color: #616e7c; } .won { color: #1b7f4d; font-weight: 600; }
pre { background: #f5f7fa; padding: .6rem .8rem; overflow-x: auto; font-size: .82rem; }
.gone { color: #a61b1b; } .came { color: #1b7f4d; }
"""
WIDTH, HEIGHT, EDGE = 720, 200, 34


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took: seconds of work, tokens and money of the model, requests to it."""

    seconds: float
    tokens: int = 0
    money: float = 0.0
    requests: int = 0


def page(tree: Tree, problem: str, about: Mapping[str, str], cost: Cost, why: str) -> str:
    """The page of a run on a problem. `about` says what it was made with, `why` what ended it."""
    top = tree.best
    asked = [each for each in tree.attempts if each.gate]
    figures = {
        "best, times torch": html.number(top.speedup if top else None),
        "best, us hot": html.number(top.us if top else None),
        "evaluations": str(len(asked)),
        "passed every gate": str(sum(each.correct for each in asked)),
        "hypotheses": str(len(tree.branches)),
        "seconds of work": html.number(cost.seconds, 1),
        "tokens": str(cost.tokens),
        "money": html.number(cost.money, 4),
    }
    cells = "".join(f"<div><b>{v}</b>{escape(k)}</div>" for k, v in figures.items())
    made = ", ".join(f"{name} {value}" for name, value in about.items())
    body = [
        f"<h1>{escape(problem)}</h1>",
        f'<p class="quiet">{escape(made)}. It ended because: {escape(why)}.</p>',
        f'<div class="figures">{cells}</div>',
        "<h2>The best by evaluation</h2>",
        curve(asked),
        "<h2>Hypotheses</h2>",
        *(_branch(branch, top) for branch in tree.branches),
        "<h2>The winner</h2>",
        _winner(tree, top),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(problem)}</title><style>{html.STYLE}{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def curve(asked: list[Attempt]) -> str:
    """The best speed-up after each evaluation as a step line, with a dashed line at torch."""
    best, scores = 0.0, []
    for each in asked:
        best = max(best, each.score)
        scores.append(best)
    if not best:
        return '<p class="quiet">Nothing passed every gate.</p>'
    high = 1.1 * max(best, 1.0)

    def at(i: float, score: float) -> str:
        x = EDGE + (WIDTH - 2 * EDGE) * i / len(scores)
        return f"{x:.1f},{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * score / high:.1f}"

    points = " ".join(f"{at(i, s)} {at(i + 1, s)}" for i, s in enumerate(scores))
    torch = f"{at(0, 1.0)} {at(len(scores), 1.0)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="best speed-up">'
        f'<polyline points="{torch}" fill="none" stroke="#9aa5b1" stroke-dasharray="4"/>'
        f'<polyline points="{points}" fill="none" stroke="#1b7f4d" stroke-width="2"/>'
        f'<text x="2" y="{EDGE - 8}" font-size="12">{best:.3f}x torch at best</text>'
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 8}" font-size="12" text-anchor="end">'
        f"{len(scores)} evaluations</text></svg>"
    )


def _branch(branch: Branch, top: Attempt | None) -> str:
    """One hypothesis with the table of its attempts."""
    own, hypothesis = branch.best, branch.hypothesis
    figure = f"{html.times(own.score)} " if own else ""
    end = f' <span class="quiet">closed: {escape(branch.closed)}</span>' if branch.closed else ""
    head = (
        f"{figure}{escape(hypothesis.words)} <span class='quiet'>({hypothesis.origin})</span>{end}"
    )
    rows = [_row(each, top) for each in branch.attempts]
    heads = ("round", "made by", "verdict", "gate", "us", "over torch", "reward", "words")
    table = html.table(heads, rows, texts=(1, 2, 3, 7)) if rows else "<p>Never tried.</p>"
    kind = "closed" if branch.closed else "open"
    opened = " open" if own is not None and top is not None and own.key == top.key else ""
    return f'<details class="{kind}"{opened}><summary>{head}</summary>{table}</details>'


def _row(attempt: Attempt, top: Attempt | None) -> list[str]:
    won = top is not None and attempt.correct and attempt.key == top.key
    verdict = escape(attempt.status)
    return [
        str(attempt.round),
        escape(attempt.operator),
        f'<span class="won">{verdict}</span>' if won else verdict,
        escape(attempt.gate),
        html.number(attempt.us),
        html.times(attempt.speedup),
        html.number(attempt.reward, 2),
        _words(attempt),
    ]


def _words(attempt: Attempt) -> str:
    """The first line of the words, which opens to all of them and the candidate."""
    first = escape(attempt.words.split("\n")[0][:90])
    code = json.dumps(attempt.candidate, indent=1) if attempt.candidate else ""
    more = escape(f"{attempt.words}\n{attempt.source or code}")
    return f"<details><summary>{first}</summary><pre>{more}</pre></details>"


def _winner(tree: Tree, top: Attempt | None) -> str:
    if top is None:
        return "<p>No kernel passed every gate.</p>"
    steps = len(ancestors(tree, top)) - 1
    colours = {"-": "gone", "+": "came"}
    lines = [
        f'<span class="{colours.get(line[:1], "quiet")}">{escape(line)}</span>'
        for line in winning_diff(tree)
    ]
    changed = "\n".join(lines) or "It was the first that was tried."
    return (
        f"<p>{escape(top.words)}</p><p class='quiet'>{steps} changes after the first of its line; "
        f"against that:</p><pre>{changed}</pre>"
    )
