"""The report as one JSON document: every figure that the page shows, computed once.

Called by `report.write`. What a store cannot say yet is left empty and named under `missing`;
nothing is filled in. Times are in us, budgets in GPU-seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.core.problems import regime
from hgemm_packs.generator.core.spec import FALLBACK, PROTOCOLS
from hgemm_packs.generator.gates.plausibility import floor_us, flops
from hgemm_packs.generator.report import metrics, modes, search_figures
from hgemm_packs.generator.report.bottleneck import bottleneck
from hgemm_packs.generator.store.findings import UNBUILT, Findings
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.generator.tables.judge import Contender
from hgemm_packs.generator.tables.prune import KEPT_SHARE, Pruned
from hgemm_packs.problem import Problem

SCHEMA = "hgemm-packs/report-1"
WORST = 15
#: win@p is drawn over these.
BARS = tuple(round(0.8 + 0.01 * i, 2) for i in range(81))

Document = dict[str, Any]


def numbers(
    found: Findings, answers: Sequence[modes.Sample] = (), tokens: int | None = None
) -> Document:
    """The whole document, with what an evaluator answered to proposals beside the store and what a
    language model cost in tokens; JSON has no NaN and no infinity, so those are None."""
    # Without a floor nothing is proven, and nothing is shown as a win.
    floors = judge.floors(found) if found.trials else {False: math.inf}
    listed = judge.contenders(found, floors)
    won, pruned = table.winners(listed, KEPT_SHARE)
    full, _ = table.winners(listed)
    lines = [_line(found, p, each, full.get(p)) for p, each in _list_judged(found, listed).items()]
    torch_us = {p: median(each[0].field.samples["hot"][FALLBACK]) for p, each in listed.items()}
    named = {(p, one.kernel) for p, one in full.items()}
    samples = [*modes.samples_of(found, torch_us, named), *answers]
    document: Document = {
        "schema": SCHEMA,
        "device": asdict(found.device),
        "protocol": table.PROTOCOL,
        "rule": judge.RULE,
        "noise_floor": min(floors.values()) if found.trials else None,
        "counts": _counts(found, lines),
        "runs": [dict(run) for run in found.runs],
        "speedups": {p: _speedups(lines, p) for p in PROTOCOLS},
        "pack": _pack(lines, full),
        "prune": _prune(pruned, full, won),
        "win": [
            [bar, *(metrics.win_at([x[p] or 0.0 for x in lines], bar) for p in PROTOCOLS)]
            for bar in BARS
        ],
        "regimes": _regimes(lines),
        "worst": sorted((x for x in lines if x["hot"]), key=lambda x: x["hot"])[:WORST],
        "statuses": search_figures.statuses(found),
        "at_k": modes.at_k(samples),
        "modes": modes.by_mode(samples, tokens),
        "search": search_figures.curves(found),
        "operators": search_figures.operators(found),
        "cost": search_figures.cost(found, len({c.kernel for c in full.values()}), len(full)),
        "problems": lines,
    }
    document["missing"] = _list_missing(found, document)
    plain: Document = _plain(document)
    return plain


def _list_judged(
    found: Findings, listed: Mapping[Problem, Sequence[Contender]]
) -> dict[Problem, Sequence[Contender]]:
    """Contenders of every problem that can be judged, smallest first: those with finals, and those
    on which every attempt failed. A problem still waiting for its finals is not among them."""
    alive = {a.problem for a in found.attempts if modes.correct(found, a)}
    failed = {a.problem: () for a in found.attempts if a.problem not in alive}
    failed |= {each.problem: () for each in found.fields}
    judged = {**failed, **listed}
    return dict(sorted(judged.items(), key=lambda item: (flops(item[0]), item[0].key)))


def _line(
    found: Findings, problem: Problem, listed: Sequence[Contender], won: Contender | None
) -> Document:
    """One problem: its best kernel before any fallback, and whether the table names it."""
    line: Document = {
        "problem": str(problem),
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "layout": problem.layout,
        "dtype": problem.dtype,
        "flops": flops(problem),
        "regime": regime(problem.m, problem.n, problem.k),
        "served": won is not None,
        "evidence": "none",
        **dict.fromkeys(("kernel", "hot", "cold", "us", "torch_us", "cublaslt_us", "vs_best")),
        **dict.fromkeys(("lcb", "roofline", "bottleneck")),
    }
    best = won or (listed[0] if listed else None)
    if best is None:
        return line
    fields, samples = found.kernels.get(best.kernel, {}), best.field.samples
    us = {p: median(samples[p][best.kernel]) for p in PROTOCOLS}
    row, device = best.row, found.device
    hot = row.hot if row else judge.summarise_times(samples["hot"], best.kernel)
    line |= {
        "evidence": best.field.stage,
        "kernel": fields.get("name", best.kernel),
        "hot": hot.speedup,
        "cold": row.cold.speedup if row else judge.paired_ratio(samples["cold"], best.kernel),
        "lcb": min(row.hot.lcb, row.cold.lcb) if row else None,
        "us": us["hot"],
        "torch_us": hot.torch_us,
        "cublaslt_us": hot.cublaslt_us,
        "vs_best": hot.vs_best,
    }
    if device.peak_tflops > 0 and device.peak_gbps > 0:
        line["roofline"] = floor_us(problem, device, cold=True) / us["cold"]
        if "grid" in fields:
            line["bottleneck"] = bottleneck(problem, fields, us["cold"], device)
    return line


def _speedups(lines: Sequence[Document], protocol: str) -> Document:
    values = [x[protocol] or 0.0 for x in lines]
    found = asdict(metrics.speedups(values, [x["flops"] for x in lines]))
    return {**found, "win": {f"{bar:g}": share for bar, share in found["win"].items()}}


def _pack(lines: Sequence[Document], won: Mapping[Problem, Contender]) -> Document:
    """What the table gives: its winners, the baseline elsewhere; per protocol the geometric mean
    over the winners and over everything, and with hot caches the same against the better of torch
    and tuned cuBLASLt, to which what torch serves may lose."""
    served = [x for x in lines if x["served"]]
    timed = [x for x in lines if x["us"]]
    best = [x["vs_best"] * (1.0 if x["served"] else x["us"] / x["torch_us"]) for x in timed]

    def mean(protocol: str, some: Sequence[Document]) -> float:
        return geometric_mean([x[protocol] if x["served"] else 1.0 for x in some] or [math.nan])

    return {
        "kernels": len({c.kernel for c in won.values()}),
        "wins": len(served),
        "fallback": 1.0 - len(served) / len(lines) if lines else math.nan,
        "worst_lcb": min((x["lcb"] for x in served), default=None),
        "vs_best": {
            "wins": geometric_mean([x["vs_best"] for x in served] or [math.nan]),
            "all": geometric_mean(best or [math.nan]),
        },
        **{
            p: {
                "wins": mean(p, served),
                "all": mean(p, lines),
                "worst": min((x[p] for x in served), default=None),
            }
            for p in PROTOCOLS
        },
    }


def _prune(
    pruned: Pruned, full: Mapping[Problem, Contender], won: Mapping[Problem, Contender]
) -> Document:
    """The curve, chosen by the finals, and what the confirmation says that the set keeps."""

    def compute_gain(rows: Mapping[Problem, Contender]) -> float:
        found = [c.row for c in rows.values() if c.row is not None]
        return math.fsum(math.log(row.hot.speedup * row.cold.speedup) / 2 for row in found)

    gain = compute_gain(full)
    return {
        "keep": KEPT_SHARE,
        "kernels": len(pruned.kernels),
        "of": len({c.kernel for c in full.values()}),
        "problems": len(won),
        "share": pruned.share,
        "confirmed_share": compute_gain(won) / gain if gain else None,
        "value": pruned.value,
        "full_value": pruned.full_value,
        "curve": [list(point) for point in pruned.curve],
    }


def _regimes(lines: Sequence[Document]) -> list[Document]:
    names = dict.fromkeys(x["regime"] for x in lines)
    result = []
    for name in names:
        mine = [x for x in lines if x["regime"] == name]
        shares = [x["roofline"] for x in mine if x["roofline"]]
        limits = Counter(x["bottleneck"] for x in mine if x["bottleneck"])
        result.append(
            {
                "regime": name,
                "served": sum(x["served"] for x in mine),
                "hot": _speedups(mine, "hot"),
                "cold": _speedups(mine, "cold"),
                "pack": geometric_mean([x["hot"] if x["served"] else 1.0 for x in mine]),
                "roofline": median(shares) if shares else None,
                "bottlenecks": dict(limits.most_common()),
            }
        )
    return result


def _counts(found: Findings, lines: Sequence[Document]) -> Document:
    return {
        "problems": len({a.problem for a in found.attempts} | {f.problem for f in found.fields}),
        "judged": len(lines),
        "confirmed": sum(x["evidence"] == "confirm" for x in lines),
        "attempts": len(found.attempts),
        "compiled": sum(a.status not in UNBUILT for a in found.attempts),
        "kernels": len({a.kernel for a in found.attempts if a.kernel}),
        "proven": len(found.proofs),
        "refused": len(found.refused),
        "noise_jobs": len(found.noise),
    }


def _list_missing(found: Findings, document: Document) -> list[str]:
    """What the store does not hold yet, or holds and does not count, in words."""
    stages = {each.stage for each in found.fields}
    waiting = document["counts"]["problems"] - document["counts"]["judged"]
    device = found.device
    checks = {
        "no attempt was screened: there is no search to report": not found.attempts,
        "no finals: no speed-up against a baseline is known": "finals" not in stages,
        "no confirmation: nothing can enter a table": "confirm" not in stages,
        "no noise job: without a noise floor no win is proven": not found.noise,
        "no kernel has passed the full numeric gate": not found.proofs,
        "no measured ceilings: no roofline shares, no bottlenecks": not (
            device.peak_tflops > 0 and device.peak_gbps > 0
        ),
        f"{waiting} problems were screened and wait for their finals": waiting > 0,
        f"{found.left_out} jobs of another device or other library versions are left out": (
            found.left_out > 0
        ),
    }
    return [text for text, absent in checks.items() if absent]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
