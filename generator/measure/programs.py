"""A process that measures `matmul` as programs call it: the device, a pack in front of all others,
and problems that may stand beside a problem.

Used by `generate measure mixed` and `generate measure public`, one process each on one
GPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hgemm_packs import launcher, select
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.measure import chains
from hgemm_packs.generator.measure.chains import Call, Pool
from hgemm_packs.measure.operands import Operands
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem, regime

#: Problems that stand beside one, and where they are drawn from.
OTHERS = 8
AROUND = ("regime", "all")
#: A neighbour from all regimes has fewer operations: beside larger ones nothing of a problem shows.
NEIGHBOUR_FLOP = 2e10
#: Deviation from torch's result, in norms, that rounding explains.
ROUNDING = {"f16": 2e-3, "bf16": 1.2e-2}


class Neighbours:
    """What may stand beside a problem: those with a kernel, of its type and layout."""

    def __init__(self, known: Sequence[Problem]) -> None:
        self._known: dict[tuple[str, ...], list[Problem]] = {}
        for p in known:
            kind = (p.dtype, p.layout)
            self._known.setdefault((*kind, regime(p.m, p.n, p.k)), []).append(p)
            if 2.0 * p.m * p.n * p.k < NEIGHBOUR_FLOP:
                self._known.setdefault(kind, []).append(p)

    def draw(self, p: Problem, around: str, rng: random.Random) -> list[Problem]:
        """OTHERS different ones of the problem's regime, or of all regimes; of all where the regime
        has too few, and of these as often as need be."""
        names = (p.dtype, p.layout, *([regime(p.m, p.n, p.k)] if around == "regime" else []))
        pool = [each for each in self._known[names] if each != p]
        if len(pool) < OTHERS and around == "regime":
            return self.draw(p, "all", rng)
        return rng.sample(pool, OTHERS) if len(pool) >= OTHERS else rng.choices(pool, k=OTHERS)


class ProgramBench:
    """The device, the pack in front of all others, and kernels loaded from it."""

    def __init__(self, pack: Packed, seed: int) -> None:
        self.pack = pack
        self.rng = random.Random(seed)
        select.prefer(pack.pack)
        torch.manual_seed(seed)
        self.stream = torch.cuda.Stream()
        chains.settle()
        self.neighbours = Neighbours(list(pack.wins))
        self._pools: dict[str, Pool] = {}
        self._number = torch.ones(1, device="cuda")
        self._kernels: dict[tuple[str, bool], Any] = {}

    def pool(self, dtype: str) -> Pool:
        """The pool of that type, with nothing cut from it."""
        if dtype not in self._pools:
            self._pools[dtype] = Pool(dtype)
        self._pools[dtype].clear()
        return self._pools[dtype]

    def make_launcher(self, entry: KernelEntry, dependent: bool) -> Callable[..., object]:
        """A function of (a, b, out=c) that launches this very kernel. Raises RuntimeError where it
        does not load so."""
        key = (entry.id, dependent)
        if key not in self._kernels:
            self._kernels[key] = launcher.load(0, entry, self.pack.pack.image(entry), dependent)
        return partial(_launch, self._kernels[key])

    def gap(self) -> Call:
        """A kernel of torch's, on one number."""
        return partial(torch.neg, self._number, out=self._number)

    def capture_calls(self, calls: Sequence[Call]) -> chains.Chain:
        """The calls as one graph, each made once before."""
        with torch.cuda.stream(self.stream):
            for call in dict.fromkeys(calls):
                call()  # loads it, and makes room for the workspaces of captures
        return chains.capture(calls, self.stream)


def _launch(kernel: Any, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
    launcher.launch(kernel, a, b, out)


def differs(one: Operands, right: torch.Tensor, dtype: str) -> bool:
    """Whether C is not the `right` result, as far as rounding allows."""
    wanted = right.float()
    deviation = torch.linalg.vector_norm(one.c.float() - wanted)
    return not bool(deviation <= ROUNDING[dtype] * torch.linalg.vector_norm(wanted))
