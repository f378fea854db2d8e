"""What asking a model may cost: tokens, and money by prices that the user gives.

A request reserves the most that it can cost before it is sent, so that a budget is never passed,
however many threads ask at once. What it really cost is settled afterwards. Both stand in a ledger,
so that a run that was killed, even in the middle of a request, goes on with what is left.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hgemm_packs.generator.llm.words import BudgetSpent, Request, Usage, canonical
from hgemm_packs.generator.store.lines import read_records

#: Tokens of a message beside its text, at most: role and marks.
AROUND_MESSAGE = 16


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens; the currency is the user's."""

    prompt: float = 0.0
    completion: float = 0.0

    def cost(self, usage: Usage) -> float:
        return (usage.prompt * self.prompt + usage.completion * self.completion) / 1e6


def most(request: Request) -> Usage:
    """The most that a request can cost. No tokenizer in use makes more tokens than bytes."""
    text = sum(len(m.content.encode()) + AROUND_MESSAGE for m in request.messages)
    text += len(canonical(request.schema).encode()) if request.schema else 0
    return Usage(text, request.n * request.max_tokens, assumed=True)


@dataclass(slots=True)
class Reservation:
    """What one request may cost, until `settle` says what it did cost."""

    usage: Usage
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def settle(self, usage: Usage) -> None:
        self.usage = usage


class Budget:
    """Limits of a run; None is no limit. `tokens` counts prompts and completions together.

    With a `ledger`, a file of JSON lines, what was spent before counts too. Raises OSError, or
    ValueError for a file that is no ledger.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        money: float | None = None,
        prices: Prices | None = None,
        ledger: Path | None = None,
    ) -> None:
        self.tokens, self.money = tokens, money
        self.prices = prices or Prices()
        self.spent_tokens, self.spent_money, self.requests = 0, 0.0, 0
        self._held: dict[str, Reservation] = {}
        self._changed = threading.Condition()
        self._ledger = ledger
        if ledger is not None and ledger.exists():
            self._read(ledger)

    @contextmanager
    def reserve(self, request: Request) -> Iterator[Reservation]:
        """Hold what the request may cost at most, once others that are under way leave room for it.
        Raises BudgetSpent where that is not left.

        What is not settled inside counts in full: a server that was not heard out may have worked.
        """
        held = Reservation(most(request))
        with self._changed:
            while not self._fits(held):
                self._changed.wait()
            self._held[held.id] = held
            self._write("held", held)
        try:
            yield held
        finally:
            with self._changed:
                del self._held[held.id]
                self._write("spent", held)
                self._spend(held.usage)
                self._changed.notify_all()

    def _spend(self, usage: Usage) -> None:
        self.spent_tokens += usage.prompt + usage.completion
        self.spent_money += self.prices.cost(usage)
        self.requests += 1

    def _write(self, what: str, held: Reservation) -> None:
        if self._ledger is None:
            return
        line = {"id": held.id, what: [held.usage.prompt, held.usage.completion]}
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        with self._ledger.open("ab") as file:
            file.write(canonical(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, ledger: Path) -> None:
        """Requests without an end were under way when the run was killed: they count in full."""
        os.truncate(ledger, ledger.read_bytes().rfind(b"\n") + 1)
        costs: dict[str, Usage] = {}
        for record in read_records([ledger]):
            try:
                prompt, completion = record.get("spent") or record["held"]
                costs[str(record["id"])] = Usage(int(prompt), int(completion))
            except (KeyError, TypeError, ValueError, AttributeError):
                raise ValueError(f"{ledger} is no ledger of a budget") from None
        for usage in costs.values():
            self._spend(usage)

    def _fits(self, wanted: Reservation) -> bool:
        """Whether there is room beside what is held. Raises BudgetSpent where there is none even if
        that costs nothing."""
        prompt, completion = wanted.usage.prompt, wanted.usage.completion
        money = self.prices.cost(wanted.usage)
        if self.tokens is not None and self.spent_tokens + prompt + completion > self.tokens:
            raise BudgetSpent(
                f"the budget of {self.tokens} tokens: {self.spent_tokens} are spent, and the next "
                f"request may cost {prompt + completion}"
            )
        if self.money is not None and self.spent_money + money > self.money:
            raise BudgetSpent(
                f"the budget of {self.money:g}: {self.spent_money:.6f} is spent, and the next "
                f"request may cost {money:.6f}"
            )
        usages = [each.usage for each in (*self._held.values(), wanted)]
        tokens = self.spent_tokens + sum(u.prompt + u.completion for u in usages)
        money = self.spent_money + sum(map(self.prices.cost, usages))
        return (self.tokens is None or tokens <= self.tokens) and (
            self.money is None or money <= self.money
        )
