"""The command line itself: verbs, options, exit codes. Every verb's work is in its own module.

Exit codes: 0 done, 1 a check failed, 2 something asked for cannot be done.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
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
from . import plan as plan_verb
from . import sign as sign_verb
from . import tune as tune_verbs
from .console import MAKERS, TRAVELLERS, USERS, UserError, console, generator

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hgemm-packs {metadata.version('hgemm-packs')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Half-precision matrix products faster than cuBLAS, shipped as data packs."""


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


@app.command(rich_help_panel=USERS)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pack, plot and figures.")] = Path(
        "demo"
    ),
    jobs: Jobs = CORES,
) -> None:
    """Build the pack, verify it, show what real models gain.

    On a GPU that the pack is for, every kernel is checked against float64 and rows are measured.

    Example: hgemm-packs demo --out demo
    """
    out.mkdir(parents=True, exist_ok=True)
    _leave(demo_verb.run(console(), out, jobs))


@app.command(rich_help_panel=USERS)
def plan(
    model: Annotated[
        str,
        typer.Argument(
            help='A config.json, a TOML of shapes, or a name of the list: "Llama 3.1 8B".'
        ),
    ],
    m: Annotated[
        str | None,
        typer.Option("--m", help="Numbers of tokens: 1,8,64. Default: all measured numbers."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="f16 or bf16. Default: the model's own type, else f16.")
    ] = None,
    device_profile: Annotated[
        str | None, typer.Option(help='GPU to ask about instead of the GPU here: "NVIDIA H200".')
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: the problems without a measurement, for generate."),
    ] = None,
) -> None:
    """Say what a model gains: its layers, figures and gaps.

    Each linear layer is shown at each number of tokens. Where a kernel runs the layer, its measured
    speed-up over torch is shown. Unmeasured layers are counted, with the cost to measure them.

    Example: hgemm-packs plan config.json --m 1,8,64 --dtype bf16 --device-profile "NVIDIA H200"
    """
    plan_verb.run(console(), model, m, dtype, device_profile, out)


@app.command(rich_help_panel=USERS)
def explain(
    m: Annotated[int, typer.Argument(min=0, help="Rows of A and C.")],
    n: Annotated[int, typer.Argument(min=0, help="Columns of B and C.")],
    k: Annotated[int, typer.Argument(min=0, help="Columns of A, rows of B.")],
    layout: Annotated[str, typer.Option(help=f"Storage of A and B: {', '.join(LAYOUTS)}.")] = "nt",
    dtype: Annotated[str, typer.Option(help=f"Type of A, B and C: {', '.join(DTYPES)}.")] = "f16",
    device_profile: Annotated[
        str | None, typer.Option(help='GPU to ask about instead of the GPU here: "NVIDIA H200".')
    ] = None,
) -> None:
    """Say which kernel a problem gets, or why it gets none.

    The operands count as packed, and as aligned as M, N and K allow. If the table lacks the
    problem, the answer names the nearest M that was measured with this N and K.

    Example: hgemm-packs explain 64 4096 4096 --device-profile "NVIDIA H200"
    """
    try:
        problem = Problem(m, n, k, layout, dtype)
    except ValueError as error:
        raise UserError(str(error)) from error
    inspect.explain(console(), problem, device_profile)


@app.command(rich_help_panel=USERS)
def verify(
    folder: Annotated[
        Path | None, typer.Argument(help="A pack directory. Default: all packs found.")
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Also run every kernel.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Also check that one of these vouches for the pack, as for fetch. Repeatable."
        ),
    ] = None,
) -> None:
    """Check the hashes of packs; with --gpu, the values of kernels.

    Values are compared with float64. The exit code is 1 if a check fails.

    Example: hgemm-packs verify packs/sm_90a
    """
    _leave(inspect.verify(console(), folder, gpu, allow or ()))


@app.command(rich_help_panel=TRAVELLERS)
def sign(
    pack: Annotated[Path, typer.Argument(help="A pack directory.")],
    key: Annotated[
        Path | None, typer.Option(help="PEM private key. Without a key, sigstore asks who you are.")
    ] = None,
) -> None:
    """Sign the manifest of a pack, which push requires.

    Example: hgemm-packs sign packs/sm_90a --key KEY.pem
    """
    sign_verb.run(console(), pack, key)


@app.command(rich_help_panel=USERS)
def bench(
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("bench"),
    rows: Annotated[int, typer.Option(min=0, help="Rows to measure. 0 means all rows.")] = 24,
) -> None:
    """Measure rows of the table again on the GPU here.

    Each row compares `matmul` with torch and with the best algorithm of cuBLASLt, hot and cold.

    Example: hgemm-packs bench --rows 24
    """
    bench_verb.run(console(), out, rows)


@app.command(rich_help_panel=USERS)
def tune(
    model: Annotated[
        str,
        typer.Argument(
            help="A recording of record_shapes, a config.json, a TOML of shapes, or a name of the "
            'list: "Llama 3.1 8B".'
        ),
    ],
    m: Annotated[
        str | None,
        typer.Option("--m", help="Numbers of tokens: 1,8,64. Default: from 1 to 2048."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="f16 or bf16. Default: the model's own type, else f16.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time to measure.")] = 60.0,
    again: Annotated[
        bool, typer.Option("--again", help="Also measure shapes that have a row.")
    ] = False,
) -> None:
    """Measure your shapes on the GPU here, and use the fastest kernels.

    The kernels of the packs are measured against torch. Shapes on which the program spends most
    time come first. Every process uses the table from then on. The same command goes on where one
    was stopped. No compiler is needed.

    Example: hgemm-packs tune shapes.json --seconds 60
    """
    tune_verbs.run(console(), model, m, dtype, seconds, again)


@app.command(rich_help_panel=TRAVELLERS)
def contribute(
    out: Annotated[Path, typer.Argument(help="File to write.")] = Path("contribution.zip"),
    device_profile: Annotated[
        str | None, typer.Option(help='GPU whose table is meant: "NVIDIA H200".')
    ] = None,
) -> None:
    """Write the table of tune as one file for the project.

    The file has the evidence: times, versions and the GPU's model. It names no machine, user or
    folder.

    Example: hgemm-packs contribute contribution.zip
    """
    tune_verbs.contribute(console(), out, device_profile)


@app.command(rich_help_panel=MAKERS)
def build(
    arch: Annotated[str, typer.Option(help="Architecture to build for.")] = "sm_90a",
    out: Annotated[Path | None, typer.Option(help="Pack directory to write.")] = None,
    jobs: Jobs = CORES,
) -> None:
    """Compile the pack that the committed manifest names.

    The build needs no GPU and no CUDA toolkit. The same manifest gives the same bytes everywhere.

    Example: hgemm-packs build --arch sm_90a --out packs/sm_90a
    """
    build_verb.run(console(), arch, out, jobs)


@app.command(
    rich_help_panel=MAKERS,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def generate(context: typer.Context) -> None:
    """Search kernels on the GPU here: see generate --help."""
    generator("cli").run(context.args)


app.add_typer(hub_verbs.commands)
