"""The running search on a terminal: stage, problems, GPU-seconds, kernels, best so far.

Called by the CLI, which hands `show_progress(...)` to the orchestrator as its progress. In a log it
prints one line a stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hgemm_packs.generator.run import generate
from hgemm_packs.generator.run.generate import Snapshot


def line(at: Snapshot) -> str:
    """One snapshot in words."""
    words = [f"{at.done}/{at.total} {at.of}", f"{at.spent:.0f}/{at.budget:.0f} GPU-s"]
    words += [f"{at.screened} timings", f"{at.kernels} kernels"]
    if at.failures:
        words.append(f"{at.failures} refused")
    if at.busy.wall:
        shares = (at.busy.share(part) for part in (at.busy.compilers, at.busy.gpus))
        words.append("compilers {:.0%}, GPUs {:.0%} of the time".format(*shares))
    words.append(f"best so far {at.speedup:.3f}x torch")
    return ", ".join(words)


@contextlib.contextmanager
def show_progress(out: Console) -> Iterator[generate.Progress]:
    """A bar of the budget with what was reached, or lines where there is no terminal."""
    stage = ""
    if not out.is_terminal:

        def note(snapshot: Snapshot) -> None:
            nonlocal stage
            if snapshot.stage != stage:
                stage = snapshot.stage
                out.print(f"{stage}: {line(snapshot)}", soft_wrap=True)

        yield note
        return
    columns = (
        TextColumn("{task.fields[stage]:>8}", markup=False),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("starting", total=None, stage="")

        def show(snapshot: Snapshot) -> None:
            bar.update(
                task,
                total=snapshot.budget,
                completed=snapshot.spent,
                description=line(snapshot),
                stage=snapshot.stage,
            )

        yield show
