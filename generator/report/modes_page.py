"""The part of the report's page that compares modes of search.

Called by `page`. Documents of earlier reports have no modes, and the part is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from hgemm_packs.generator.report import html
from hgemm_packs.generator.report.modes import GENOME, MIXED, MODEL, POLICY

Document = Mapping[str, Any]

TITLES = {
    GENOME: "genome search",
    POLICY: "learned policy",
    MODEL: "language model",
    MIXED: "mixed",
}


def modes(document: Document) -> str:
    """Figures of each mode, and its curves over k."""
    found = document.get("modes")
    if not found:
        return ""
    bars = list(found[0]["win"])
    rows = [
        [
            escape(TITLES[x["mode"]]),
            escape(", ".join(x["proposers"])),
            str(x["problems"]),
            str(x["proposals"]),
            *(html.share(x["fast"][bar]) for bar in bars),
            *(html.share(x["win"][bar]) for bar in bars),
            str(x["accepted"]),
            html.number(x["per_accepted"], 2, " s"),
            html.number(x.get("tokens_per_accepted"), 0),
            f"{html.share(x['hack_rate'])} ({x['hacks']})",
        ]
        for x in found
    ]
    heads = ["", "proposers", "problems", "proposals"]
    heads += [f"fast_{bar}" for bar in bars] + [f"win@{bar}" for bar in bars]
    heads += ["accepted", "GPU time each", "tokens each", "hack rate"]
    at_k = [
        [
            escape(TITLES[x["mode"]]),
            str(each["k"]),
            str(each["problems"]),
            html.share(each["compile"]),
            html.share(each["pass"]),
            html.times(each["speedup"]),
            html.share(each["efficiency"]),
        ]
        for x in found
        for each in x["at_k"]
    ]
    heads_at_k = ["", "k", "problems", "compile@k", "pass@k", "speedup@k", "efficiency@k"]
    several = html.table(heads_at_k, at_k) if len(found) > 1 else ""  # one mode is the whole search
    return (
        "<h2>By mode</h2><p>A mode is who proposed; a kernel that two proposed counts for the "
        "first. fast_p is the chance that one proposal of a problem is correct and more than p "
        "times as fast as torch, win@p the share of problems where the best of all proposals is. "
        "Accepted kernels are those of the table; their GPU time is that of screening all "
        "proposals of the mode. Hacks are proposals that a gate caught cheating. All but the last "
        "four from screened times, before any confirmation.</p>"
        + html.table(heads, rows, texts=(1,))
        + several
    )
