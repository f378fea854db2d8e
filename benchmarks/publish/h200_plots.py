"""The plots of docs/h200.md: heat maps by shape, speed-up against work, kernels against gain.

Called by h200_page.py, with what it read and computed. PNGs, the same bytes for the same data and
the same matplotlib; nothing is computed here that decides a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import colors, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.report.plots import ACCENT, INK, MUTED, SECOND, STYLE
from hgemm_packs.generator.tables import speedups
from hgemm_packs.generator.tables.speedups import RowSpeedup, Shape
from hgemm_packs.pack.manifest import Row

#: What the line is called on which a problem gains as much by one measure as by the other.
SAME = "the same gain"
#: A cell of this speed-up or more has the deepest colour.
DEEPEST = 2.0
DPI = 110

Floor = Callable[[int, int, int], float]
Chains = Mapping[tuple[Any, ...], RowSpeedup]


def draw(
    source: SourceManifest, chains: Chains, report: Mapping[str, Any], floor: Floor, out: Path
) -> Iterator[Path]:
    """Write every plot into `out`; yields their paths."""
    out.mkdir(parents=True, exist_ok=True)
    for name, dtype, layout in speedups.SETS:
        rows = speedups.select_set_rows(source.table, name, dtype, layout)
        if rows and name == "grid":
            title = f"best kernel over torch, {dtype} {layout}, hot caches"
            cells = {row[:3]: row.hot.speedup for row in rows}
            left = {row[:3] for row in rows if row.kernel is None}
            yield _save(out / f"heat-{dtype}-{layout}.png", heat(cells, left, title))
            pdl = {row[:3]: chains[row[:5]].hot for row in rows if row[:5] in chains}
            if pdl:
                whole = {shape: pdl.get(shape, value) for shape, value in cells.items()}
                chained = _save(
                    out / f"heat-{dtype}-{layout}-pdl.png",
                    heat(whole, left, f"{title}, programmatic dependent launch"),
                )
                yield chained
    for name in ("grid", "llm"):
        sets = {
            f"{dtype} {layout}": speedups.select_set_rows(source.table, name, dtype, layout)
            for each, dtype, layout in speedups.SETS
            if each == name
        }
        sets = {title: rows for title, rows in sets.items() if rows}
        if sets:
            yield _save(out / f"work-{name}.png", work(sets, floor))
    if report["prune"] is not None:
        yield _save(out / "prune.png", prune(report["prune"]))


def draw_protocols(
    found: Mapping[str, Mapping[str, Any]], served: Container[tuple[Any, ...]], out: Path
) -> Iterator[Path]:
    """The plots of chained.json and energy.json, as far as those were measured; `served` are the
    problems that the table has a kernel for."""
    out.mkdir(parents=True, exist_ok=True)
    if found["chained"]["groups"] is not None:
        yield _save(out / "chained.png", plot_chains(found["chained"]["problems"]))
    if found["energy"]["groups"] is not None:
        yield _save(out / "energy.png", energy(found["energy"]["problems"], served))


def plot_chains(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Each problem's gain alone against what of it a chain of layers has."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, state in zip(panels, ("hot", "cold"), strict=True):
            for arm, colour, label in (
                ("plain", MUTED, "ordinary launches"),
                ("pdl", ACCENT, "dependent launch"),
            ):
                pairs = [(line[arm][state], line[arm]["product"]) for line in lines]
                _against(panel, pairs, colour, label)
            panel.set_xlabel(f"speed-up over torch, product alone, {state} caches")
            panel.set_ylabel("speed-up over torch, product in a chain")
            panel.legend(loc="lower right", fontsize=7)
    return figure


def energy(lines: Sequence[Mapping[str, Any]], served: Container[tuple[Any, ...]]) -> Figure:
    """Each large problem's speed-up in bursts against that for long, and against work per joule:
    apart those that the table leaves to torch, as it does where torch outlasts every kernel."""
    tried = [line for line in lines if line["kernels"]]
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, name, label in zip(
            panels,
            ("sustained_vs_torch", "per_watt_vs_torch"),
            ("speed-up over torch for long", "TFLOPS per watt, ours over torch's"),
            strict=True,
        ):
            for used, colour, words in (
                (False, MUTED, "torch runs"),
                (True, ACCENT, "in the table"),
            ):
                pairs = [
                    (line["burst_vs_torch"], line[name])
                    for line in tried
                    if name in line and (tuple(line["problem"]) in served) is used
                ]
                if pairs:
                    _against(panel, pairs, colour, f"{words} ({len(pairs)})")
            panel.set_xlabel("speed-up over torch in bursts")
            panel.set_ylabel(label)
            panel.legend(loc="lower right", fontsize=7)
    return figure


def _against(
    panel: Axes, pairs: Sequence[tuple[float, float]], colour: str, label: str | None = None
) -> None:
    """Dots, with the line on which both figures are the same, which is named once a panel."""
    panel.scatter(*zip(*pairs, strict=True), s=8, color=colour, linewidths=0, label=label)
    same = None if any(line.get_label() == SAME for line in panel.lines) else SAME
    panel.axline((1.0, 1.0), slope=1.0, color=INK, linewidth=0.8, label=same)
    panel.axhline(1.0, color=MUTED, linewidth=0.6, linestyle="--")


def _save(path: Path, figure: Figure) -> Path:
    with rc_context(STYLE):
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return path


def heat(cells: Mapping[Shape, float], left: set[Shape], title: str) -> Figure:
    """Speed-ups over (M, N), a panel for each K; a dot where torch runs."""
    ms, ns, ks = (sorted({shape[axis] for shape in cells}) for axis in range(3))
    scale = colors.TwoSlopeNorm(0.0, -math.log(DEEPEST), math.log(DEEPEST))
    with rc_context({**STYLE, "axes.grid": False, "font.size": 7}):
        columns = min(5, len(ks))
        figure = Figure(
            figsize=(2.3 * columns + 0.8, 2.4 * math.ceil(len(ks) / columns) + 0.4),
            layout="constrained",
        )
        panels = figure.subplots(math.ceil(len(ks) / columns), columns, squeeze=False)
        for panel in panels.flat[len(ks) :]:
            panel.set_axis_off()
        for k, panel in zip(ks, panels.flat, strict=False):
            values = [[math.log(cells.get((m, n, k), math.nan)) for n in ns] for m in ms]
            image = panel.imshow(values, cmap=_make_diverging_map(), norm=scale, origin="lower")
            dots = [(ns.index(shape[1]), ms.index(shape[0])) for shape in left if shape[2] == k]
            if dots:
                panel.scatter(*zip(*sorted(dots), strict=True), s=1.5, color=INK, linewidths=0)
            panel.set_title(f"K = {k}")
            panel.set_xticks(range(len(ns)), [str(n) for n in ns], rotation=90)
            panel.set_yticks(range(len(ms)), [str(m) for m in ms])
            panel.set_xlabel("N")
            panel.set_ylabel("M")
        ticks = [1 / DEEPEST, 0.8, 1.0, 1.25, 1.5, DEEPEST]
        bar = figure.colorbar(
            image, ax=panels, shrink=0.7, extend="both", ticks=[math.log(t) for t in ticks]
        )
        bar.ax.set_yticklabels([f"{t:g}x" for t in ticks])
        bar.set_label("speed-up over torch")
        figure.suptitle(f"{title} (a dot: torch runs)")
    return figure


def _make_diverging_map() -> colors.Colormap:
    """Orange where torch is faster, violet where we are: apart for colour-blind readers."""
    return matplotlib.colormaps["PuOr"].resampled(256)


def work(sets: Mapping[str, Sequence[Row]], floor: Floor) -> Figure:
    """Speed-up of each problem against its operations, with what the floor would allow."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.1 * math.ceil(len(sets) / 2)), layout="constrained")
        panels = figure.subplots(math.ceil(len(sets) / 2), min(2, len(sets)), squeeze=False)
        for (title, rows), panel in zip(sets.items(), panels.flat, strict=False):
            _work(panel, title, rows, floor)
    return figure


