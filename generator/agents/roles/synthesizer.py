"""The synthesizer: a hypothesis made into candidates, as genomes or as CUDA source.

With a model it asks for JSON that a schema constrains, for a whole file, or for edits of one.
Without a model a rule changes the genes that the hypothesis names, the likeliest first by the
analytic model; source it cannot write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hgemm_packs.generator.agents import answers, context, schemas
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.roles.compiler import Repair
from hgemm_packs.generator.agents.words import Attempt, Hypothesis, Proposed
from hgemm_packs.generator.core.space import Space, read_choice
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.families import family
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.words import Reply
from hgemm_packs.generator.search import variation

GENOME, SOURCE = "genome", "source"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made: a hypothesis, the attempt to start from, what was refused last, and keys
    that were tried."""

    hypothesis: Hypothesis
    parent: Attempt | None = None
    repair: Repair | None = None
    attempts: Sequence[Attempt] = ()
    tried: Collection[str] = ()
    seed: int = 0


def schema(space: Space, name: str) -> schemas.Schema:
    """The JSON schema of a genome of one family of the space: any model's answer to it is a legal
    one, but for genes that do not fit together."""
    return schemas.record({"diagnosis": schemas.WORDS, **schemas.choice(space, name)})


class Synthesizer:
    """Makes candidates of one kind, GENOME or SOURCE."""

    def __init__(self, ground: Ground, chat: Chat | None = None, kind: str = GENOME) -> None:
        """Raises ValueError for source without a model."""
        if kind == SOURCE and chat is None:
            raise ValueError("only a model writes source: name a server")
        self._ground, self._chat, self._kind = ground, chat, kind

    def propose(self, order: Order, n: int) -> list[Proposed]:
        """Up to `n` candidates; what a model said that is none is among them with its words. Raises
        BudgetSpent and ChatError."""
        if self._chat is None:
            return self._by_rule(order, n)
        named, space = order.hypothesis.family, self._ground.space
        asked = schema(space, named) if self._kind == GENOME else None
        messages = self.prompt(order).messages()
        replies = self._chat.climb(messages, n=n, schema=asked, seed=order.seed)
        return [self._read(reply, order) for reply in replies]

    def prompt(self, order: Order) -> Prompt:
        """What the model is asked."""
        ground, hypothesis = self._ground, order.hypothesis
        parts: list[Part | None] = [context.task(ground.problem, ground.device)]
        if self._kind == GENOME:
            parts.append(context.genes(ground.space, [hypothesis.family]))
        else:
            parts += [context.note("source", "What a kernel may do"), context.instructions()]
        parts += [
            context.note("architecture", "The architecture"),
            context.examples(ground.examples(order.attempts)),
            _parent(order.parent),
            *(order.repair.parts() if order.repair else ()),
            Part("The hypothesis to test", hypothesis.words, f"the reasoner ({hypothesis.origin})"),
        ]
        rules = context.note(f"{self._kind}_rules", "Rules")
        return Prompt("synthesizer", rules, tuple(part for part in parts if part))

    def _read(self, reply: Reply, order: Order) -> Proposed:
        """The candidate of a reply, or why there is none."""
        operator = "repair" if order.repair else self._kind
        parent = order.parent.key if order.parent else ""
        if reply.refusal or not reply.text.strip():
            words = f"the model refused: {reply.refusal[:200] or 'it said nothing'}"
            return Proposed(None, operator, words, parent, reply.text)
        try:
            if self._kind == GENOME:
                candidate = _genome(reply.text, order, self._ground)
            else:
                candidate, operator = _source(reply.text, order, operator)
        except answers.Unclear as error:
            cut = " (the answer was cut off)" if reply.finish == "length" else ""
            return Proposed(None, operator, f"{error}{cut}", parent, reply.text)
        return Proposed(candidate, operator, "", parent, reply.text)

    def _by_rule(self, order: Order, n: int) -> list[Proposed]:
        found: list[Proposed] = []
        for choice in dict.fromkeys(self._rule(order)):
            candidate = Candidate.of_genome(choice.family, choice.genome)
            if candidate.key not in order.tried:
                parent = order.parent.key if order.parent else ""
                operator = "genome" if order.parent else "seed"
                said = {"diagnosis": order.hypothesis.words, **candidate.document()}
                found.append(Proposed(candidate, operator, "", parent, json.dumps(said)))
            if len(found) == n:
                break
        return found

    def _rule(self, order: Order) -> Iterator[Choice]:
        """Choices of the space, the likeliest first: that differ from the parent in no genes but
        those of the hypothesis; one step from it in those; then all of the family."""
        hypothesis, space = order.hypothesis, self._ground.space
        ranked = [each for each in self._ground.ranked if each.family == hypothesis.family]
        start = _choice(order.parent, self._ground)
        if start is not None and start.family == hypothesis.family:
            moved = set(hypothesis.genes)
            for choice in ranked:
                changed = {gene for gene, value in choice.genes if start.genome[gene] != value}
                if changed and changed <= moved:
                    yield choice
            for genome in variation.neighbours(family(start.family), start.genome):
                near = Choice.of(start.family, genome)
                changed = {gene for gene, value in near.genes if start.genome[gene] != value}
                if changed <= moved and space.contains(near):
                    yield near
        yield from ranked


def _choice(attempt: Attempt | None, ground: Ground) -> Choice | None:
    """The choice of an attempt with a genome."""
    if attempt is None or attempt.candidate is None or "genome" not in attempt.candidate:
        return None
    try:
        return read_choice(dict(attempt.candidate), ground.problem)
    except ValueError:
        return None


def _parent(parent: Attempt | None) -> Part | None:
    if parent is None or parent.candidate is None:
        return None
    figures = f"{parent.us:.3f} us, {parent.score:.3f}x torch" if parent.us else parent.status
    code = context.code(parent.candidate)
    source = f"this run, round {parent.round}"
    return Part("The kernel to start from", f"{figures}\n{parent.words}\n{code}", source)


def _genome(text: str, order: Order, ground: Ground) -> Candidate:
    """A genome, or changes of the parent's. Raises Unclear."""
    document = answers.read_object(text)
    name, genome = document.get("family", order.hypothesis.family), document.get("genome")
    if not isinstance(name, str) or not isinstance(genome, Mapping):
        raise answers.Unclear('the answer is {"family": ..., "genome": {...}}')
    start = _choice(order.parent, ground)
    base = start.genome if start is not None and start.family == name else {}
    return Candidate.of_genome(name, {**base, **genome})


def _source(text: str, order: Order, operator: str) -> tuple[Candidate, str]:
    """A whole file, or edits of the source that was refused or of the parent's, with the record.
    Raises Unclear."""
    start = order.repair.candidate if order.repair else {}
    start = start or (order.parent.candidate if order.parent else None) or {}
    base = str(start.get("source", ""))
    edits = answers.read_edits(text)
    if edits and not base:
        raise answers.Unclear(
            "there is no file to edit: one code block with the whole file is asked"
        )
    source = answers.apply(base, edits) if edits else answers.read_file(text)
    record = {**start.get("record", {}), **answers.read_record(text)}
    kind = operator if operator == "repair" else "edit" if edits else SOURCE
    name = "kernel" if "symbol" in record else answers.kernel_name(source)
    return Candidate.of_source(source, record, name), kind
