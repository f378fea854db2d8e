"""Programmatic dependent launch against plain launches of the same kernel: values and graph edges.

Called by `devices.protocols` around its timings. A kernel that does not wait for its upstream as it
must gives other bits in one of the replays that are timed; a capture that lost the attribute has
no programmatic edge.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch

from hgemm_packs import dispatch
from hgemm_packs.generator.measure.values import Reference, sample_reference
from hgemm_packs.measure.operands import Operands
from hgemm_packs.measure.replay import Arm, Stage
from hgemm_packs.measure.timing import ArmBench
from hgemm_packs.problem import Problem

PROBES = 4  # sets of one comparison whose values are looked at
FULL_REFERENCE_FLOP = 1e11  # beyond, some rows in float64 stand for the whole in float32


class Agreement:
    """A `between` that, after the last of `blocks`, replays the very graphs that were timed: `pdl`
    must give what `plain` gives in every bit, and the product where C is that of one set."""

    def __init__(self, problem: Problem, protocol: str, blocks: int, seed: int) -> None:
        self._problem, self._protocol, self._last = problem, protocol, blocks - 1
        self._seed = seed
        self.wrong: list[str] = []

    def __call__(self, block: int, field: ArmBench) -> None:
        if block != self._last:
            return
        sets = field.plan.sets
        probes = sets[:1] if field.plan.chained else sets[:: max(1, len(sets) // PROBES)]
        start = sets[0].a.clone()

        def replay_graph(name: str) -> list[torch.Tensor]:
            sets[0].a.copy_(start)  # layers overwrite it
            for one in probes:
                one.c.fill_(math.nan)
            field.block([name])
            return [one.c.clone() for one in probes]

        if not all(map(torch.equal, replay_graph("plain"), replay_graph("pdl"))):
            self.wrong.append(f"{self._protocol}: pdl differs from plain")
        if not field.plan.chained:
            detail = self._reference(probes[0]).check(probes[0].c).detail
            if detail:
                self.wrong.append(f"{self._protocol}: {detail}")

    def _reference(self, one: Operands) -> Reference:
        p = self._problem
        if 2 * p.m * p.n * p.k > FULL_REFERENCE_FLOP:
            return sample_reference(p, one, self._seed)
        return Reference(p, one)


class _EdgeData(ctypes.Structure):
    """CUgraphEdgeData: `type` 1 is a programmatic dependency, which may start before its upstream
    has ended."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


def edges(calls: Sequence[Arm], one: Operands, at: Stage) -> dict[str, int]:
    """What a capture makes of these calls, one after the other: its edges, by kind. One that leads
    to a dependent launch is programmatic. Raises RuntimeError when the graph cannot be read or
    instantiated."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with at.active():
        for call in calls:
            call(one.a, one.b, one.c)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for call in calls:
                call(one.a, one.b, one.c)
        finally:
            graph.capture_end()
        graph.replay()  # instantiates it
        at.stream.synchronize()
    ask = ctypes.CDLL(dispatch.DRIVER).cuGraphGetEdges_v2
    handle, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0)
    code = ask(handle, None, None, None, ctypes.byref(count))
    nodes, data = ctypes.c_void_p * count.value, (_EdgeData * count.value)()
    if code == 0 and count.value:
        code = ask(handle, nodes(), nodes(), data, ctypes.byref(count))
    if code:
        raise RuntimeError(f"cuGraphGetEdges: CUDA error {code}")
    programmatic = sum(each.type == 1 for each in data)
    return {"programmatic": programmatic, "full": count.value - programmatic}