def _work(panel: Axes, title: str, rows: Sequence[Row], floor: Floor) -> None:
    def dots(some: Sequence[Row], value: Callable[[Row], float], colour: str, label: str) -> None:
        flops = [2.0 * row.m * row.n * row.k for row in some]
        values = [value(row) for row in some]
        panel.scatter(flops, values, s=5, color=colour, alpha=0.6, linewidths=0, label=label)

    served = [row for row in rows if row.kernel]
    left = [row for row in rows if not row.kernel]
    dots(rows, lambda row: row.hot.torch_us / floor(*row[:3]), MUTED, "the floor (an estimate)")
    dots(left, lambda row: row.hot.speedup, SECOND, f"best kernel, torch runs ({len(left)})")
    dots(served, lambda row: row.hot.speedup, ACCENT, f"in the table ({len(served)})")
    panel.axhline(1.0, color=INK, linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log", base=2)
    panel.set_ylim(0.4, 5)
    panel.set_yticks([0.5, 0.75, 1, 1.5, 2, 3, 4], ["0.5", "0.75", "1", "1.5", "2", "3", "4"])
    panel.set_title(title)
    panel.set_xlabel("floating-point operations")
    panel.set_ylabel("speed-up over torch, hot caches")
    panel.legend(loc="upper right", fontsize=7)


def prune(found: Mapping[str, Any]) -> Figure:
    """Kernels kept against the geometric mean that they keep; the table's own set is marked."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        panel = figure.subplots()
        counts, values = zip(*found["curve"], strict=True)
        panel.plot(counts, values, color=ACCENT, label="kernels in the order of what they add")
        count, value = found["chosen"]
        label = f"the table: {count} kernels, {value:.4f}x"
        panel.plot([count], [value], "o", color=SECOND, label=label)
        panel.axhline(values[-1], color=MUTED, linewidth=0.8, linestyle="--")
        panel.set_xlim(0, None)
        panel.set_xlabel("kernels kept, of all layouts and types")
        panel.set_ylabel("speed-up over torch, geometric mean")
        panel.legend(loc="lower right")
    return figure
