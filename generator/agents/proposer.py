"""A language model as a search among searches: it is asked for genomes, and told what became of
them.

`Proposer` asks the model alone, `Mixed` shares each batch between the model and another search, by
what each has gained. Both are strategies of ask and tell, and take whatever device measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hgemm_packs.generator.agents import answers, context, schemas
from hgemm_packs.generator.agents.archive import Example, contrast
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Outcome, Proposal
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.words import BudgetSpent, ChatError
from hgemm_packs.generator.search.bandit import Bandit
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.search.history import History, draws
from hgemm_packs.generator.search.prior import rank

NAME = "model"
#: What a proposal of the model's is called, and one that stands in where it gave too few.
ASKED, INSTEAD = "asked", "instead"
#: Wins and losses that both sides of `Mixed` start with. The search has its own record behind it.
START = {NAME: (1.0, 3.0), "search": (3.0, 6.0)}


def schema(space: Space, n: int) -> schemas.Schema:
    """The JSON schema of `n` genomes of the space's families."""
    kinds = [schemas.record(schemas.choice(space, name)) for name in _families(space)]
    return schemas.record({"genomes": schemas.some({"anyOf": kinds}, n)})


class Proposer:
    """Asks a model. Where it names too few choices that are open, or its budget or server is gone,
    the analytic model's next ones stand in."""

    name = NAME

    def __init__(self, seed: int, chat: Chat, device: DeviceFacts) -> None:
        self._seed, self._chat, self._device = seed, chat, device
        self._history = History()
        self._spent = False
        self.named = 0  # choices that the model gave

    def ask(self, space: Space, n: int) -> list[Proposal]:
        found = dict.fromkeys(self.choose(space, n), ASKED)
        self.named += len(found)
        told = self._history.of(space.problem).us
        for row in rank(space):
            if len(found) >= n:
                break
            if space.core[row] not in told:
                found.setdefault(space.core[row], INSTEAD)
        return [Proposal(choice, NAME, operator) for choice, operator in found.items()]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self._history.add(space.problem, outcomes)

    def choose(self, space: Space, n: int) -> list[Choice]:
        """Up to `n` open choices that the model names."""
        if self._spent or n < 1:
            return []
        told = self._history.of(space.problem).us
        asked = schema(space, n)
        messages = self.prompt(space, n).messages()
        seed = (self._seed * 1000 + len(told)) % (1 << 31)
        try:
            replies = self._chat.complete(messages, temperature=0.8, schema=asked, seed=seed)
        except BudgetSpent:
            self._spent = True
            return []
        except ChatError:
            return []
        found = dict.fromkeys(read(replies[0].text, space))
        return [choice for choice in found if choice not in told][:n]

    def prompt(self, space: Space, n: int) -> Prompt:
        """What the model is asked: with what it was told of this problem, the fastest, one in the
        middle, the slowest, and of the problems most alike the fastest."""
        told = self._history.of(space.problem)
        front = told.front()[0]
        here = [Example(_document(c), space.problem, told.us[c], 1.0, "this search") for c in front]
        slowest = max((each.us for each in here), default=1.0)
        near = [
            Example(_document(choice), space.problem, 0.0, 0.0, "a problem alike", rank="elsewhere")
            for choice in self._history.winners(space, problems=3, each=1)
        ]
        compared = contrast([replace(each, speedup=slowest / each.us) for each in here])
        parts = (
            context.task(space.problem, self._device),
            context.note("architecture", "The architecture"),
            context.genes(space, _families(space)),
            _measured(compared),
            _elsewhere(near),
            Part("Asked", f"Give {n} genomes that were not measured, as JSON.", "the search"),
        )
        rules = context.note("genome_rules", "Rules")
        return Prompt("proposer", rules, tuple(part for part in parts if part))


def _document(choice: Choice) -> dict[str, Any]:
    return {"family": choice.family, "genome": choice.genome}


def _families(space: Space) -> list[str]:
    return list(dict.fromkeys(choice.family for choice in space.core))


def _measured(found: Sequence[Example]) -> Part | None:
    lines = [f"{e.rank}: {e.us:.3f} us {context.code(e.candidate)}" for e in found]
    return Part("Measured on this problem", "\n".join(lines), "this search") if lines else None


def _elsewhere(found: Sequence[Example]) -> Part | None:
    lines = [context.code(each.candidate) for each in found]
    return Part("Best on problems alike", "\n".join(lines), "this search") if lines else None


def read(text: str, space: Space) -> Iterator[Choice]:
    """The choices of the space that a reply names; what is none is left out."""
    try:
        listed = answers.read_object(text).get("genomes")
    except answers.Unclear:
        return
    for each in listed if isinstance(listed, list) else ():
        try:
            yield space.parse(each)
        except (ValueError, TypeError):
            continue


class Mixed:
    """A search and a model's proposer on one budget. Each place of a batch goes to the side that a
    bandit draws; both are told everything."""

    name = "mixed"

    def __init__(self, seed: int, proposer: Proposer, search: Strategy) -> None:
        self._seed, self._proposer, self._search = seed, proposer, search
        self._history = History()
        self.sides = Bandit(START)

    def ask(self, space: Space, n: int) -> list[Proposal]:
        told = self._history.of(space.problem)
        rng = draws(self._seed, told)
        # Of a problem without a time the search knows what won elsewhere; the model has nothing.
        places = Counter(self.sides.choose("", rng) for _ in range(n if told.us else 0))
        chosen = self._proposer.choose(space, places[NAME])
        found = {choice: Proposal(choice, NAME, ASKED) for choice in chosen}
        for proposal in self._search.ask(space, n):
            if len(found) == n:
                break
            found.setdefault(proposal.choice, proposal)
        return list(found.values())

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        before = self._history.of(space.problem)
        if before.us:  # a first batch has nothing to be better than
            for outcome in outcomes:
                side = NAME if outcome.proposal.proposer == NAME else "search"
                self.sides.reward("", side, outcome.us < before.best_us)
        self._history.add(space.problem, outcomes)
        self._proposer.tell(space, outcomes)
        self._search.tell(space, outcomes)
