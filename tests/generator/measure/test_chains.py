"""How chains of calls are timed, with graphs that are slow while they are cold."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hgemm_packs.generator.measure import chains


class Graph:
    """One that takes `cold_us` in its first replays and `us` in all others; `replayed` counts."""

    def __init__(self, us: float, cold_us: float, cold: int) -> None:
        self._us, self._cold_us, self._cold = us, cold_us, cold
        self.replayed = 0
        self.clock = 0.0

    def replay(self) -> None:
        self.replayed += 1
        self.clock += self._cold_us if self.replayed <= self._cold else self._us


class Event:
    def __init__(self, graph: Graph) -> None:
        self._graph, self._at = graph, 0.0

    def record(self) -> None:
        self._at = self._graph.clock

    def elapsed_time(self, end: Event) -> float:
        return (end._at - self._at) / 1000.0


class Stream:
    def synchronize(self) -> None: ...


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "_sleep", found.append)
    yield found


def make(us: float, cold_us: float, cold: int) -> chains.Chain:
    graph: Any = Graph(us, cold_us, cold)
    return chains.Chain(graph, Event(graph), Event(graph))  # type: ignore[arg-type]


def test_a_graph_that_was_cold_is_timed_by_as_many_replays_as_a_warm_one(
    sleeps: list[int],
) -> None:
    """Of 1,684 lines 29 had no figures: a pause of 19 us was said to take 30 to 200. Its graph was
    cold when its length was chosen, so that one replay stood between two events, and what passed
    there was the time in which the host launched it."""
    stream: Any = Stream()
    cold, warm = make(19.0, 160.0, 2), make(19.0, 19.0, 0)
    timed = {"cold": cold, "warm": warm}
    samples = chains.time_chains(timed, 3, random.Random(1), stream)
    assert (cold.replays, warm.replays) == (8, 8)
    assert samples == {"cold": [19.0] * 3, "warm": [19.0] * 3}
    # A pause before each look, so that no launch of the host is timed.
    assert len(sleeps) == chains.WARM * len(timed) + 3


def test_a_long_chain_is_replayed_once_and_not_led(sleeps: list[int]) -> None:
    stream: Any = Stream()
    long = make(2500.0, 2600.0, 1)
    samples = chains.time_chains({"long": long}, 2, random.Random(1), stream)
    assert (long.replays, long.led) == (1, False)
    assert samples == {"long": [2500.0, 2500.0]}
    assert long.graph.replayed == 2 * chains.WARM + 2  # type: ignore[attr-defined]
