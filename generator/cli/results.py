"""What a run has to show: `generate report`, `pack`, and the last words of a search."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator import report
from hgemm_packs.generator.agents import turns
from hgemm_packs.generator.campaigns.refine import Refinement
from hgemm_packs.generator.cli.app import LOOK, SEARCH, Keep, Name, Run, app
from hgemm_packs.generator.compile import compiler, pack_kernels, pack_writer
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.report.modes import Sample, read_answers, read_tokens
from hgemm_packs.generator.run.generate import Summary
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables import table
from hgemm_packs.pack.manifest import PackInfo
from hgemm_packs.problem import Problem
from hgemm_packs.profiles import names


def use_one_thread() -> None:
    """A report and a table are thousands of small bootstraps: torch's threads would wait for each
    other, seven times as long as one takes."""
    import torch

    torch.set_num_threads(1)


def load() -> None:
    """Import what figures and a report need: it takes seconds, where a run measures."""
    use_one_thread()
    report.load()


def conclude(
    out: Console, store: Store, run: Path, summary: Summary, keep: float, name: str | None
) -> None:
    """Write report and pack, and say what came out. Leaves with 1 when nothing was won."""
    use_one_thread()
    out.print(
        f"{summary.problems} problems, {summary.screened} timings of {summary.kernels} kernels, "
        f"{summary.spent:.0f} GPU-s: {summary.confirmed} of {summary.likely} likely "
        f"wins confirmed, "
        f"{summary.speedup:.3f}x torch over these",
    )
    if summary.given_up:
        problem, why = next(iter(summary.given_up.items()))
        count = f"{len(summary.given_up)} of {summary.problems} problems"
        words = f"given up: {count}, as {problem}: {why}"
        say(out, words.splitlines()[0])
    if summary.unconfirmed:
        say(out, f"{summary.unconfirmed} not confirmed yet: hgemm-packs generate resume {run}")
    say(out, f"report: {report.write(store, run / 'report')}")
    if not summary.confirmed:
        words = "no win confirmed yet" if summary.unconfirmed else "nothing faster than cuBLAS"
        out.print(f"{words}: no pack")
        raise typer.Exit(1)
    write_pack(out, store, run, keep, name)
    more = shlex.join(["hgemm-packs", "generate", "refine", str(run)])
    say(out, f"next: {more}  # dependent launch, long runs")


def say(out: Console, line: str) -> None:
    """Print a line with a path in it, which nobody could copy were it broken in two."""
    out.print(line, soft_wrap=True)


def write_pack(
    out: Console, store: Store, folder: Path, keep: float, name: str | None = None
) -> None:
    """Write the pack and say how to use it. Leaves with 1 when it names no kernel."""
    made = Refinement(store).write(folder, keep, name)
    rows = made.manifest.table
    wins = sum(row.kernel is not None for row in rows)
    where = (folder / "pack").resolve()
    kernels = len(made.manifest.kernels)
    say(out, f"pack: {where}: {kernels} kernels, {wins} wins in {len(rows)} rows")
    if not wins:
        floor = made.manifest.policy.noise_floor
        out.print(f"no win clears the noise floor of {floor:g}: the pack is of no use")
        raise typer.Exit(1)
    say(out, f"use:  export HGEMM_PACKS_PATH={shlex.quote(str(where))}")


def write_followers(
    out: Console,
    store: Store,
    source: SourceManifest,
    found: Mapping[Problem, Sequence[CompiledKernel]],
) -> None:
    """Write what `follow` found beside the store: pack/, and pairs.jsonl, which names each problem
    and kernel for `generate measure dependent`. Leaves with 1 where nothing was found."""
    kernels = {kernel.id: kernel for each in found.values() for kernel in each}
    if not kernels:
        out.print("no kernel that reads ahead is level with torch alone: no pack")
        raise typer.Exit(1)
    known = findings.read(store)
    listed = tuple(table.source_kernel(known, id_) for id_ in sorted(kernels))
    built = [compiler.Built(dict(kernel.fields), kernel.cubin) for kernel in kernels.values()]
    where = store.folder / "pack"
    pack_writer.write_pack(
        where,
        replace(source, kernels=listed, table=(), pack=own_name(source, known.device.name)),
        built,
        generator_info=compiler.generator_info(),
    )
    pairs = [(problem, str(k.fields["name"])) for problem, each in found.items() for k in each]
    write_pairs(store.folder / "pairs.jsonl", pairs)
    say(out, f"pack: {where.resolve()}: {len(kernels)} kernels, {len(pairs)} pairs to measure")
    command = ["hgemm-packs", "generate", "measure", "dependent", str(where), "OUT.jsonl"]
    say(out, f"next: {shlex.join([*command, '--shapes', str(store.folder / 'pairs.jsonl')])}")


def own_name(source: SourceManifest, gpu: str) -> PackInfo:
    """What a document says of its pack, called after this machine."""
    return source.pack._replace(name=names.of_machine(gpu))


def write_pairs(path: Path, pairs: Iterable[tuple[Problem, str]]) -> None:
    """Problems and names of kernels, as `generate measure` takes them by --shapes."""
    lines = ({"problem": pack_kernels.problem_values(p), "kernel": kernel} for p, kernel in pairs)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")


@app.command("report", rich_help_panel=LOOK)
def write_report(
    run: Run,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Default: RUN/report.")] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPOSER=PATH",
            help="Lines of an evaluator or a folder of `solve`, to be added: llm=answers.jsonl.",
        ),
    ] = None,
    ledgers: Annotated[
        list[Path] | None,
        typer.Option("--ledger", help="What the language model cost: the ledger of its budget."),
    ] = None,
) -> None:
    """Write report.html and report.json of a run, even while it runs."""
    use_one_thread()
    samples = [sample for each in answers or () for sample in _read_answers(each)]
    tokens = sum(map(read_tokens, ledgers)) if ledgers else None
    with Store(run, readonly=True) as store:
        path = report.write(store, out_dir or run / "report", samples, tokens)
    say(console(), f"wrote {path}")


def _read_answers(named: str) -> list[Sample]:
    proposer, mark, path = named.partition("=")
    if not (proposer and mark and path):
        raise UserError(f"--answers {named!r}: say llm=FILE.jsonl, or llm=FOLDER")
    if turns.is_run(Path(path)):
        return turns.samples(turns.read(Path(path)), proposer)
    return read_answers(Path(path), proposer)


@app.command(rich_help_panel=SEARCH)
def pack(
    run: Run,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Default: the run folder.")] = None,
    keep: Keep = 0.99,
    name: Name = None,
) -> None:
    """Write the pack of the kernels that a run confirmed, pruned to few.

    source.json, the table as a document, stands beside pack/.
    """
    if name is not None:
        names.check(name)
    use_one_thread()
    with Store(run, readonly=True) as store:
        write_pack(console(), store, out_dir or run, keep, name)
