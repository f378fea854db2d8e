"""docs/h200.md, its figures and its plots: the H200's table by regime, shape and bottleneck.

    python -m benchmarks.publish.h200_page

reads the committed table, the exports of the runs that it was made from (results/confirmations/,
where there are some) and summary.json. What takes long to compute goes to results/report_h200.json
first, so that page and plots follow from small files. It measures nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from benchmarks import folders
from benchmarks.publish import h200_plots, protocol_texts, readme, summary
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.core.problems import REGIMES, regime
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.report.bottleneck import bottleneck
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.analytic.model import BOTTLENECKS
from hgemm_packs.generator.search.analytic.roofline import terms
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables import judge, published, speedups, sustained
from hgemm_packs.generator.tables.judge import Contender
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem

RESULTS = summary.RESULTS
MEASURED = RESULTS / folders.CONFIRMATIONS
REPORT = RESULTS / "report_h200.json"
PAGE = summary.REPOSITORY / "docs" / "h200.md"
LISTED = 15

Document = dict[str, Any]


def floor_us(m: int, n: int, k: int) -> float:
    """What no kernel here is expected to beat: 720 TFLOP/s or 4.1 TB/s, 5.5 where all operands stay
    in L2, and 1.2 us of launch. An estimate, to see where time is; never the side of a claim."""
    moved = 2 * (m * k + k * n + m * n)
    return max(2 * m * n * k / 720e6, moved / (5.5e6 if moved < 40e6 else 4.1e6)) + 1.2


def floor_binds(m: int, n: int, k: int) -> str:
    """The largest part of the floor."""
    parts = {"launch": 1.2, "tensor": 2 * m * n * k / 720e6}
    parts["bandwidth"] = floor_us(m, n, k) - 1.2 if parts["tensor"] < floor_us(m, n, k) - 1.2 else 0
    return max(parts, key=lambda name: parts[name])


def over_floor(source: SourceManifest) -> Document:
    """By type and layout of the grid, per regime: torch and `matmul` over the floor, hot."""
    found: Document = {}
    for name, dtype, layout in speedups.SETS:
        rows = speedups.select_set_rows(source.table, name, dtype, layout) if name == "grid" else []
        groups: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            torch = row.hot.torch_us / floor_us(*row[:3])
            pair = (torch, torch / speedups.plain(row).hot)
            for one in (regime(*row[:3]), "all"):
                groups.setdefault(one, []).append(pair)
        if rows:
            found[f"{dtype} {layout}"] = {
                one: [round(geometric_mean(side), 4) for side in zip(*groups[one], strict=True)]
                for one in (*REGIMES, "all")
                if one in groups
            }
    return found


def reason(
    problem: Problem, fields: Mapping[str, Any] | None, cold_us: float, found: Findings | None
) -> str:
    """What bounds a kernel on a problem: by the model of its family, else by a rough account of its
    time, else the largest part of the floor."""
    if fields is None or found is None:
        return f"{floor_binds(problem.m, problem.n, problem.k)} (of the floor)"
    try:
        estimate = terms(Table([Choice.of(fields["family"], fields["genome"])]), problem)
        return BOTTLENECKS[int(estimate.bottleneck()[0])]
    except KeyError:
        return bottleneck(problem, fields, cold_us, found.device)


def _list_rows(
    rows: Iterable[Row], best: Mapping[Problem, Contender], found: Findings | None
) -> list[Document]:
    lines = []
    for row in rows:
        problem = Problem(*row.key)
        contender = best.get(problem)
        fields = found.kernels.get(contender.kernel) if found and contender else None
        floor = floor_us(*row[:3])
        lines.append(
            {
                "problem": str(problem),
                "regime": regime(*row[:3]),
                "hot": row.hot.speedup,
                "cold": row.cold.speedup,
                "torch_over_floor": round(row.hot.torch_us / floor, 4),
                "ours_over_floor": round(row.hot.us / floor, 4),
                "kernel": fields["name"] if fields else None,
                "bound": reason(problem, fields, row.cold.us, found),
            }
        )
    return lines


def compute_pruning(
    source: SourceManifest, listed: Mapping[Problem, Sequence[Contender]]
) -> Document | None:
    """Kernels against the geometric mean over all problems, hot and cold, that the finals let
    expect of them launched plainly; `chosen` is the set that the table names for that, `others` how
    many more it names for dependent launch alone."""
    gains = {p: {c.kernel: c.gain for c in each if c.proven} for p, each in listed.items()}
    if not gains:
        return None
    every = prune(gains, 1.0)
    kept = {row.kernel for row in source.table if row.kernel is not None}
    logs = [
        math.log(max([1.0, *(gain for kernel, gain in each.items() if kernel in kept)]))
        for each in gains.values()
    ]
    full = math.log(every.full_value)
    kinds: dict[str, int] = {}
    for kernel in source.kernels:
        if kernel.id in kept:
            kind = f"{kernel.genome['dtype']} {kernel.genome['layout']}"
            kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "problems": len(gains),
        "curve": [[count, round(math.exp(share * full), 6)] for count, share in every.curve],
        "chosen": [len(kept), round(math.exp(math.fsum(logs) / len(logs)), 6)],
        "share": round(math.fsum(logs) / len(logs) / full, 6) if full else 1.0,
        "of": len(every.kernels),
        "kinds": dict(sorted(kinds.items())),
        "others": len(source.kernels) - len(kept),
    }


def contenders(found: Findings, source: SourceManifest) -> dict[Problem, list[Contender]]:
    """As the table was made of them: large problems by sustained times, where there are any."""
    listed = judge.contenders(found, judge.floors(found))
    names = {id_: str(fields["name"]) for id_, fields in found.kernels.items()}
    return sustained.rank_sustained(listed, summary.energy_lines(), names)


def document(source: SourceManifest, found: Findings | None) -> Document:
    """All that page and plots need beside table and summary."""
    listed = contenders(found, source) if found else {}
    best = {problem: each[0] for problem, each in listed.items()}
    left = [row for row in source.table if row.kernel is None]
    behind = sorted(left, key=lambda row: (row.hot.speedup, row.key))[:LISTED]
    missed = sorted(left, key=lambda row: (-row.hot.torch_us / floor_us(*row[:3]), row.key))
    return {
        "over_floor": over_floor(source),
        "behind": _list_rows(behind, best, found),
        "missed": _list_rows(missed[:LISTED], best, found),
        "prune": compute_pruning(source, listed) if found else None,
        "trials": trials(found) if found else None,
        "left": len(left),
        "ahead_but_unproven": sum(min(row.hot.speedup, row.cold.speedup) > 1.0 for row in left),
        "median_behind": round(median(row.hot.speedup for row in left), 4) if left else None,
    }


def trials(found: Findings) -> Document:
    """Of torch against itself, in blocks that were led and in others: how many, and their floor."""
    counts = Counter(map(judge.is_led, found.trials))
    return {
        "led" if led else "others": {"count": counts[led], "floor": floor}
        for led, floor in sorted(judge.floors(found).items(), reverse=True)
    }


def regimes(facts: Document) -> str:
    return readme.regimes(facts)


def floors(facts: Document) -> str:
    found = facts["report"]["over_floor"]
    rows = [
        [one, *(f"{torch:.2f} / {ours:.2f}" for torch, ours in (each[one] for each in pairs))]
        for pairs in [list(found.values())]
        for one in pairs[0]
    ]
    return protocol_texts.markdown(("over the floor: torch / matmul", *found), rows)


def _cases(lines: Sequence[Document]) -> str:
    heads = ("problem", "regime", "best kernel over torch, hot", "cold", "torch over floor")
    rows = [
        [
            line["problem"],
            line["regime"],
            *(f"{line[name]:.3f}" for name in ("hot", "cold")),
            f"{line['torch_over_floor']:.2f}",
            f"{line['ours_over_floor']:.2f}",
            line["bound"],
            f"`{line['kernel']}`" if line["kernel"] else "-",
        ]
        for line in lines
    ]
    return protocol_texts.markdown((*heads, "kernel over floor", "bound by", "kernel"), rows)


def list_behind(facts: Document) -> str:
    report = facts["report"]
    held = ", ".join(
        f"{100 * each['floor']:.1f}% in {name if name == 'others' else 'led blocks'} "
        f"({each['count']} trials)"
        for name, each in (report["trials"] or {}).items()
    )
    floors = f"Noise floors, by torch against itself: {held}.\n\n" if held else ""
    return (
        f"{floors}{report['left']} problems are left to torch. "
        f"On {report['ahead_but_unproven']} of them "
        "the best kernel was ahead hot and cold by medians, without a confirmation above the noise "
        f"floor; over all, the median of the best kernels is {report['median_behind']:.3f}x torch."
        "\n\n" + _cases(report["behind"])
    )


def list_missed(facts: Document) -> str:
    return _cases(facts["report"]["missed"])


def shapes(facts: Document) -> str:
    lines = []
    for dtype, layouts in sorted(facts["grid"].items(), reverse=True):
        for layout, found in sorted(layouts.items()):
            for suffix in ("", "-pdl") if found["called"] else ("",):
                name = f"heat-{dtype}-{layout}{suffix}"
                lines.append(f"![{name}](../benchmarks/results/plots/{name}.png)\n")
    return "\n".join(lines)


def describe_pruning(facts: Document) -> str:
    found = facts["report"]["prune"]
    if found is None:
        return "The runs that this table was made from are not exported: no curve.\n"
    count, value = found["chosen"]
    kinds = ", ".join(f"{n} {kind}" for kind, n in found["kinds"].items())
    return (
        f"For ordinary launches the table names {count} kernels ({kinds}) of the {found['of']} "
        f"that all of the log gain takes, and keeps {100 * found['share']:.1f}% of it: "
        f"{value:.4f}x of {found['curve'][-1][1]:.4f}x over {found['problems']} problems, hot and "
        f"cold, by the finals. {found['others']} more are for dependent launch alone.\n\n"
        "![kernels against gain](../benchmarks/results/plots/prune.png)\n"
    )


def _plot(name: str, facts: Document) -> str:
    if facts[name]["groups"] is None:
        return ""
    return f"\n![{name}](../benchmarks/results/plots/{name}.png)\n"


def describe_chains(facts: Document) -> str:
    return protocol_texts.describe_chains(facts) + _plot("chained", facts)


def energy(facts: Document) -> str:
    return protocol_texts.energy(facts) + _plot("energy", facts)


BLOCKS = {
    "regimes": regimes,
    "dependent": protocol_texts.describe_dependent,
    "chained": describe_chains,
    "energy": energy,
    "protocol": readme.protocol,
    "floors": floors,
    "shapes": shapes,
    "behind": list_behind,
    "missed": list_missed,
    "pruned": describe_pruning,
}


def text() -> str:
    """What docs/h200.md must say."""
    facts = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
    page = PAGE.read_text(encoding="utf-8")
    return readme.render(page, {**facts["summary"], "report": facts["report"]}, BLOCKS)


FILES = {"summary": summary.SUMMARY, "report": REPORT}


def main() -> int:
    import torch

    torch.set_num_threads(1)  # thousands of small bootstraps
    source = read_source(summary.MANIFEST)
    found = export.load(MEASURED) if MEASURED.is_dir() else None
    made = document(source, found)
    REPORT.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(summary.REPOSITORY)} and {REPORT.name}")
    chains = speedups.chains(source, summary.chain_records())
    plots, protocols = RESULTS / "plots", summary.protocol_files()
    products = published.select_products(source.table)
    served = {row.key[:5] for row in products if row.kernel is not None}
    drawn = h200_plots.draw(source, chains, made, floor_us, plots)
    for path in (*drawn, *h200_plots.draw_protocols(protocols, served, plots)):
        print(f"wrote {path.relative_to(summary.REPOSITORY)}, {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
