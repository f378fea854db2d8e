"""`hgemm-packs tune` and `hgemm-packs contribute`: a table for the GPU here, and its way to others.

The work is `hgemm_packs.tuning`'s; this reads the command line, shows a bar, and prints what was
gained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..errors import PackError, TuneError
from ..settings import settings
from ..tuning import contribution
from ..tuning.contribution import choose, list_tables
from . import plan
from .console import NO_TORCH, UserError, progress

if TYPE_CHECKING:
    from ..tuning.tune import Tuned

#: Rows of the table that is printed; the log of a tuning may have thousands.
MOST_PRINTED = 40


def run(
    out: Console, model: str, counts: str | None, dtype: str | None, seconds: float, again: bool
) -> None:
    """Tune the GPU here for a model or a file, and print what came of it. Raises UserError."""
    try:
        from ..tuning import tune, wanted
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(NO_TORCH) from error
    tokens = plan.read_tokens(counts) or wanted.TOKENS
    path = Path(model)
    if path.suffix == ".toml" or (path.is_file() and wanted.is_recording(path)):
        asked = wanted.find_wanted(path, tokens)
    else:
        listed, own = plan.read_layers(model)
        asked = wanted.of_layers(listed, tokens, plan.read_dtype(dtype) or own)
    with progress(out, "tuning") as tick:
        try:
            done = tune.tune(asked, seconds, again=again, show=lambda d, of, found: tick(d, of))
        except (TuneError, ValueError) as error:
            raise UserError(str(error)) from error
    if done.gains:
        out.print(_table(done))
    out.print(str(done), soft_wrap=True)
    out.print(f"the table is in {done.folder}", soft_wrap=True)


def _table(done: Tuned) -> Table:
    gains = sorted(done.gains, key=lambda each: -each.weight * each.row.hot.torch_us)
    table = Table(title="us per call, caches hot")
    table.add_column("problem")
    for name in ("calls", "torch", "kernel", "hot", "cold"):
        table.add_column(name, justify="right")
    for each in gains[:MOST_PRINTED]:
        row = each.row
        runs = (f"{row.hot.us:.2f}", f"{row.hot.speedup:.3f}x", f"{row.cold.speedup:.3f}x")
        ours = runs if each.kernel else ("torch stays", "", "")
        table.add_row(str(each.problem), f"{each.weight:g}", f"{row.hot.torch_us:.2f}", *ours)
    if len(gains) > MOST_PRINTED:
        table.caption = f"and {len(gains) - MOST_PRINTED} more"
    return table


def contribute(out: Console, target: Path, profile: str | None) -> None:
    """Write the evidence of a table of this machine as a file. Raises UserError."""
    root = settings().cache
    if root is None:
        raise UserError("there is no cache, so nothing was measured: set HGEMM_PACKS_CACHE")
    try:
        done = contribution.write_contribution(choose(list_tables(root), profile), target)
    except PackError as error:
        raise UserError(error.detail) from error
    run = done.run
    out.print(
        f"{target}: {done.problems} problems on {run.profile}, {done.jobs} jobs, under torch "
        f"{run.conditions.torch}, cuBLAS {run.conditions.cublas}, driver {run.conditions.driver}",
        soft_wrap=True,
    )
    out.print("The file names no machine, user or folder. docs/new_card.md says where it goes.")
