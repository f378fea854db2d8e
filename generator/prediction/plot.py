"""The figure of a fit: gains as predicted and as measured, of problems left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hgemm_packs.generator.prediction.abstention import (
    LEAST_MARGIN,
    Judged,
    Threshold,
    sure_gains,
)


def draw(judged: Judged, thresholds: Sequence[Threshold], out: Path) -> None:
    """Write the figure as PNG."""
    sure = sure_gains(judged, thresholds)
    serves = sure >= math.log(LEAST_MARGIN)
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for wanted, colour, label in ((serves, "#0b6e99", "served"), (~serves, "#9aa5b1", "torch")):
        axes.scatter(
            np.exp(sure[wanted]), np.exp(judged.measured[wanted]), s=8, c=colour, label=label
        )
    axes.axhline(1.0, color="#1f2933", linewidth=0.8)
    axes.axvline(LEAST_MARGIN, color="#c2703d", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("gain that is sure, as predicted")
    axes.set_ylabel("torch over the chosen kernel, as measured")
    axes.legend(frameon=False)
    figure.savefig(out, dpi=120, metadata={"Software": None})
