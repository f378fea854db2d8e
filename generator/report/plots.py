"""The report's figures as SVG text, drawn from its JSON document.

Called by the page, one function a figure; a figure without data is None. Nothing is computed here
that the document does not already say.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, ACCENT, SECOND, RULE = "#1f2933", "#9aa5b1", "#0b6e99", "#c2703d", "#e4e7eb"
#: Lines of one figure, told apart in grey print too.
LINES = (
    (ACCENT, "-"),
    (SECOND, "--"),
    ("#5b8c5a", "-."),
    ("#7d5ba6", ":"),
    ("#b5a642", "-"),
    (MUTED, "--"),
)
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "hgemm-packs",  # the same document draws the same bytes
}
SIZE = (7.2, 3.4)  # inches

Document = Mapping[str, Any]


def _figure(draw: Callable[[Axes], None], height: float = SIZE[1]) -> str:
    """SVG text of one set of axes. A Figure of its own: pyplot's global state is not touched."""
    from matplotlib import rc_context  # not before: a search would wait for it
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], height), layout="constrained")
        draw(figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", dpi=150, metadata={"Date": None})
    return text.getvalue()


def _text(name: str) -> str:
    """Text of the store as a label: matplotlib would set dollars as mathematics."""
    return name.replace("$", r"\$")


def speedup_scatter(document: Document) -> str | None:
    """Speed-up of each problem against its size."""
    lines = [x for x in document["problems"] if x["hot"]]
    if not lines:
        return None

    def draw(ax: Axes) -> None:
        for served, colour, label in (
            (False, MUTED, "left to cuBLAS"),
            (True, ACCENT, "confirmed win, in the table"),
        ):
            mine = [x for x in lines if x["served"] is served]
            ax.scatter(
                [x["flops"] for x in mine],
                [x["hot"] for x in mine],
                s=9,
                color=colour,
                alpha=0.6,
                linewidths=0,
                label=f"{label} ({len(mine)})",
                rasterized=True,  # thousands of points as SVG would be megabytes
            )
        ax.axhline(1.0, color=INK, linewidth=0.8)
        ax.set_xscale("log")
        ax.set_xlabel("floating-point operations of the product")
        ax.set_ylabel("speed-up, hot caches")
        ax.legend(loc="upper right")

    return _figure(draw)


def speedup_histogram(document: Document) -> str | None:
    """How many problems have which speed-up."""
    values = [x["hot"] for x in document["problems"] if x["hot"]]
    if not values:
        return None

    def draw(ax: Axes) -> None:
        from matplotlib.container import BarContainer

        low, high = min(0.8, *values), max(1.2, *values)
        step = 0.025 if high - low < 2 else 0.1
        edges = [1.0 + step * i for i in range(-int((1 - low) / step) - 1, 1)]
        edges += [1.0 + step * i for i in range(1, int((high - 1) / step) + 2)]
        _, bins, bars = ax.hist(values, bins=edges, color=MUTED)
        assert isinstance(bars, BarContainer)  # of one list of values
        for left, bar in zip(bins, bars, strict=False):
            if left >= 1.0 - 1e-9:
                bar.set_facecolor(ACCENT)
        ax.axvline(1.0, color=INK, linewidth=0.8)
        ax.set_xlabel("speed-up of the best kernel before fallback, hot caches")
        ax.set_ylabel("problems")

    return _figure(draw, 2.8)


def win_curve(document: Document) -> str | None:
    """Share of problems faster than p times the baseline."""
    if not any(hot or cold for _, hot, cold in document["win"]):
        return None

    def draw(ax: Axes) -> None:
        bars = [point[0] for point in document["win"]]
        for at, name in ((1, "hot"), (2, "cold")):
            colour, style = LINES[at - 1]
            shares = [100.0 * point[at] for point in document["win"]]
            ax.plot(bars, shares, color=colour, linestyle=style, label=f"{name} caches")
        ax.axvline(1.0, color=INK, linewidth=0.8)
        ax.set_ylim(0, 100)
        ax.set_xlabel("p")
        ax.set_ylabel("problems faster than p, %")
        ax.legend()

    return _figure(draw)


def prune_curve(document: Document) -> str | None:
    """Share of the gain that the first kernels keep."""
    found = document["prune"]
    if len(found["curve"]) < 2:
        return None

    def draw(ax: Axes) -> None:
        counts = [count for count, _ in found["curve"]]
        ax.plot(counts, [100.0 * share for _, share in found["curve"]], color=ACCENT)
        ax.axhline(100.0 * found["keep"], color=INK, linewidth=0.8)
        ax.plot([found["kernels"]], [100.0 * found["share"]], "o", color=SECOND, clip_on=False)
        ax.set_ylim(0, 103)
        ax.set_xlim(0, None)
        ax.set_xlabel("kernels kept")
        ax.set_ylabel("log gain kept, %")

    return _figure(draw)


def regret_curves(document: Document) -> str | None:
    """How far the search is from the best known, against what it has spent."""
    curves = document["search"]["curves"]
    if not curves:
        return None

    def draw(ax: Axes) -> None:
        for i, (name, curve) in enumerate(curves.items()):
            colour, style = ((INK, "-"), *LINES)[i % (len(LINES) + 1)]
            ax.step(
                [spent for spent, _ in curve],
                [100.0 * regret for _, regret in curve],
                where="post",
                color=colour,
                linestyle=style,
                label="whole search" if name == "all" else _text(name),
            )
        ax.set_ylim(0, 100)
        ax.set_xlim(0, None)
        ax.set_xlabel("GPU-seconds spent on screening")
        ax.set_ylabel("regret, %")
        ax.legend()

    return _figure(draw)


def operator_bars(document: Document) -> str | None:
    """How often each operator's proposals improved on what there was."""
    found: Sequence[Document] = [x for x in document["operators"] if x["improved"] is not None]
    if not found:
        return None
    found = sorted(found, key=lambda x: x["improved"])[-24:]

    def draw(ax: Axes) -> None:
        names = [f"{x['proposer']}: {x['operator'] or 'any'}" for x in found]
        bars = ax.barh(range(len(found)), [100.0 * x["improved"] for x in found], color=ACCENT)
        ax.bar_label(bars, [f" of {x['attempts']}" for x in found], color=INK, fontsize=8)
        ax.set_yticks(range(len(found)), [_text(name) for name in names])
        ax.grid(visible=False, axis="y")
        ax.set_xlabel("attempts that improved on the best so far, %")

    return _figure(draw, 1.1 + 0.24 * len(found))
