"""Products as programs run them: calls of many problems, one behind another, in a CUDA graph of
torch's own.

Used by `generate measure mixed`, which chooses kernels for dependent launch, and by
`generate measure public`, which measures what `matmul` does with them. Operands are slices of
one pool of random normal numbers, for filling fresh ones would take longer than timing them.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from hgemm_packs.measure.operands import DTYPES, SET_ALIGN, Operands
from hgemm_packs.measure.replay import HEAD_START_CYCLES
from hgemm_packs.problem import Problem

#: Queues something on the current stream.
Call = Callable[[], object]
#: Samples in us a replay, by arm, one a block: those of one block belong together.
Samples = dict[str, list[float]]

#: The most elements that a pool has for reading, and for writing: no two operands of a chain that
#: needs no more share memory.
POOL = 1 << 32
FILLED_AT_ONCE = 1 << 26
#: Replays that one pair of events spans last about this long, unless one alone does.
TARGET_US = 150.0
MOST_REPLAYS = 8
#: Replays of a graph before its length is chosen.
WARM = 3
#: Above this no replay goes ahead of the timed ones: what it finds in the caches is long over.
LED_BELOW_US = 2000.0


class Pool:
    """Memory of one type for the operands of chains: A and B are cut from random normal numbers, C
    from elsewhere, so that no C ever is an A or B."""

    def __init__(self, dtype: str, elements: int = POOL) -> None:
        self._numbers = torch.empty(elements, dtype=DTYPES[dtype], device="cuda")
        for start in range(0, elements, FILLED_AT_ONCE):
            self._numbers[start : start + FILLED_AT_ONCE].normal_()
        self._results = torch.empty_like(self._numbers)
        self.clear()

    def clear(self) -> None:
        """Begin anew: what is cut from here on may share memory with what was cut before."""
        self._taken = {False: 0, True: 0}

    def cut(self, problem: Problem) -> Operands:
        """Operands of a problem, of memory that nothing else has until the pool is used up."""
        m, n, k = problem.m, problem.n, problem.k
        a, b, c = self._part(m * k), self._part(k * n), self._part(m * n, result=True)
        return Operands(
            a.view(k, m).t() if problem.layout[0] == "t" else a.view(m, k),
            b.view(n, k).t() if problem.layout[1] == "t" else b.view(k, n),
            c.view(m, n),
        )

    def _part(self, count: int, result: bool = False) -> torch.Tensor:
        memory = self._results if result else self._numbers
        start = self._taken[result]
        if start + count > len(memory):
            start = 0
        self._taken[result] = start + -(-count // SET_ALIGN) * SET_ALIGN
        return memory[start : start + count]


@dataclass(slots=True)
class Chain:
    """A captured chain, and the events around its timed replays."""

    graph: torch.cuda.CUDAGraph
    start: torch.cuda.Event
    end: torch.cuda.Event
    replays: int = 1
    led: bool = True

    def queue(self) -> None:
        if self.led:
            self.graph.replay()
        self.start.record()
        for _ in range(self.replays):
            self.graph.replay()
        self.end.record()

    def us(self) -> float:
        """Of one replay, of those queued last."""
        return float(self.start.elapsed_time(self.end)) * 1000.0 / self.replays


def settle() -> None:
    """Take what a process has by now out of the garbage collector's way: torch collects before a
    capture, which takes longer than the capture."""
    gc.collect()
    gc.freeze()


def capture(calls: Sequence[Call], stream: torch.cuda.Stream) -> Chain:
    """The calls as torch captures them. Each must have been made before: nothing is loaded in a
    capture."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    return Chain(graph, start, end)


def time_chains(
    chains: Mapping[str, Chain], blocks: int, rng: random.Random, stream: torch.cuda.Stream
) -> Samples:
    """Replays of each, block by block in an order drawn anew. All of a block are queued before any
    of them runs."""
    with torch.cuda.stream(stream):
        for chain in chains.values():
            us = _time_warm(chain, stream)
            chain.replays = min(MOST_REPLAYS, max(1, round(TARGET_US / us)))
            chain.led = us < LED_BELOW_US
        found: Samples = {name: [] for name in chains}
        order = list(chains)
        for _ in range(blocks):
            rng.shuffle(order)
            torch.cuda._sleep(HEAD_START_CYCLES)
            for name in order:
                chains[name].queue()
            stream.synchronize()
            for name in order:
                found[name].append(round(chains[name].us(), 3))
    return found


def _time_warm(chain: Chain, stream: torch.cuda.Stream) -> float:
    """Of one replay, once the graph is where it runs: the first replays of it take it there, and a
    length chosen by these is too short, so that a block times the host's launches."""
    chain.replays, chain.led = 1, True
    found = []
    for _ in range(WARM):
        torch.cuda._sleep(HEAD_START_CYCLES)
        chain.queue()
        stream.synchronize()
        found.append(chain.us())
    return min(found)


def over(samples: Samples, base: str, arm: str) -> float:
    """How much faster `arm` was than `base`: the median of the blocks' ratios."""
    return float(median(b / a for b, a in zip(samples[base], samples[arm], strict=True)))


def between(others: Sequence[Call], mine: Sequence[Call]) -> list[Call]:
    """Each of the others with one of mine behind it, these in turn."""
    return [call for i, other in enumerate(others) for call in (other, mine[i % len(mine)])]


def apart(mine: Sequence[Call], length: int, parts: int, gap: Call) -> list[Call]:
    """`parts` chains of `length` calls of mine, in turn, with a gap between two chains."""
    calls: list[Call] = []
    for part in range(parts):
        calls += [gap] * bool(part)
        calls += [mine[i % len(mine)] for i in range(part * length, (part + 1) * length)]
    return calls


def product(function: Callable[..., object], one: Operands) -> Call:
    """A call of `matmul` or of torch's on operands that are there."""
    return partial(function, one.a, one.b, out=one.c)
