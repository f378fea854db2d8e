"""Where the winner came from, and what it changed.

Called by terminal and page. Follows parents through the attempts of a tree.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from hgemm_packs.generator.agents.tree import Tree
from hgemm_packs.generator.agents.words import Attempt


def ancestors(tree: Tree, attempt: Attempt) -> list[Attempt]:
    """The attempt and what it was made from, back to the first."""
    by_key: dict[str, Attempt] = {}
    for each in tree.attempts:
        by_key.setdefault(each.key, each)
    found, seen = [attempt], {attempt.key}
    while (parent := by_key.get(found[-1].parent)) is not None and parent.key not in seen:
        found.append(parent)
        seen.add(parent.key)
    return found


def winning_diff(tree: Tree) -> list[str]:
    """The winner against the first of its line, as lines of a diff; against the first attempt of
    all where its line begins with it. Empty without a winner."""
    top = tree.best
    if top is None:
        return []
    first = ancestors(tree, top)[-1]
    if first is top:
        first = next((each for each in tree.attempts if each.candidate), top)
    return diff(first.candidate or {}, top.candidate or {})


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines of `before` that went, with a minus, and of `after` that came, with a plus, and a few
    about them."""
    lines = difflib.unified_diff(_lines(before), _lines(after), "before", "after", lineterm="")
    return list(lines)[2:]


def _lines(candidate: Mapping[str, Any]) -> list[str]:
    """A candidate as lines: a line a gene, or the record and the source."""
    if "source" in candidate:
        record = json.dumps(candidate.get("record", {}), sort_keys=True)
        return [f"record: {record}", *str(candidate["source"]).splitlines()]
    genome = candidate.get("genome", {})
    genes = [f"{gene}: {json.dumps(value)}" for gene, value in sorted(genome.items())]
    return [f"family: {candidate.get('family', '')}", *genes]
