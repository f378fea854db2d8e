"""The report of a store: report.json with every figure, report.html that shows them.

Called by the CLI. It reads the store, measures nothing, and works on an empty or partial store: it
then says what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hgemm_packs.generator.report.modes import Sample
from hgemm_packs.generator.report.numbers import numbers
from hgemm_packs.generator.report.page import page
from hgemm_packs.generator.report.search_figures import busy_shares
from hgemm_packs.generator.store import busy, findings
from hgemm_packs.generator.store.run_folder import Store


def load() -> None:
    """Import what draws the figures: it takes a second, where a caller waits for something else."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401


def write(
    store: Store, out: Path, answers: Sequence[Sample] = (), tokens: int | None = None
) -> Path:
    """Write both files to the folder `out`, with what an evaluator answered to proposals that are
    not in the store, and what a language model cost; returns the path of report.html."""
    document = numbers(findings.read(store), answers, tokens)
    document["cost"]["busy"] = busy_shares(busy.read(store.folder))
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    (out / "report.json").write_text(text, encoding="utf-8")
    path = out / "report.html"
    path.write_text(page(document), encoding="utf-8")
    return path
