"""`generate trace`: problems and solutions in the format of the field, FlashInfer-Trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.errors import PackError
from hgemm_packs.generator.cli.app import EVIDENCE, Group, app
from hgemm_packs.generator.cli.results import say
from hgemm_packs.generator.cli.search import gpus_here
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.flashinfer_trace import problems, solutions, trace_set
from hgemm_packs.generator.flashinfer_trace.schema import read_document
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem

traces = typer.Typer(
    cls=Group,
    help="Problems and solutions in FlashInfer-Trace: import, export.",
    subcommand_metavar="VERB ...",
)
app.add_typer(traces, name="trace", rich_help_panel=EVIDENCE)


def _sizes(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise UserError(f"--rows {text!r}: say 1,16,4096") from None


def _expand(places: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Each definition, and whether it was named itself; of a folder, all that it has."""
    for place in places:
        if place.is_dir():
            yield from ((path, False) for path in problems.list_definitions(place))
        else:
            yield place, True


@traces.command("import")
def import_problems(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DEFINITION...", help="Files definition.json, or folders with definitions/."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The list of problems to write, TOML.")],
    workloads: Annotated[
        Path | None,
        typer.Option(help="Workloads. Default: those beside a definition or in its folder."),
    ] = None,
    rows: Annotated[
        str, typer.Option(help="Values of the variable axis in place of workloads: 1,16,4096.")
    ] = "",
) -> None:
    """Write the problems of definitions and their workloads as a list for --shapes.

    A definition in a folder that is no half-precision product, or is damaged, is left out with the
    reason. No code of a definition is run.
    """
    shown = console()
    found: dict[Problem, None] = {}
    for path, named in _expand(places):
        try:
            found |= dict.fromkeys(problems.read_problems(path, workloads, _sizes(rows)))
        except (PackError, OSError) as error:
            if named:
                raise
            say(shown, f"left out: {error}")
    if not found:
        raise UserError("these definitions leave no problem")
    source = ", ".join(map(str, places))
    write_atomically(out, problems.write_list(list(found), source).encode())
    say(shown, f"{len(found)} problems: {out}")
    say(shown, f"next: hgemm-packs generate --shapes {out}")


def _measure() -> solutions.Measure:
    """Raises UserError where there is no GPU."""
    from hgemm_packs.generator.flashinfer_trace.errors import measure_errors

    gpus_here()
    return measure_errors


@traces.command("export")
def export_solutions(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="A source manifest: manifests/sm_90a/h200.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    definitions: Annotated[
        list[Path] | None,
        typer.Option(
            "--definition", help="Only this definition.json, or those of a folder, as they are."
        ),
    ] = None,
    layouts: Annotated[
        list[str] | None, typer.Option(help=f"Only these layouts: {', '.join(LAYOUTS)}.")
    ] = None,
    dtypes: Annotated[
        list[str] | None, typer.Option(help=f"Only these types: {', '.join(DTYPES)}.")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Add the text of each kernel to its solution.")
    ] = False,
    errors: Annotated[
        bool,
        typer.Option(
            "--errors",
            help="Run each row once on the GPU here, for the largest errors of single elements.",
        ),
    ] = False,
) -> None:
    """Write the rows of a table that name a kernel as solutions and traces with their evidence.

    Without --definition, each N, K, layout and type of the table becomes a definition.
    """
    shown = console()
    source = read_source(table)
    groups = {
        group: rows
        for group, rows in solutions.list_rows(source).items()
        if (not layouts or group[2] in layouts) and (not dtypes or group[3] in dtypes)
    }
    measure = _measure() if errors else None
    write = partial(
        solutions.export_definition, source, groups, with_kernels=kernels, measure=measure
    )
    made = []
    for path, named in _expand(definitions or []):
        try:
            known, document = problems.read_workloads(path), read_document(path)
            made.append(write(document, known))
        except (PackError, OSError) as error:
            if named:
                raise
            say(shown, f"left out: {path}: {error}")
    if not definitions:
        made = [write(solutions.define(group)) for group in groups]
    if not made:
        raise UserError(f"{table} has no such row")
    found = trace_set.write(out, made)
    counts = f"{len(found.solutions)} solutions with {len(found.traces)} traces"
    say(shown, f"{out}: {counts}")
    if errors:
        count = trace_set.count_errors(found)
        say(shown, f"errors of {count} were measured here; another kernel runs the others here")
