"""The report as one HTML file that needs no other: figures inline, no script, no network.

Called by `report.write` with the JSON document. Every text that comes from a store is escaped; a
part without data says so and is otherwise left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from html import escape
from typing import Any

from hgemm_packs.generator.report import html, plots
from hgemm_packs.generator.report.bottleneck import KINDS
from hgemm_packs.generator.report.modes_page import modes
from hgemm_packs.generator.tables import judge

Document = Mapping[str, Any]

BOTH = "the better of torch and cuBLASLt"
LCB = (
    "lower confidence bound: the low end of the 95% confidence interval of a speed-up, so that a "
    "win is no luck of one measurement"
)


def page(document: Document) -> str:
    """The whole file."""
    device = document["device"]
    title = f"Kernel search on {device['name']}"
    body = "\n".join(filter(None, (part(document) for part in PARTS)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{html.STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _head(document: Document) -> str:
    pack, hot, counts = document["pack"], document["speedups"]["hot"], document["counts"]
    baseline = _baseline(document)
    cards = [
        (str(counts["judged"]), "problems judged"),
        (str(pack["wins"]), f"confirmed wins with {pack['kernels']} kernels"),
        (html.times(pack["hot"]["wins"]), f"{baseline}: geometric mean over the wins, hot"),
        (html.times(pack["hot"]["all"]), "over all problems, losers on torch"),
    ]
    if "vs_best" in pack:
        cards += [
            (html.times(pack["vs_best"]["wins"]), f"{BOTH}, over the wins"),
            (html.times(pack["vs_best"]["all"]), "over all problems, losers on torch"),
        ]
    cards += [
        (html.times(hot["worst"]), "worst problem before fallback"),
        (html.number(document["cost"]["gpu_seconds"], 0, " s"), "GPU time"),
    ]
    shown = "".join(f"<div><b>{value}</b>{escape(name)}</div>" for value, name in cards)
    missing = "".join(f"<li>{escape(text)}</li>" for text in document["missing"])
    note = f'<div class="missing">Not in this store yet:<ul>{missing}</ul></div>' if missing else ""
    return (
        f'<p class="quiet">{escape(_describe_machine(document))}</p>'
        f"<p>Which kernels were found, how much faster they are than {baseline}, which runs where "
        "no kernel does, and what finding them cost. A speed-up of 1.10 means 10% more products in "
        "the same time; a problem is one matrix size, layout and element type.</p>"
        f'<div class="figures">{shown}</div>{note}{_older_rule(document)}'
    )


def _describe_machine(document: Document) -> str:
    """Where and when the figures were measured."""
    started = sorted(run["started"] for run in document["runs"] if "started" in run)
    days = [datetime.fromtimestamp(at, timezone.utc).date().isoformat() for at in started]
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "on an unknown day"
    return f"Measured on {document['device']['name']}, {when}."


def _baseline(document: Document) -> str:
    """What speed-ups are over: torch, but the better library in documents of an older rule."""
    return "torch" if "vs_best" in document["pack"] else BOTH


def _older_rule(document: Document) -> str:
    """A word where the document was made when a win was another thing."""
    if document["rule"] == judge.RULE:
        return ""
    return (
        '<div class="missing">This run was judged by an older rule. A win was: '
        f"{escape(document['rule'])}. Today a win is: {escape(judge.RULE)}.</div>"
    )


def _speedups(document: Document) -> str:
    rows = []
    for name, found in document["speedups"].items():
        wins = (f"{html.share(share)}" for share in found["win"].values())
        means = ("geometric_mean", "median", "worst", "flop_weighted", "value")
        rows.append(
            [
                f"{name} caches",
                str(found["measured"]),
                *(html.times(found[m]) for m in means),
                *wins,
            ]
        )
    heads = ["", "problems", "geometric mean", "median", "worst", "FLOP-weighted", "pack value"]
    bars = next(iter(document["speedups"].values()))["win"]
    table = html.table(heads + [f"&gt; {bar}&times;" for bar in bars], rows)
    return (
        "<h2>Speed-up over problems</h2>"
        "<p>The best correct kernel of each problem, before any fallback. Pack value is the "
        "geometric mean when every problem that is not faster stays on the baseline; the last "
        "columns are win@p, the share of all problems faster than p.</p>"
        + table
        + html.figure(
            document,
            plots.speedup_scatter,
            "How to read: each dot is a problem, small products on the left; above the line our "
            f"best kernel is faster than {_baseline(document)}, and only coloured dots are used.",
        )
        + html.figure(
            document,
            plots.speedup_histogram,
            "How to read: bars right of the line are problems with a faster kernel; those left of "
            "it go to cuBLAS and cost nothing.",
        )
        + html.figure(
            document,
            plots.win_curve,
            "How to read: the height at p = 1.1 is the share of problems that are more than 10% "
            "faster; problems without a correct kernel count as losses.",
        )
    )


def _regimes(document: Document) -> str:
    rows = []
    for x in document["regimes"]:
        limits = ", ".join(f"{escape(name)} {n}" for name, n in x["bottlenecks"].items())
        rows.append(
            [
                escape(x["regime"]),
                str(x["hot"]["problems"]),
                str(x["served"]),
                *(html.times(x["hot"][m]) for m in ("geometric_mean", "median", "worst")),
                html.times(x["cold"]["geometric_mean"]),
                html.times(x["pack"]),
                html.share(x["roofline"]),
                limits or "&ndash;",
            ]
        )
    heads = ["regime", "problems", "wins", "geometric mean hot", "median", "worst"]
    heads += ["geometric mean cold", "with fallback", "of roofline, cold", "limited by"]
    kinds = "; ".join(f"<b>{escape(name)}</b>: {escape(text)}" for name, text in KINDS.items())
    return (
        "<h2>By regime</h2>"
        + html.table(heads, rows, texts=(9,))
        + f'<p class="quiet">Limited by, an estimate from the time with cold caches: {kinds}.</p>'
    )


def _worst(document: Document) -> str:
    older = _baseline(document) != "torch"
    times = ("us", "baseline_us") if older else ("us", "torch_us", "cublaslt_us")
    rows = [
        [
            escape(x["problem"]),
            html.times(x["hot"]),
            html.times(x["cold"]),
            html.times(x.get("vs_best")),
            *(html.number(x[name], 2) for name in times),
            escape(x["bottleneck"] or "unknown"),
            "kernel" if x["served"] else "cuBLAS",
            escape(x["kernel"]),
        ]
        for x in document["worst"]
    ]
    heads = ["problem", "hot", "cold", "hot vs best", "ours, us"]
    heads += ["the better library, us"] if older else ["torch, us", "cuBLASLt, us"]
    heads += ["limited by", "served by", "kernel"]
    first = len(heads) - 3
    return (
        "<h2>Worst cases</h2><p>The problems on which the best kernel found is furthest behind. "
        "None of them slows a user down: what did not win goes to cuBLAS.</p>"
        + html.table(heads, rows, texts=(first, first + 1, first + 2))
    )


def _search(document: Document) -> str:
    found, cost = document["search"], document["cost"]
    at_k = [
        [
            str(x["k"]),
            str(x["problems"]),
            html.share(x["compile"]),
            html.share(x["pass"]),
            html.times(x["speedup"]),
            html.share(x["efficiency"]),
        ]
        for x in document["at_k"]
    ]
    near = [
        [
            "whole search" if name == "all" else escape(name),
            html.share(regret),
            html.number(found["budget_to_near"][name], 1, " s"),
        ]
        for name, regret in found["final"].items()
    ]
    kinds = [[escape(name), html.number(s, 1, " s")] for name, s in cost["by_kind"].items()]
    kinds += [
        ["per accepted kernel", html.number(cost["per_kernel"], 2, " s")],
        ["per confirmed win", html.number(cost["per_win"], 2, " s")],
        ["hack rate", f"{html.share(cost['hack_rate'])} ({cost['hacks']})"],
    ]
    for one in cost.get("busy", ())[-1:]:
        shares = (html.share(one[name]) for name in ("compilers", "gpus", "both"))
        kinds.append(["last call: compilers, GPUs, both at work", ", ".join(shares)])
    return (
        "<h2>Search</h2><p>If k of a problem's proposals are drawn at random: the chance that one "
        "compiles (compile@k) or is correct (pass@k), and the expected best speed-up and share of "
        "the arithmetic ceiling, failures counted as 0. From screened times, hot.</p>"
        + html.table(["k", "problems", "compile@k", "pass@k", "speedup@k", "efficiency@k"], at_k)
        + html.figure(
            document,
            plots.regret_curves,
            "How to read: a line at 10% means that the best kernel so far reaches 90% of the best "
            "known speed, averaged over problems; each proposer is drawn against what its own "
            "attempts cost, though all learn from each other.",
        )
        + html.table(["", "regret at the end", f"budget to {html.share(found['near'])}"], near)
        + html.figure(
            document,
            plots.operator_bars,
            "How to read: of the attempts that an operator made on a problem that already had a "
            "kernel, the share that was faster than all before.",
        )
        + "<h3>Cost in GPU time</h3>"
        + html.table(["", ""], kinds)
    )


def _statuses(document: Document) -> str:
    found = document["statuses"]
    names = list(found.get("all", {}))
    rows = [
        [escape(proposer), *(str(counts.get(name, 0)) for name in names)]
        for proposer, counts in found.items()
    ]
    return (
        "<h2>What became of the attempts</h2><p>OK met no gate that refused it; the others are "
        "named by the gate that did.</p>" + html.table(["proposer", *map(escape, names)], rows)
    )


def _prune(document: Document) -> str:
    found = document["prune"]
    return (
        "<h2>How many kernels are needed</h2>"
        f"<p>{found['kernels']} of {found['of']} kernels keep {html.share(found['share'])} of the "
        f"mean log gain by the finals, {html.share(found['confirmed_share'])} by the confirmation. "
        "A problem that loses its kernel goes to its next proven one in the set, or to cuBLAS.</p>"
        + html.figure(
            document,
            plots.prune_curve,
            "How to read: kernels are added in the order of what they add; the dot is the smallest "
            "set found that reaches the line.",
        )
    )


def _conditions(document: Document) -> str:
    device, counts = document["device"], document["counts"]
    facts = [
        ("device", f"{device['name']}, {device['arch']}, {device['sm_count']} SMs"),
        ("ceilings", f"{device['peak_tflops']:.0f} TFLOP/s, {device['peak_gbps']:.0f} GB/s"),
        *device["versions"].items(),
        ("protocol", document["protocol"]),
        ("a win is", document["rule"]),
        ("lcb", LCB),
        (
            "noise floor",
            "not measured"
            if document["noise_floor"] is None
            else f"{document['noise_floor']:.4f}, 99th percentile of {counts['noise_jobs']} "
            "measurements of torch against itself",
        ),
        ("attempts", f"{counts['attempts']}, {counts['compiled']} compiled"),
        ("numeric gate", f"{counts['proven']} kernels passed, {counts['refused']} refused"),
        *((f"run {i + 1}", _run(run)) for i, run in enumerate(document["runs"])),
    ]
    rows = [[escape(name), escape(text)] for name, text in facts]
    return (
        "<h2>Conditions</h2><p>Kernels are chosen by one measurement and published from a second, "
        "in a fresh process with new inputs; both sides run interleaved on the same buffers. Wins "
        "are confirmed; problems that did not look like wins are quoted from their finals.</p>"
        + html.table(["", ""], rows, texts=(1,))
    )


def _run(run: Document) -> str:
    """A call of the generator in a line: what was asked for, not what it was built with."""
    flat = {**run, **(run["budget"] if isinstance(run.get("budget"), Mapping) else {})}
    shown = {k: v for k, v in flat.items() if k not in ("id", "started") and not _is_nested(v)}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list))


PARTS = (_head, _speedups, _regimes, _worst, _prune, _search, modes, _statuses, _conditions)
