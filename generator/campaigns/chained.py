"""The chained protocol: what of a kernel's gain survives between torch's own elementwise kernels.

Called by `generate measure chained`, on every GPU here; goes on where an earlier run stopped. The
figures of lines on file are computed here, too: `benchmarks.publish.protocols` writes them down.

A captured graph is a model of 24 layers (8 where calls are long): C = A @ W, each layer with a W of
its own, then torch's sine of C, written in place over the columns that C and A share, and the next
product reads that A. So every product is the one problem that the table has a row for, whether N
equals K or not; it depends on the elementwise kernel before it, which depends on the product before
that; and the elementwise kernel costs the same whoever multiplies. A scalar or a ReLU in its place
would let the values of a replayed chain grow, or die out, and a card is faster on zeros. Small
weights stay in L2 from replay to replay, as in a model of that size, and large ones do not. Arms:
torch, the kernel launched plainly, the same with programmatic dependent launch (the elementwise
kernel takes no part in that), and the elementwise kernels alone. The same arms are measured hot and
cold in the same minute, without elementwise kernels.

The problems: fp16 nn rows of the grid with a confirmed kernel, `count` of them drawn regime by
regime, and nt rows of LLM layers, `layers` of them drawn number of tokens by number of tokens.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import (
    CampaignCounts,
    CampaignOptions,
    Line,
    ProblemFilter,
    Task,
)
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.problem import Problem

#: The arm of the elementwise kernels alone (`hgemm_packs.measure.timing`, which wants torch).
ELEMENTWISE = "elementwise"
ARMS = ("plain", "pdl")
#: A gain below this is noise: no share of it can be named.
LEAST_GAIN = 0.01
LEAST_US = 1e-3
SMALL_M = 256  # tokens up to which layers are reported apart


def spread(
    groups: Mapping[Any, Sequence[Problem]], count: int, rng: random.Random
) -> list[Problem]:
    """`count` problems drawn in turn from groups that last, each shuffled."""
    queues = []
    for name in sorted(groups):
        queue = sorted(groups[name], key=problems.cost)
        rng.shuffle(queue)
        queues.append(queue)
    chosen: list[Problem] = []
    while len(chosen) < count and any(queues):
        chosen += [queue.pop() for queue in queues if queue]
    return chosen[:count]


@dataclass(frozen=True, slots=True)
class Draw:
    """How many problems of the grid and of layers are drawn, and by which seed."""

    count: int = 60
    layers: int = 20
    seed: int = 4


def choose(wins: Iterable[Problem], layers: Iterable[Problem], draw: Draw) -> list[Problem]:
    """Of the problems with a confirmed kernel, those to measure."""
    wins, rng = list(wins), random.Random(draw.seed)
    shapes, listed = problems.grid_shapes(), set(layers)
    regimes: dict[str, list[Problem]] = {}
    tokens: dict[int, list[Problem]] = {}
    for p in wins:
        if (p.layout, p.dtype) == ("nn", "f16") and (p.m, p.n, p.k) in shapes:
            regimes.setdefault(problems.regime(p.m, p.n, p.k), []).append(p)
        if (p.layout, p.dtype) == ("nt", "f16") and p in listed:
            tokens.setdefault(p.m, []).append(p)
    return spread(regimes, draw.count, rng) + spread(tokens, draw.layers, rng)


def figures(line: Line) -> dict[str, Any]:
    """One problem's: us by medians, speed-ups of pair, of product and in isolation, by arm.

    A product's time in the chain is the pair's less that of the elementwise kernel alone, and never
    nothing.
    """
    pair = {arm: median(us) for arm, us in line["chained"].items()}
    alone = pair.pop(ELEMENTWISE)
    found: dict[str, Any] = {"elementwise_us": alone, "pair_us": pair}
    for arm in ARMS:
        isolated = {p: median(line[p]["torch"]) / median(line[p][arm]) for p in ("hot", "cold")}
        saved = median(line["hot"]["torch"]) - median(line["hot"][arm])
        found[arm] = {
            "pair": pair["torch"] / pair[arm],
            "product": max(LEAST_US, pair["torch"] - alone) / max(LEAST_US, pair[arm] - alone),
            **isolated,
            "saved_us": pair["torch"] - pair[arm],
            "saved_hot_us": saved,
        }
    return found


def group(line: Line) -> str:
    m, n, k, layout, _ = line["problem"]
    if layout == "nn":
        return problems.regime(m, n, k)
    return f"layers, M {'<=' if m <= SMALL_M else '>'} {SMALL_M}"


def means(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means of one group's speed-ups, and the share of the isolated gain that is left:
    the logarithm of the product's mean in the chain over that of the hot, and of the cold, mean."""
    found: dict[str, Any] = {"problems": len(each)}
    for arm in ARMS:
        mean = {
            name: geometric_mean([one[arm][name] for one in each])
            for name in ("pair", "product", "hot", "cold")
        }
        share = {
            f"survives_of_{name}": round(math.log(mean["product"]) / math.log(mean[name]), 3)
            if mean[name] > 1.0 + LEAST_GAIN
            else None
            for name in ("hot", "cold")
        }
        found[arm] = {name: round(value, 4) for name, value in mean.items()} | share
    return found


def summary(headers: Sequence[Line], lines: Sequence[Line]) -> dict[str, Any]:
    """What chained.json holds. Lines with wrong values do not count, but are named."""
    right = [line for line in lines if not line["wrong"]]
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in right:
        one = figures(line)
        whole = "grid" if line["problem"][3] == "nn" else "layers"
        for name in (group(line), whole):
            groups.setdefault(name, []).append(one)
    if not groups:
        raise ValueError("no line with right values to summarise")
    return {
        "groups": {name: means(each) for name, each in sorted(groups.items())},
        "problems": [
            {"problem": line["problem"], "kernel": line["kernel"], **_round(figures(line))}
            for line in sorted(right, key=lambda line: json.dumps(line["problem"]))
        ],
        "wrong": [[*line["problem"], *line["wrong"]] for line in lines if line["wrong"]],
        "measured_on": headers[-1] if headers else {},
    }


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _round(each) for name, each in value.items()}
    return round(value, 4)


def measure(
    plan: CampaignOptions, pack: Packed, wanted: ProblemFilter, draw: Draw
) -> CampaignCounts:
    """Measure problems drawn from those of a selection. Raises PackError, ValueError, and what
    `campaign.run` does."""
    from hgemm_packs.generator.devices import protocols

    settings = protocols.ProtocolSettings(blocks=11, target_us=400.0, budget_us=40_000.0)
    wins = pack.choose_kernels(campaign.select(pack, wanted), pack.wins)
    kernels = dict(wins)
    tasks = [
        Task(
            "chained",
            problem,
            partial(_load_kernel, pack, kernels[problem]),
            {"problem": pack_kernels.problem_values(problem), "kernel": kernels[problem]},
        )
        for problem in choose(kernels, problems.read("llm"), draw)
    ]
    header = {
        "benchmark": "chained",
        "protocol": "product, elementwise, product, ...: one CUDA graph of 8 to 24 layers, arms "
        "in random order each block; us of a product and its elementwise kernel",
        "settings": asdict(settings),
        "choice": asdict(draw),
    }
    make = partial(protocols.make, settings=settings)
    return campaign.measure(plan, pack, tasks, make, header)


def _load_kernel(pack: Packed, name: str) -> tuple[CompiledKernel, ...]:
    return (pack.kernel(name),)
