"""`generate fit`: the predictor of a committed table, fitted to times and judged by folds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli.app import EVIDENCE, app
from hgemm_packs.generator.compile import pack_writer
from hgemm_packs.generator.families import FREE, family
from hgemm_packs.generator.prediction import abstention, draw, fit, rows, teacher, times
from hgemm_packs.generator.prediction.abstention import SORTS, Threshold

#: Problems that candidates are picked for; no figure is of these.
ASKED, ASKED_SEED = 1200, 5


@app.command("fit", rich_help_panel=EVIDENCE)
def fit_predictor(
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="The source manifest of a table.")
    ],
    lines: Annotated[
        list[Path] | None, typer.Option(help="Lines of `generate measure unseen`.")
    ] = None,
    measured: Annotated[
        list[Path] | None, typer.Option(help="Exports, whose finals are trained on.")
    ] = None,
    recorded: Annotated[
        list[Path] | None, typer.Option(help="Recorded screens, as benchmarks/results has them.")
    ] = None,
    heuristics: Annotated[
        list[Path] | None,
        typer.Option(
            help="What cuBLASLt would run of problems, timed ones among them: a teacher "
            "that knows labels the others for the model of torch."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File for the figures. The plot goes beside the file.")
    ] = None,
) -> None:
    """Fit which kernel runs problems that nobody measured, into a table.

    Figures are of problems that the models have not seen. A problem runs on torch unless its gain
    is sure.
    """
    source = pack_writer.read_source(manifest)
    plain = {}
    for kernel in source.kernels:
        f = family(kernel.family)
        fields = {**f.fields(f.whole(kernel.genome)), "id": kernel.id}
        if fields["epilogue"] == "none" and not f.batched and kernel.family not in FREE:
            plain[kernel.name] = fields
    drawn, finals = times.Measured(), times.Measured()
    for name, each in plain.items():
        drawn.know(name, each)
    for path in recorded or ():
        times.read_recording(drawn, path)
    for place in measured or ():
        times.read_export(finals, place)
    times.read_lines(drawn, lines or (), finals.kernels | drawn.kernels)
    if not drawn.times:
        raise UserError("nothing to judge by: give --lines or --recorded")
    profile, kernels = source.device_profiles[0], finals.kernels | drawn.kernels
    every = rows.Eye(list(kernels.values()), drawn.families, profile)
    asked = [
        *draw.layers(ASKED_SEED, ASKED // 2, draw.weights()),
        *draw.sizes(ASKED_SEED, ASKED // 2, aligned=True),
        *draw.sizes(ASKED_SEED, ASKED // 4, aligned=False),
    ]
    known = rows.make_rows(every, list(kernels), drawn.complete(), finals.complete(), drawn.alone())
    late = fit.late(known)
    slower = {name for place, name in enumerate(kernels) if place in late}
    listed = [kernels[name] for name in plain if name not in slower]
    ours = rows.Eye(listed, drawn.families, profile)
    learned = teacher.lessons(every, known, teacher.read(heuristics or ()))
    found, judged, thresholds = fit.fit(
        known, ours, asked, profile.name, drawn.families, learned, late
    )
    others = tuple(each for each in source.predictors if each.profile != profile.name)
    document = {
        "profile": profile.name,
        "trained_on": len(drawn.complete()) + len(finals.complete()),
        "torch_alone": len(drawn.alone()),
        "late": len(late),
        "labelled": len(learned.drawn) if learned else 0,
        "candidates": len(found.candidates),
        "thresholds": [vars(each) for each in thresholds],
        "folds": fit.FOLDS,
        "left_out": abstention.figures(judged, thresholds),
        "without_abstention": abstention.figures(judged, [Threshold(1.0, 0.0)] * SORTS),
    }
    pack_writer.write_source(manifest, pack_writer.with_predictors(source, (*others, found)))
    if report is not None:
        report.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        from hgemm_packs.generator.prediction import plot  # matplotlib, a third of a second

        plot.draw(judged, thresholds, report.with_suffix(".png"))
    console().print_json(json.dumps(document))
