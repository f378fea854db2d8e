"""The red team: tries to pass the gates with a wrong kernel.

With a model it asks for one, together with what is wrong with it; without a model a rule plants a
fault in an honest kernel (`redteam.mutation`). What gets through is written out as a case for the
corpus: FILE.cu and FILE.toml, which `generate eval` reads, and lines for corpus.toml. A person then
says what is wrong with it, and a gate learns it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hgemm_packs.generator.agents import answers, context
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.agents.words import MODEL, RULE
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.candidate import DEFAULTS, OPTIONAL, REQUIRED
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.candidate import Candidate, Source, Unreadable
from hgemm_packs.generator.evaluator.reward import UNMEASURED
from hgemm_packs.generator.evaluator.words import ASKED
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.redteam.mutation.draw import NoPlace, draw
from hgemm_packs.problem import Problem

#: What became of an attack: a gate refused it; the gates that were asked have passed it, and others
#: were not asked; all have passed it.
REFUSED, UNDECIDED, THROUGH = "refused", "undecided", "through"


class Judge(Protocol):
    """What the red team needs of `evaluator.Evaluator`."""

    def judge(self, one: Choice | Source, problem: Problem) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Attack:
    """A kernel that is meant to be wrong: how, by whose word, and its source. `source` is None
    where a model's answer was none, and `what` then says why."""

    name: str
    what: str
    origin: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Finding:
    """An attack with its outcome, and the gate that spoke last."""

    attack: Attack
    outcome: str
    gate: str = ""
    words: str = ""


class RedTeam:
    """Attacks one problem's gates; cases go to the folder `out` where one is given."""

    def __init__(
        self,
        problem: Problem,
        judge: Judge,
        device: DeviceFacts,
        chat: Chat | None = None,
        out: Path | None = None,
    ) -> None:
        self._problem, self._judge, self._device = problem, judge, device
        self._chat, self._out = chat, out

    def attack(self, count: int, seed: int = 0) -> list[Finding]:
        """`count` attacks and what became of each. Raises ChatError, and what the judge raises when
        its device fails."""
        source = self._by_rule(count, seed) if self._chat is None else self._ask(count, seed)
        return [self._try(each) for each in source]

    def prompt(self) -> Prompt:
        """What the model is asked."""
        gates = "\n".join(f"- {gate}: {asked}" for gate, asked in ASKED.items())
        parts = (
            context.task(self._problem, self._device),
            Part("What the gates ask", gates, "generator/evaluator/words.py"),
            context.note("source", "What a kernel may do"),
            context.instructions(),
        )
        return Prompt("red team", context.note("red_team_rules", "Rules"), parts)

    def _by_rule(self, count: int, seed: int) -> Iterator[Attack]:
        for number in range(count):
            try:
                mutant = draw(seed, number)
            except NoPlace:
                continue
            what = f"{mutant.operator} in {mutant.base.choice.family}: {' '.join(mutant.diff)}"
            yield Attack(f"mutant_{seed}_{number}", what, RULE, mutant.candidate)

    def _ask(self, count: int, seed: int) -> Iterator[Attack]:
        assert self._chat is not None
        replies = self._chat.climb(self.prompt().messages(), n=count, seed=seed)
        for number, reply in enumerate(replies):
            called = f"attack_{seed}_{number}"
            if reply.refusal or not reply.text:
                yield Attack(called, f"the model refused: {reply.refusal[:200]}", MODEL, None)
                continue
            try:
                text = answers.read_file(reply.text)
                record = answers.read_record(reply.text)
                name = "kernel" if "symbol" in record else answers.kernel_name(text)
                one = Candidate.of_source(text, record, name).read(self._problem)
            except (answers.Unclear, Unreadable) as error:
                yield Attack(called, str(error), MODEL, None)
                continue
            assert isinstance(one, Source)
            yield Attack(called, reply.text.strip().splitlines()[0][:200], MODEL, one)

    def _try(self, attack: Attack) -> Finding:
        if attack.source is None:
            return Finding(attack, REFUSED, "record", attack.what)
        answer = self._judge.judge(attack.source, self._problem)
        if answer.correct:
            outcome = THROUGH
        else:
            outcome = UNDECIDED if answer.status == UNMEASURED else REFUSED
        found = Finding(attack, outcome, answer.verdict.gate, answer.words)
        if outcome == THROUGH and self._out is not None:
            write_case(self._out, attack, attack.source)
        return found


def write_case(folder: Path, attack: Attack, source: Source) -> Path:
    """Write an attack as a case: its source with the launch record beside it, and what corpus.toml
    would say of it. Returns the source's path."""
    fields = {**source.fields}
    record = {
        name: fields[name]
        for name in (*REQUIRED, *OPTIONAL, *DEFAULTS)
        if name in fields and fields[name] != DEFAULTS.get(name)
    }
    what = " ".join(attack.what.split())
    path = folder / f"{attack.name}.cu"
    write_atomically(path, f"// {what}\n{source.source}".encode())
    write_atomically(path.with_suffix(".toml"), _toml(record).encode())
    case = f'[case.{attack.name}]\nexpect = "numeric"  # a person says which gate\nwhat = '
    write_atomically(folder / f"{attack.name}.case.toml", f"{case}{json.dumps(what)}\n".encode())
    return path


def _toml(record: Mapping[str, Any]) -> str:
    """A launch record as TOML, which has JSON's scalars and lists, and tables with `=`."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in record.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_value(each)}' for name, each in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
