"""The command line itself: verbs, options, exit codes. Every verb's work is in its own module.

Exit codes: 0 done, 1 a check failed, 2 something asked for cannot be done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PackError
from ..problem import DTYPES, LAYOUTS, Problem
from . import bench as bench_verb
from . import build as build_verb
from . import demo as demo_verb
from . import hub as hub_verbs
from . import inspect
from . import sign as sign_verb
from .console import UserError, console, generator

app = typer.Typer(
    help="Half-precision matrix products faster than cuBLAS, shipped as data packs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(hub_verbs.commands)

Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="Compilers at a time.")]
CORES = os.cpu_count() or 1


def run() -> None:
    """Run the command line and leave the process. Errors of the user's are one line, no trace."""
    try:
        app(prog_name="hgemm-packs")
    except (UserError, PackError, OSError) as error:
        typer.echo(f"hgemm-packs: {_words(error)}", err=True)
        sys.exit(2)


def _words(error: Exception) -> str:
    """An error without Python's number of it: which file, and what of it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _leave(sound: bool) -> None:
    """End a verb that checks something."""
    if not sound:
        raise typer.Exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pack, plot and figures.")] = Path(
        "demo"
    ),
    jobs: Jobs = CORES,
) -> None:
    """Build the pack, verify it, show what real models get from it; run it where a GPU allows."""
    out.mkdir(parents=True, exist_ok=True)
    _leave(demo_verb.run(console(), out, jobs))


@app.command()
def show() -> None:
    """List the packs that were found, and the places that were refused, with reasons."""
    inspect.show(console())


@app.command()
def explain(
    m: Annotated[int, typer.Argument(min=0, help="Rows of A and C.")],
    n: Annotated[int, typer.Argument(min=0, help="Columns of B and C.")],
    k: Annotated[int, typer.Argument(min=0, help="Columns of A, rows of B.")],
    layout: Annotated[str, typer.Option(help=f"Storage of A and B: {', '.join(LAYOUTS)}.")] = "nt",
    dtype: Annotated[str, typer.Option(help=f"Type of A, B and C: {', '.join(DTYPES)}.")] = "f16",
    device_profile: Annotated[
        str | None, typer.Option(help='Ask for this GPU instead of the one here: "NVIDIA H200".')
    ] = None,
) -> None:
    """Say which kernel M x N x K gets, or why it gets none."""
    try:
        problem = Problem(m, n, k, layout, dtype)
    except ValueError as error:
        raise UserError(str(error)) from error
    inspect.explain(console(), problem, device_profile)


@app.command()
def verify(
    pack: Annotated[Path | None, typer.Option(help="A pack directory; default: all found.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Also run every kernel.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Also check that one of these vouches for it, as for fetch. Repeatable."),
    ] = None,
) -> None:
    """Check every hash of the packs; with --gpu, every kernel's values against float64."""
    _leave(inspect.verify(console(), pack, gpu, allow or ()))


@app.command()
def sign(
    pack: Annotated[Path, typer.Argument(help="A pack directory.")],
    key: Annotated[
        Path | None, typer.Option(help="PEM private key; without one, sigstore asks who you are.")
    ] = None,
) -> None:
    """Sign the manifest of a pack, as push wants it."""
    sign_verb.run(console(), pack, key)


@app.command()
def bench(
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("bench"),
    rows: Annotated[int, typer.Option(min=0, help="Rows to measure; 0 is all.")] = 24,
) -> None:
    """Measure rows of the table again on the GPU here, against torch and cuBLASLt."""
    bench_verb.run(console(), out, rows)


@app.command()
def build(
    arch: Annotated[str, typer.Option(help="Architecture to build for.")] = "sm_90a",
    out: Annotated[Path | None, typer.Option(help="Pack directory to write.")] = None,
    jobs: Jobs = CORES,
) -> None:
    """Compile the kernels that the committed manifest names, and write the pack."""
    build_verb.run(console(), arch, out, jobs)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def generate(context: typer.Context) -> None:
    """Search kernels for this machine's GPU, measure them, write a pack: see generate --help."""
    generator("cli").run(context.args)
