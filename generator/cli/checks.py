"""What needs no run: `generate eval` of a kernel, `redteam` of all gates, `doctor` of the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hgemm_packs import report
from hgemm_packs.cli.console import UserError, console, progress
from hgemm_packs.generator.cli import doctor as doctor_checks
from hgemm_packs.generator.cli.app import GATES, LOOK, app
from hgemm_packs.generator.compile.candidate import Candidate, load
from hgemm_packs.generator.compile.compiler import generator_info
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.run import evaluate
from hgemm_packs.problem import Problem


@app.command("eval", rich_help_panel=LOOK)
def evaluate_one(
    what: Annotated[
        str,
        typer.Argument(help='FILE.cu with its FILE.toml, or {"family": ..., "genome": {...}}.'),
    ],
    m: Annotated[int, typer.Argument(min=1, help="Rows of A and C.")],
    n: Annotated[int, typer.Argument(min=1, help="Columns of B and C.")],
    k: Annotated[int, typer.Argument(min=1, help="Columns of A, rows of B.")],
    layout: Annotated[
        str | None, typer.Option(help="Storage of A and B; default: as FILE.toml says, or nt.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Type of A, B and C; default: as FILE.toml says, or f16.")
    ] = None,
) -> None:
    """Put one kernel through every gate, and time it on M x N x K where there is a GPU."""
    import torch

    out = console()
    one: Candidate | Choice
    if what.endswith(".cu"):
        one = load(Path(what))
        kind = (layout or str(one.fields["layout"]), dtype or str(one.fields["dtype"]))
        problem = Problem(m, n, k, *kind)
    else:
        problem = Problem(m, n, k, layout or "nt", dtype or "f16")
        one = Space(problem).parse(_document(what))
    device = 0 if torch.cuda.is_available() else None
    rows = Table("gate", "verdict", "detail")
    verdicts = evaluate.evaluate(one, problem, device=device)
    for verdict in verdicts:
        detail = verdict.detail or str(verdict.evidence.get("skipped", ""))
        rows.add_row(verdict.gate, verdict.status.value, detail)
    out.print(rows)
    if device is None:
        out.print("no GPU here: the gates that run the kernel did not")
    if not verdicts[-1].passed:
        raise typer.Exit(1)


def _document(text: str) -> Any:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UserError(f"{text!r} is neither FILE.cu nor JSON: {error}") from None
    name = document.get("family", "") if isinstance(document, dict) else ""
    if not isinstance(name, str):
        raise UserError(f"no kernel family {name!r}")
    return document


@app.command(rich_help_panel=GATES)
def redteam(
    out_file: Annotated[Path, typer.Option("--out", help="JSON of the verdicts.")] = Path(
        "redteam.json"
    ),
    gpu: Annotated[bool, typer.Option("--gpu", help="Also the gates that run kernels.")] = False,
    cases: Annotated[
        list[str] | None,
        typer.Option("--case", help="Only the case of this name; may be repeated."),
    ] = None,
    commit: Annotated[str | None, typer.Option(help="Of the sources; else asked of git.")] = None,
) -> None:
    """Check the gates: every cheat of the corpus must be rejected, every honest kernel pass."""
    from hgemm_packs.generator.redteam import run as corpus

    out = console()
    with progress(out, "red team") as tick:
        result = corpus.run("gpu" if gpu else "cpu", tick, names=cases or ())
    found = {
        "commit": commit or generator_info().commit,
        "device": _device() if gpu else "none",
        **result.document(),
    }
    out_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for case in result.cases:
        if not case.undecided and not case.as_expected:
            out.print(f"{case.name}: expected {case.expect}, got {case.got_gate}")
    out.print(
        f"{found['rejected']} of {found['total']} cheats rejected by the gate that names them, "
        f"{found['honest_passed']} of {found['honest_total']} honest kernels passed"
    )
    if not result.clean:
        raise typer.Exit(1)


def _device() -> str:
    """The first GPU, its driver and torch, in words."""
    import torch

    versions = report.runtime_versions(0)
    name = torch.cuda.get_device_name(0)
    return f"{name}, driver {versions.get('driver', 'unknown')}, torch {versions['torch']}"


@app.command(rich_help_panel=LOOK)
def doctor() -> None:
    """Look at what this machine has and lacks for generating a pack."""
    out = console()
    rows = Table("", "", "found", "to mend")
    missing = 0
    for check in doctor_checks.checks():
        missing += check.needed and not check.ok
        mark = "ok" if check.ok else "MISSING" if check.needed else "optional"
        remedy = "" if check.ok else check.remedy
        rows.add_row(mark, check.name, check.detail, remedy)
    out.print(rows)
    out.print("ready" if not missing else f"{missing} needed, see the right column")
    if missing:
        raise typer.Exit(1)
