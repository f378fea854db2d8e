"""Actions as text: a genome of a family as one line of JSON, its schema, and the words of a task.

Trainers, environments and exports write and read actions here, and nowhere else. A text names the
genes that have a choice; the problem gives layout and type, and genes of one value follow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, computed, family
from hgemm_packs.problem import Problem

Message = dict[str, Any]
#: Genes that the problem gives.
GIVEN = ("layout", "dtype")
#: Longest text of an action in characters: a model that rambles is refused before it is parsed.
LONGEST = 4096


class ActionSpace:
    """The actions that some choices are: `genes` names, by family, each gene that has a choice
    with its values. `families` narrows what may be answered."""

    def __init__(self, choices: Iterable[Choice]) -> None:
        seen: dict[str, dict[str, set[Any]]] = {}
        for choice in choices:
            values = seen.setdefault(choice.family, {})
            for gene, value in choice.genes:
                values.setdefault(gene, set()).add(value)
        if not seen:
            raise ValueError("no choices, no actions")
        self.genes: dict[str, dict[str, tuple[Any, ...]]] = {}
        self._fixed: dict[str, dict[str, Any]] = {}
        for name in sorted(seen):
            listed = {
                gene: tuple(v for v in values if v in seen[name].get(gene, ()))
                for gene, values in family(name).genes.items()
                if gene not in GIVEN
            }
            self.genes[name] = {g: values for g, values in listed.items() if len(values) > 1}
            self._fixed[name] = {g: values[0] for g, values in listed.items() if len(values) == 1}

    def text(self, choice: Choice) -> str:
        """The action that a choice is. Raises KeyError for a family outside the space."""
        genome = choice.genome
        named = {gene: genome[gene] for gene in self.genes[choice.family]}
        return json.dumps({"family": choice.family, "genome": named}, separators=(",", ":"))

    def schema(self) -> dict[str, Any]:
        """JSON schema of an action, for servers that constrain what a model writes."""
        return {"anyOf": [self._schema(name) for name in self.genes]}

    def _schema(self, name: str) -> dict[str, Any]:
        genome = {
            "type": "object",
            "properties": {gene: {"enum": [*values]} for gene, values in self.genes[name].items()},
            "required": [*self.genes[name]],
            "additionalProperties": False,
        }
        return {
            "type": "object",
            "properties": {"family": {"const": name}, "genome": genome},
            "required": ["family", "genome"],
            "additionalProperties": False,
        }

    def parse(self, text: str, problem: Problem) -> Choice:
        """The choice that an action names. Raises ValueError with the reason where it is none, or
        its kernel does not admit the problem."""
        if len(text) > LONGEST:
            raise ValueError(f"an action has at most {LONGEST} characters, this one {len(text)}")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError('no JSON: an action is {"family": ..., "genome": {...}}') from None
        return self.choice(document, problem)

    def choice(self, document: Any, problem: Problem) -> Choice:
        """The same of a document that is read already."""
        if not isinstance(document, dict) or set(document) != {"family", "genome"}:
            raise ValueError('an action is {"family": ..., "genome": {...}}')
        name, genome = document["family"], document["genome"]
        if not isinstance(name, str) or name not in self.genes:
            raise ValueError(f"no family {name!r}; known: {', '.join(self.genes)}")
        if not isinstance(genome, dict):
            raise ValueError("a genome is an object of genes")
        given = {"layout": problem.layout, "dtype": problem.dtype}
        whole = computed.compute_also({**self._fixed[name], **given, **genome}, problem.epilogue)
        FAMILIES[name].validate(whole)
        choice = Choice.of(name, whole)
        if not admits(choice, problem):
            raise ValueError(f"{name}: this kernel does not admit {problem}")
        return choice

    def rules(self) -> str:
        """What a model must know of actions that no archive has taught it: a system message."""
        lines = [
            "You choose kernels for matrix products C = A @ B on one GPU.",
            'Answer with one line of JSON: {"family":NAME,"genome":{GENE:VALUE,...}}.',
            "Families, their genes and the values of these:",
        ]
        for name, genes in self.genes.items():
            each = ", ".join(f"{g} {json.dumps(values)}" for g, values in genes.items())
            lines.append(f"{name}: {each}")
        return "\n".join(lines)


def task(problem: Problem, only: str | None = None) -> str:
    """A user message: the problem, and how large it is in powers of two; `only` asks for a kernel
    of one family."""
    p = problem
    sizes = f"M {p.m} N {p.n} K {p.k} layout {p.layout} type {p.dtype}"
    powers = " ".join(f"{math.log2(max(size, 1)):.0f}" for size in (p.m, p.n, p.k, p.m * p.n))
    also = f" epilogue {p.epilogue}" if p.epilogue != computed.PLAIN else ""
    return f"{sizes} powers {powers}{also} family {only or 'any'}"


def messages(
    problem: Problem, space: ActionSpace, turns: Sequence[tuple[str, str]] = ()
) -> list[Message]:
    """The conversation up to a model's next turn: rules, task, and each action with the reply."""
    found: list[Message] = [
        {"role": "system", "content": space.rules()},
        {"role": "user", "content": task(problem)},
    ]
    for action, reply in turns:
        found.append({"role": "assistant", "content": action})
        found.append({"role": "user", "content": reply})
    return found


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of a data set. Raises ValueError for a row that has none."""
    try:
        m, n, k = (int(row[name]) for name in "mnk")
        epilogue = str(row.get("epilogue", computed.PLAIN))
        return Problem(m, n, k, str(row["layout"]), str(row["dtype"]), epilogue=epilogue)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a row with m, n, k, layout and dtype, not {dict(row)}") from error


def row_of(problem: Problem) -> dict[str, Any]:
    """The row of a data set that `problem_of` reads."""
    p = problem
    row: dict[str, Any] = {"m": p.m, "n": p.n, "k": p.k, "layout": p.layout, "dtype": p.dtype}
    return row if p.epilogue == computed.PLAIN else {**row, "epilogue": p.epilogue}
