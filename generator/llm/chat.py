"""`Chat.complete`: messages in, replies out, whatever the server does, within a budget.

The one door to a language model. An answer comes from a cassette, else from the cache, else from
the server, which is asked again after 429, 5xx, a closed connection, a body that is no answer, and
after replies that were cut off.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hgemm_packs.generator.llm.budget import Budget, most
from hgemm_packs.generator.llm.files import Cache, Player, Recorder
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Transport
from hgemm_packs.generator.llm.words import (
    Answer,
    BudgetSpent,
    ChatError,
    Message,
    Reply,
    Request,
    Usage,
)

LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a request is tried, and how long is waited between: `first_s`, then twice as long
    each time, within a tenth drawn by chance so that many clients do not return at once."""

    tries: int = 5
    first_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self, tried: int, asked_s: float) -> None:
        pause = self.first_s * 2 ** (tried - 1) * random.uniform(0.9, 1.1)
        self.sleep(min(LONGEST_WAIT_S, max(pause, asked_s)))


@dataclass(slots=True)
class Chat:
    """A model at a server. Safe for several threads.

    `max_tokens` is what one sample may have; a sample that is cut off is asked for again with twice
    as many, up to `most_tokens`. With a `player` no server is asked, and nothing is spent.

    Example:
        chat = Chat(Server("http://127.0.0.1:8000/v1", find_key()), "a-model")
        replies = chat.complete([Message("user", "Name a tile size.")], n=4, temperature=0.7)
    """

    transport: Transport | None
    model: str
    key: Key = field(default_factory=Key)
    budget: Budget = field(default_factory=Budget)
    cache: Cache | None = None
    recorder: Recorder | None = None
    player: Player | None = None
    patience: Patience = field(default_factory=Patience)
    max_tokens: int = 2048
    most_tokens: int = 16384

    def complete(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> list[Reply]:
        """`n` samples.

        `schema` is a JSON schema that the server is asked to hold the text to; the caller checks
        the text all the same. Raises BudgetSpent before what might pass the budget is sent,
        NotRecorded, and ChatError when no try had an answer.
        """
        hidden = tuple(Message(m.role, self.key.hide(m.content)) for m in messages)
        request = Request(self.model, hidden, n, temperature, seed, self.max_tokens, schema)
        replies: list[Reply] = []
        while len(replies) < n:
            # A server may give one sample for `n`: the others have seeds of their own.
            rest = replace(request, n=n - len(replies), seed=seed + len(replies))
            replies += self._whole(rest).replies[: rest.n]
        return replies

    def climb(
        self,
        messages: Sequence[Message],
        *,
        n: int,
        temperatures: tuple[float, float] = (0.2, 1.0),
        schema: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> list[Reply]:
        """`n` samples at temperatures in even steps from the first to the last: one cautious, one
        bold. Fewer where the server fails between them; else it raises as `complete` does."""
        low, high = temperatures
        replies: list[Reply] = []
        for i in range(n):
            heat = round(low + (high - low) * i / max(1, n - 1), 3)
            try:
                replies += self.complete(messages, temperature=heat, schema=schema, seed=seed + i)
            except ChatError as error:
                if not replies or isinstance(error, BudgetSpent):
                    raise  # that sample can be asked for later
                break
        return replies

    def _whole(self, request: Request) -> Answer:
        """The answer to a request; replies that were cut off are asked for again with more room,
        as far as room, budget and server go: a context may be smaller than the room."""
        answer = self._answer(request)
        while any(reply.finish == "length" for reply in answer.replies):
            larger = min(2 * request.max_tokens, self.most_tokens)
            if larger == request.max_tokens:
                break
            request = replace(request, max_tokens=larger)
            try:
                answer = self._answer(request)
            except ChatError:
                break
        return answer

    def _answer(self, request: Request) -> Answer:
        if self.player is not None:
            answer = self.player.get(request)
        else:
            cached = self.cache.get(request) if self.cache is not None else None
            answer = cached or self._ask(request)
            if self.cache is not None and cached is None:
                self.cache.put(request, answer)
        if self.recorder is not None:
            self.recorder.put(request, answer)
        return answer

    def _ask(self, request: Request) -> Answer:
        """Try until there is an answer. Raises ChatError with the last failure's words."""
        if self.transport is None:
            raise ChatError("there is no server to ask")
        words = "it was never tried"
        for tried in range(1, self.patience.tries + 1):
            with self.budget.reserve(request) as held:
                got = self.transport.send(request)
                if isinstance(got, Answer):
                    held.settle(_cost(got.usage, most(request)))
                    return got
                if not got.unheard:
                    held.settle(Usage())
            words = got.words
            if not got.again:
                break
            if tried < self.patience.tries:
                self.patience.wait(tried, got.wait_s)
        raise ChatError(self.key.hide(f"{self.model}: {words}"))


def _cost(told: Usage, limit: Usage) -> Usage:
    """What an answer is counted as: what the server told, else the most that it can have been."""
    return limit if told.assumed else told
