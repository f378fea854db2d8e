"""What a table is made of and what it follows to: `generate archive`, `table`, `contenders`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import console
from hgemm_packs.generator.campaigns import campaign, refine
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import EVIDENCE, Keep, Name, app
from hgemm_packs.generator.cli.results import own_name, say, write_pairs
from hgemm_packs.generator.compile import compiler, pack_writer, source_folder
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source, write_source
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import dependent, sustained, table
from hgemm_packs.generator.tables.proven import add_proven
from hgemm_packs.generator.tables.prune import KEPT_SHARE

Place = Annotated[Path, typer.Argument(metavar="EXPORT", help="An export, or the folder of a run.")]


def keep_predictors(document: SourceManifest, out: Path) -> SourceManifest:
    """The document with the predictors of the one at `out` that it replaces, but those whose
    kernels have left the table: `generate fit` makes these anew."""
    if not (out.exists() and source_folder.is_source(out)):
        return document
    there = {kernel.id for kernel in document.kernels}
    before = pack_writer.read_source(out).predictors
    kept = (each for each in before if {one.kernel for one in each.candidates} <= there)
    return pack_writer.with_predictors(document, tuple(kept))


@app.command("archive", rich_help_panel=EVIDENCE)
def archive_runs(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, or earlier exports."),
    ],
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Folder of the export.")],
) -> None:
    """Write the measurements that a table follows from as an export.

    An export is a folder of small files: finals, confirmations and noise, raw.
    """
    found = export.union([export.load(place) for place in runs])
    export.write(found, out_dir)
    files = [path for path in out_dir.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    problems = len({each.problem for each in found.fields})
    say(console(), f"{out_dir}: {problems} problems, {len(found.fields)} jobs, {size:.1f} MB")


@app.command("table", rich_help_panel=EVIDENCE)
def write_table(
    place: Place,
    out: Annotated[Path, typer.Option("-o", "--out", help="The source manifest to write.")],
    keep: Keep = KEPT_SHARE,
    choices: Annotated[
        list[Path] | None,
        typer.Option(
            "--dependent",
            help="Lines of `generate measure dependent` that choose kernels for dependent launch.",
        ),
    ] = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(
            help="Further lines of `generate measure dependent`, measured apart. The lines choose "
            "nothing, but a row names only kernels of these lines that were not slow."
        ),
    ] = None,
    mixed: Annotated[
        list[Path] | None,
        typer.Option(help="Lines of `generate measure mixed`, which choose once more."),
    ] = None,
    public: Annotated[
        list[Path] | None,
        typer.Option(
            help="Lines of `generate measure public`. Kernels that are slow there leave their row."
        ),
    ] = None,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Also name kernels that `generate measure public` has not measured."
        ),
    ] = False,
    long_runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--sustained",
            help="Lines of `generate measure sustained`, which choose the kernels of large "
            "problems.",
        ),
    ] = None,
    sanitized: Annotated[
        list[Path] | None,
        typer.Option(help="Lines of `generate sanitize`. Only kernels with clean lines are named."),
    ] = None,
    bits: Annotated[
        list[Path] | None,
        typer.Option(
            help="Lines of `benchmarks.measure.bits`. Kernels that add K up in order are named "
            "only with such lines."
        ),
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="Also build the pack of the table into this folder.")
    ] = None,
    name: Name = None,
) -> None:
    """Write the table (a source manifest) that an export proves.

    The table names only kernels whose builds have not changed.
    """
    import torch

    from hgemm_packs.generator.gates import sanitizer

    torch.set_num_threads(1)  # thousands of small bootstraps: threads that wait for each other
    found, usable = export.load(place), table.make_usable(compiler.build)
    if sanitized:
        usable = table.restrict_usable(sanitizer.clean(read_records(sanitized)), usable)
    if bits:
        measured = {line["id"] for line in read_records(bits) if {"id", "full"} <= line.keys()}
        usable = table.restrict_to_bits(measured, usable)
    choosing, second = (campaign.answers(each or ()) for each in (choices, published))
    if published:
        choosing = dependent.keep_remeasured(choosing, second)
    document, gone = refine.document(
        found,
        keep,
        usable,
        sustained=campaign.lines(long_runs or ())[1],
        choosing=choosing,
        published=second,
        mixed=campaign.answers(mixed or ()),
        public=campaign.answers(public or ()),
        unseen=unseen,
    )
    if name is not None:
        document = replace(document, pack=document.pack._replace(name=name))
    write_source(out, keep_predictors(document, out))
    if pack is not None:
        pack_writer.build_pack(out, pack)
    wins = sum(row.kernel is not None for row in document.table)
    if gone:
        lacking = {"clean record": sanitized, "bits": bits}
        why = " or ".join(
            ["build otherwise now", *(f"have no {what}" for what, told in lacking.items() if told)]
        )
        say(console(), f"{len(gone)} kernels {why}, such as {gone[0]}: left out")
    behind = sum(row.dependent is not None for row in document.table)
    counts = f"{len(document.kernels)} kernels, {wins} wins in {len(document.table)} rows"
    say(console(), f"{out}: {counts}, {behind} with a kernel for dependent launch")


@app.command("contenders", rich_help_panel=EVIDENCE)
def write_contenders(
    place: Place,
    out_dir: Annotated[
        Path, typer.Option("-o", "--out", help="Folder to write source.json and pack/ into.")
    ],
    least_flop: Annotated[
        float, typer.Option(help="Least operations of a problem.")
    ] = sustained.LEAST_FLOP,
    near: Annotated[
        float | None,
        typer.Option(
            help="Take the kernels of all problems that are slower than the best by this share "
            "at most. They are for `generate measure dependent`."
        ),
    ] = None,
    only: Annotated[
        Path | None,
        typer.Option(help="An export, or the folder of a run: only problems that it confirms."),
    ] = None,
    proven: Annotated[
        Path | None,
        typer.Option(
            help="A table: its kernels and rows, and all kernels that passed the numeric gate."
        ),
    ] = None,
    layouts: search.Layouts = None,
    dtypes: search.Dtypes = None,
) -> None:
    """Write a pack of all kernels that a table may choose among.

    Without --near these are the confirmed kernels of large problems, unpruned: `generate measure
    sustained OUT/pack` measures them. With --near OUT/pairs.jsonl names problems and kernels:
    `generate measure dependent OUT/pack OUT.jsonl --shapes OUT/pairs.jsonl` measures them.
    With --proven `generate measure rows OUT/pack` measures what the table has no row of.

    --layouts and --dtypes are for --proven.

    A pack has no more than 4096 kernels. An export may have more: take the new problems by --only.
    """
    import torch

    torch.set_num_threads(1)
    found = export.load(place)
    if only is not None:
        new = {each.problem for each in export.load(only).fields if each.stage == "confirm"}
        found = replace(found, fields=tuple(f for f in found.fields if f.problem in new))
    out_dir.mkdir(parents=True, exist_ok=True)
    if proven is not None:
        usable, known = table.make_usable(compiler.build), read_source(proven)
        document = add_proven(known, found, usable, layouts or (), dtypes or ())
    elif near is None:
        document = sustained.candidates(found, table.make_usable(compiler.build), least_flop)
    else:
        document, pairs = dependent.candidates(found, table.make_usable(compiler.build), near)
        write_pairs(out_dir / "pairs.jsonl", pairs)
    document = replace(document, pack=own_name(document, found.device.name))
    write_source(out_dir / "source.json", document)
    pack_writer.build_pack(out_dir / "source.json", out_dir / "pack")
    counts = f"{len(document.kernels)} kernels for {len(document.table)} problems"
    say(console(), f"{out_dir / 'pack'}: {counts}")
