"""What a run has to show: `generate report`, `merge`, `pack`, and the last words of a search."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hgemm_packs.cli.console import console
from hgemm_packs.generator import report
from hgemm_packs.generator.campaigns import campaign, refine
from hgemm_packs.generator.campaigns.refine import Refinement
from hgemm_packs.generator.cli.app import Keep, Run, app
from hgemm_packs.generator.compile import compiler, pack_kernels, pack_writer
from hgemm_packs.generator.compile.pack_writer import SourceManifest, write_source
from hgemm_packs.generator.core.spec import Kernel
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.run.generate import Summary
from hgemm_packs.generator.store import export, findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.run_folder import Store, merge
from hgemm_packs.generator.tables import dependent, sustained, table
from hgemm_packs.generator.tables.prune import KEPT_SHARE
from hgemm_packs.problem import Problem


def conclude(out: Console, store: Store, run: Path, summary: Summary, keep: float) -> None:
    """Write report and pack, and say what came out. Leaves with 1 when nothing was won."""
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
        _say(out, words.splitlines()[0])
    if summary.unconfirmed:
        _say(out, f"{summary.unconfirmed} not confirmed yet: hgemm-packs generate confirm {run}")
    _say(out, f"report: {report.write(store, run / 'report')}")
    if not summary.confirmed:
        words = "no win confirmed yet" if summary.unconfirmed else "nothing faster than cuBLAS"
        out.print(f"{words}: no pack")
        raise typer.Exit(1)
    write_pack(out, store, run, keep)
    more = shlex.join(["hgemm-packs", "generate", "refine", str(run)])
    _say(out, f"next: {more}  # dependent launch, long runs")


def _say(out: Console, line: str) -> None:
    """Print a line with a path in it, which nobody could copy were it broken in two."""
    out.print(line, soft_wrap=True)


def write_pack(out: Console, store: Store, folder: Path, keep: float) -> None:
    """Write the pack and say how to use it. Leaves with 1 when it names no kernel."""
    made = Refinement(store).write(folder, keep)
    rows = made.manifest.table
    wins = sum(row.kernel is not None for row in rows)
    where = (folder / "pack").resolve()
    kernels = len(made.manifest.kernels)
    _say(out, f"pack: {where}: {kernels} kernels, {wins} wins in {len(rows)} rows")
    if not wins:
        floor = made.manifest.policy.noise_floor
        out.print(f"no win clears the noise floor of {floor:g}: the pack is of no use")
        raise typer.Exit(1)
    _say(out, f"use:  export HGEMM_PACKS_PATH={shlex.quote(str(where))}")


def write_followers(
    out: Console, store: Store, source: SourceManifest, found: Mapping[Problem, Sequence[Kernel]]
) -> None:
    """Write what `follow` found beside the store: pack/, and pairs.jsonl, which names each problem
    and kernel for benchmarks/measure/pdl.py. Leaves with 1 where nothing was found."""
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
        replace(source, kernels=listed, table=()),
        built,
        generator_info=compiler.generator_info(),
    )
    pairs = [(problem, str(k.fields["name"])) for problem, each in found.items() for k in each]
    _write_pairs(store.folder / "pairs.jsonl", pairs)
    _say(out, f"pack: {where.resolve()}: {len(kernels)} kernels, {len(pairs)} pairs to measure")
    command = ["python", "-m", "benchmarks.measure.pdl", str(where), "OUT.jsonl"]
    _say(out, f"next: {shlex.join([*command, '--shapes', str(store.folder / 'pairs.jsonl')])}")


def _write_pairs(path: Path, pairs: Iterable[tuple[Problem, str]]) -> None:
    """Problems and names of kernels, as benchmarks/measure/pdl.py takes them by --shapes."""
    lines = ({"problem": pack_kernels.listed(p), "kernel": kernel} for p, kernel in pairs)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")


@app.command("report")
def write_report(
    run: Run,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Default: RUN/report.")] = None,
) -> None:
    """Write report.html and report.json of a run, also while it is going on."""
    with Store(run, readonly=True) as store:
        path = report.write(store, out_dir or run / "report")
    _say(console(), f"wrote {path}")


@app.command("merge")
def merge_runs(
    into: Annotated[Path, typer.Argument(help="Run folder that gets all; made when absent.")],
    others: Annotated[
        list[Path], typer.Argument(help="Run folders to add; they stay as they are.")
    ],
) -> None:
    """Unite runs of several hosts: what any of them measured counts in the result."""
    for other in others:
        Store(other, readonly=True).close()  # nothing is made of a wrong name
    with Store(into) as store:
        for other in others:
            merge(store, other)
            refine.unite(into, other)
        _say(console(), f"{into}: {len(store.problems())} problems")


@app.command("export")
def write_export(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or earlier exports.")],
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Folder of the export.")],
) -> None:
    """Write what a table follows from as small files: finals, confirmations and noise, raw."""
    found = export.union([export.load(place) for place in runs])
    export.write(found, out_dir)
    files = [path for path in out_dir.iterdir() if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    problems = len({each.problem for each in found.fields})
    _say(console(), f"{out_dir}: {problems} problems, {len(found.fields)} jobs, {size:.1f} MB")


@app.command("table")
def write_table(
    place: Annotated[Path, typer.Argument(help="An export, or a run folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The source manifest to write.")],
    keep: Keep = KEPT_SHARE,
    pdl: Annotated[
        list[Path] | None,
        typer.Option(
            help="What benchmarks/measure/pdl.py wrote: chooses kernels for dependent launch."
        ),
    ] = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(
            help="The same, measured apart: only what is in these is chosen, and what any run had "
            "slow leaves its row."
        ),
    ] = None,
    mixed: Annotated[
        list[Path] | None,
        typer.Option(
            help="What benchmarks/measure/mixed.py wrote: chooses again, between other problems."
        ),
    ] = None,
    public: Annotated[
        list[Path] | None,
        typer.Option(
            help="What benchmarks/measure/public.py wrote: what is slow there leaves its row."
        ),
    ] = None,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Name also what benchmarks/measure/public.py has yet to see."
        ),
    ] = False,
    energy: Annotated[
        list[Path] | None,
        typer.Option(help="What benchmarks/measure/energy.py wrote: sustained times choose there."),
    ] = None,
    sanitized: Annotated[
        list[Path] | None,
        typer.Option(
            help="What benchmarks/gates/sanitize_pack.py wrote: only kernels clean by these."
        ),
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="Also build its pack, into this folder.")
    ] = None,
) -> None:
    """Write the source manifest that follows from an export, of kernels that still build so.

    Each of its options takes files of lines or folders of them; a later line of a task stands for
    an earlier one.
    """
    import torch

    torch.set_num_threads(1)  # thousands of small bootstraps: threads that wait for each other
    found, usable = export.load(place), table.remade(compiler.build)
    if sanitized:
        usable = table.among(sanitizer.clean(read_records(sanitized)), usable)
    choosing, second = (campaign.answers(each or ()) for each in (pdl, published))
    if published:
        choosing = dependent.seen(choosing, second)
    document, gone = refine.document(
        found,
        keep,
        usable,
        sustained=campaign.lines(energy or ())[1],
        choosing=choosing,
        published=second,
        mixed=campaign.answers(mixed or ()),
        public=campaign.answers(public or ()),
        unseen=unseen,
    )
    write_source(out, document)
    if pack is not None:
        pack_writer.build_pack(out, pack)
    wins = sum(row.kernel is not None for row in document.table)
    if gone:
        why = "build otherwise now or have no clean record" if sanitized else "build otherwise now"
        _say(console(), f"{len(gone)} kernels {why}, such as {gone[0]}: left out")
    behind = sum(row.dependent is not None for row in document.table)
    counts = f"{len(document.kernels)} kernels, {wins} wins in {len(document.table)} rows"
    _say(console(), f"{out}: {counts}, {behind} with a kernel for dependent launch")


@app.command("candidates")
def write_candidates(
    place: Annotated[Path, typer.Argument(help="An export, or a run folder.")],
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Gets source.json and pack/.")],
    least_flop: Annotated[
        float, typer.Option(help="Operations from which a problem counts.")
    ] = sustained.LEAST_FLOP,
    near: Annotated[
        float | None,
        typer.Option(
            help="For benchmarks/measure/pdl.py: of all problems, what is so near the best."
        ),
    ] = None,
    only: Annotated[
        Path | None,
        typer.Option(help="An export, or a run folder: only problems that it confirms."),
    ] = None,
) -> None:
    """Write a pack of all confirmed kernels of large problems, unpruned, for
    benchmarks/measure/energy.py to choose among; with --near also the pairs.jsonl that
    benchmarks/measure/pdl.py takes as --shapes.

    A pack has no more than 4096 kernels: of an export with more of them, those of new problems are
    had by --only.
    """
    import torch

    torch.set_num_threads(1)
    found = export.load(place)
    if only is not None:
        new = {each.problem for each in export.load(only).fields if each.stage == "confirm"}
        found = replace(found, fields=tuple(f for f in found.fields if f.problem in new))
    out_dir.mkdir(parents=True, exist_ok=True)
    if near is None:
        document = sustained.candidates(found, table.remade(compiler.build), least_flop)
    else:
        document, pairs = dependent.candidates(found, table.remade(compiler.build), near)
        _write_pairs(out_dir / "pairs.jsonl", pairs)
    write_source(out_dir / "source.json", document)
    pack_writer.build_pack(out_dir / "source.json", out_dir / "pack")
    counts = f"{len(document.kernels)} kernels for {len(document.table)} problems"
    _say(console(), f"{out_dir / 'pack'}: {counts}")


@app.command()
def pack(
    run: Run,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Default: the run folder.")] = None,
    keep: Keep = 0.99,
) -> None:
    """Write source.json and pack/ from what a run confirmed, pruned to few kernels."""
    with Store(run, readonly=True) as store:
        write_pack(console(), store, out_dir or run, keep)
