"""PNG plots of measured speed-ups. matplotlib is imported here and nowhere else in the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..pack.manifest import Row
from ..pack.manifest_reader import Manifest

#: Two hues that stay apart for colour-blind readers and in grey print.
HOT, COLD = "#0072B2", "#E69F00"
#: Rows up to which every dot is told apart.
FEW = 200


def plot_speedups(manifest: Manifest, path: Path) -> bool:
    """`speedups` of all problems that get a kernel. Without one: False, and no file."""
    wins = [row for row in manifest.table if row.kernel and manifest.policy.clears(row)]
    if wins:
        cards = ", ".join(sorted({row.profile for row in wins}))
        speedups(wins, path, f"{len(wins)} problems with a confirmed win on {cards}")
    return bool(wins)


def speedups(rows: Sequence[Row], path: Path, title: str) -> None:
    """Speed-up over torch, one pair of dots per row, sorted by the hot figure; bars reach down to
    the lower 95% bounds. The hot figures are drawn above the cold ones, which scatter about them.
    Writes a PNG, 1600 x 900 pixels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ordered = sorted(rows, key=lambda row: row.hot.speedup)
    figure, axes = pyplot.subplots(figsize=(10.67, 6), dpi=150)
    few = len(ordered) <= FEW
    for label, colour, timings, alpha in (
        ("caches cold", COLD, [row.cold for row in ordered], 1.0 if few else 0.35),
        ("caches hot", HOT, [row.hot for row in ordered], 1.0),
    ):
        places = range(1, len(timings) + 1)
        best = [timing.speedup for timing in timings]
        below = [max(0.0, timing.speedup - timing.lcb) for timing in timings]
        axes.errorbar(
            places,
            best,
            yerr=[below, [0.0] * len(below)],
            fmt="o",
            markersize=3 if few or colour == HOT else 1.5,
            linewidth=0.6 if few or colour == HOT else 0.0,
            color=colour,
            alpha=alpha,
            label=label,
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("problem, sorted by its speed-up with hot caches")
    axes.set_ylabel("speed-up over torch")
    axes.set_title(title, parse_math=False)  # a name may hold dollars
    legend = axes.legend(*(each[::-1] for each in axes.get_legend_handles_labels()))
    legend.set_frame_on(False)
    axes.grid(axis="y", linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
