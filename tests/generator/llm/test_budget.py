"""A budget is never passed: not by many threads, not by what failed, not over a kill."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.llm.budget import AROUND_MESSAGE, Budget, Prices, most
from hgemm_packs.generator.llm.words import BudgetSpent, ChatError, Message, Request, Usage

from .scripted_server import closed, cut_off, say, serve, slow, status

ASKED = [Message("user", "x" * 84)]  # 100 tokens at most, with its marks


def request(max_tokens: int = 50, n: int = 1) -> Request:
    return Request("m", tuple(ASKED), n, 0.0, 0, max_tokens)


def test_the_most_that_a_request_costs_counts_bytes_samples_and_schema() -> None:
    assert most(request(n=3)) == Usage(84 + AROUND_MESSAGE, 150, assumed=True)
    two = Request("m", (Message("user", "é"),), 1, 0.0, 0, 1, {"a": 1})
    assert most(two).prompt == 2 + AROUND_MESSAGE + len('{"a":1}')


def test_tokens_and_money_are_counted_as_the_server_tells(client: Any) -> None:
    step = say("ok", usage={"prompt_tokens": 40, "completion_tokens": 5})
    budget = Budget(tokens=10_000, money=1.0, prices=Prices(2.0, 10.0))
    with serve([step]) as server:
        client(server, budget=budget).complete(ASKED)
    assert (budget.spent_tokens, budget.requests) == (45, 1)
    assert budget.spent_money == pytest.approx((40 * 2 + 5 * 10) / 1e6)


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": -4, "completion_tokens": 1}])
def test_a_server_that_does_not_tell_is_counted_at_its_most(client: Any, usage: Any) -> None:
    budget = Budget()
    with serve([say("ok", usage=usage)]) as server:
        client(server, budget=budget, max_tokens=50).complete(ASKED)
    assert budget.spent_tokens == 150


def test_nothing_is_sent_that_might_pass_the_budget(client: Any) -> None:
    with serve([say("ok")]) as server:
        chat = client(server, budget=Budget(tokens=149), max_tokens=50)
        with pytest.raises(BudgetSpent, match=r"of 149 tokens: 0 are spent.* may cost 150"):
            chat.complete(ASKED)
        cheap = Budget(money=0.0001, prices=Prices(1.0, 1.0))
        with pytest.raises(BudgetSpent, match=r"of 0\.0001: 0\.0{6} is spent.* cost 0\.000150"):
            client(server, budget=cheap, max_tokens=50).complete(ASKED)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("step", "spent"), [(status(429), 0), (status(500), 0), (closed(), 300), (slow(0.6), 300)]
)
def test_what_the_server_may_have_worked_on_counts(client: Any, step: Any, spent: int) -> None:
    budget = Budget()
    with serve([step]) as server, pytest.raises(ChatError):
        client(server, budget=budget, max_tokens=50, tries=2, timeout_s=0.2).complete(ASKED)
    assert budget.spent_tokens == spent


def test_retries_and_longer_tries_end_with_the_budget(client: Any) -> None:
    """The second try of a reply that was cut off is not made where it might pass the budget."""
    step = cut_off("12")
    with serve([step]) as server:
        budget = Budget(tokens=160)
        (reply,) = client(server, budget=budget, max_tokens=50).complete(ASKED)
    assert reply.finish == "length" and len(server.bodies) == 1
    with serve([closed()]) as server:
        budget = Budget(tokens=310)
        with pytest.raises(BudgetSpent):
            client(server, budget=budget, max_tokens=50).complete(ASKED)
    assert (len(server.bodies), budget.spent_tokens) == (2, 300)


def test_many_threads_do_not_pass_it_together(client: Any) -> None:
    budget = Budget(tokens=1000)
    step = say("ok", usage={"prompt_tokens": 100, "completion_tokens": 50}, wait_s=0.05)
    refused: list[BudgetSpent] = []
    with serve([step]) as server:
        chat = client(server, budget=budget, max_tokens=50)

        def ask() -> None:
            try:
                chat.complete(ASKED)
            except BudgetSpent as error:
                refused.append(error)

        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(server.bodies), budget.spent_tokens, len(refused)) == (6, 900, 14)


def test_a_run_that_goes_on_has_what_was_left(client: Any, tmp_path: Path) -> None:
    """Killed in a request: what it may have cost counts, and the torn line does not."""
    ledger = tmp_path / "spent.jsonl"
    first = Budget(tokens=500, ledger=ledger)
    with serve([say("ok", usage={"prompt_tokens": 90, "completion_tokens": 10})]) as server:
        client(server, budget=first, max_tokens=50).complete(ASKED)
    whole = Budget(tokens=500, ledger=ledger)
    assert (whole.spent_tokens, whole.requests) == (100, 1)
    with ledger.open("a") as file:
        file.write(json.dumps({"id": "killed", "held": [100, 50]}) + '\n{"id": "torn", "he')
    again = Budget(tokens=500, ledger=ledger)
    assert (again.spent_tokens, again.requests) == (250, 2)
    with again.reserve(request()) as held:
        held.settle(Usage(100, 20))
    assert Budget(ledger=ledger).spent_tokens == 370


@pytest.mark.parametrize("text", ['{"id": "a"}\n', "[1]\n", '{"id": "a", "spent": ["x", 1]}\n'])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spent.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no ledger"):
        Budget(ledger=path)
