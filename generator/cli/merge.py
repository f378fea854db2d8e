"""`generate merge`: runs of several hosts as one, and tables that strangers contribute."""

from __future__ import annotations

import contextlib
import datetime
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hgemm_packs import profiles, select
from hgemm_packs.cli.console import UserError, console, progress
from hgemm_packs.errors import PackError
from hgemm_packs.generator.campaigns import campaign, refine
from hgemm_packs.generator.campaigns.campaign import Line, Task
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import SEARCH, app
from hgemm_packs.generator.cli.results import say
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import PROTOCOLS, DeviceFacts, Job, Reply, Status, same
from hgemm_packs.generator.store import contribution, export
from hgemm_packs.generator.store.findings import Field
from hgemm_packs.generator.store.run_folder import Store, merge
from hgemm_packs.generator.tables import sample
from hgemm_packs.generator.tables.sample import Verdict
from hgemm_packs.problem import DeviceInfo, Problem
from hgemm_packs.tuning.journal import Run, problem_of, problem_values
from hgemm_packs.tuning.judge import Judge, Standing
from hgemm_packs.tuning.table import profile_of

#: What was measured of a sample, in the folder of its export.
CONFIRMED = "confirmed.jsonl"


@app.command("merge", rich_help_panel=SEARCH)
def merge_runs(
    into: Annotated[
        Path,
        typer.Argument(
            help="Run folder that gets all runs, or folder of exports that gets contributions. It "
            "is made if it does not exist."
        ),
    ],
    others: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, or files of `hgemm-packs contribute`, to add. They are not changed."
        ),
    ],
    packs: Annotated[
        list[Path] | None,
        typer.Option("--pack", help="Pack whose kernels were measured. Default: the packs found."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--sample",
            min=1,
            help="Rows of a contribution to measure again. Default: 5%, at least 20.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="What draws the sample. Default: a new one.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs to use. 0 means all.")] = 0,
) -> None:
    """Unite the runs of several hosts, or take contributed tables.

    The result has the measurements of all runs. Of a contributed table a sample is measured again
    on a GPU of its model, and the table is refused where the sample does not agree. An accepted
    table is an export in the folder, which `generate table` takes.
    """
    files = [each for each in others if each.is_file()]
    if files and len(files) < len(others):
        raise UserError("give run folders, or contributed files, and not both")
    if files:
        if (into / "store.sqlite").exists():
            raise UserError(f"{into} is the folder of a run: name a folder of exports")
        places = packs or [each.path for each in select.find_packs().packs if not each.local]
        known = [Packed(each) for each in places]
        accepted = [_take(console(), into, each, known, rows, seed, gpus) for each in files]
        raise typer.Exit(0 if all(accepted) else 1)
    for other in others:
        Store(other, readonly=True).close()  # nothing is made of a wrong name
    with Store(into) as store:
        for other in others:
            merge(store, other)
            refine.unite(into, other)
        say(console(), f"{into}: {len(store.problems())} problems")


def _take(
    out: Console,
    into: Path,
    path: Path,
    packs: Sequence[Packed],
    rows: int | None,
    seed: int | None,
    gpus: int,
) -> bool:
    """Take one contribution, if a sample of it agrees. Raises PackError, UserError, OSError."""
    found = contribution.read(path)
    contribution.findings(found, packs)  # every kernel is known, and takes its problems
    words = re.sub(r"[^a-z0-9]+", "-", found.run.profile.lower()).strip("-")
    folder = into / f"{words[:48]}-{found.sha256[:12]}"
    if (folder / export.FACTS).exists():
        say(out, f"{path}: was taken already, as {folder}")
        return True
    floor = max(pack.pack.manifest.policy.noise_floor for pack in packs)
    standing = Judge(found.run, floor, found.jobs).judged().standing
    if not standing:
        raise PackError("no_rows", "no problem was measured to the end", str(path))
    seed = secrets.randbits(32) if seed is None else seed
    drawn = sample.draw(standing, seed, rows)
    count = search.gpus_here(gpus)
    with contextlib.closing(search.open_evaluator(folder, count)) as evaluator:
        facts = evaluator.facts()
        unlike = _unlike(found.run, facts)
        if unlike:
            raise UserError(
                f"{path} is of {found.run.profile}, and the GPU here is {facts.name}, "
                f"with {'; '.join(unlike)}"
            )
        tasks = [_task(problem, standing[problem].best, packs) for problem in drawn]
        header: Line = {"contribution": found.sha256, "seed": seed}
        with progress(out, "measuring again") as tick:
            campaign.run(folder / CONFIRMED, tasks, evaluator, header, tick=tick, line_of=_line_of)
    lines = _lines(folder, drawn, standing)
    verdict = _judge(lines, standing)
    for problem, against in verdict.against.items():
        say(out, f"  {problem}: {against}")
    counted = f"{len(verdict.against)} of {verdict.rows} rows of the sample disagree (seed {seed})"
    if not verdict.accepted:
        say(out, f"{path}: refused: {counted}")
        return False
    confirmed = _fields(lines) if same(contribution.device_of(found), facts) else []
    export.write(contribution.findings(found, packs, confirmed), folder)
    say(
        out, f"{path}: taken: {counted}; {len(standing)} problems, {len(found.jobs)} jobs: {folder}"
    )
    say(out, f"next: hgemm-packs generate table {folder} -o TABLE")
    return True


def _unlike(run: Run, facts: DeviceFacts) -> tuple[str, ...]:
    """By what the GPU here is not the profile that was measured."""
    known = facts.theoretical_mem_bw_gbps or None, facts.power_limit_w or None
    here = DeviceInfo(facts.name, facts.arch, facts.sm_count, facts.l2_bytes, 0, *known)
    other = () if facts.arch == run.arch else (f"{facts.arch}, not {run.arch}",)
    return other + profiles.compare(profile_of(run), here).unlike


def _task(problem: Problem, kernel: str, packs: Sequence[Packed]) -> Task:
    pack = next(each for each in packs if kernel in {e.id for e in each.entries.values()})
    fields = {"problem": problem_values(problem), "kernel": kernel}
    return Task("confirm", problem, lambda: (pack.kernel(kernel),), fields)


def _line_of(task: Task, job: Job, reply: Reply) -> Line:
    """What a GPU here says of a kernel on a problem."""
    kernel = str(task.fields["kernel"])
    line: Line = {**task.fields, "fields": list(task.fields), "seed": job.seed}
    result = reply.results.get(kernel)
    if result is None or result.status is not Status.OK:
        failed = reply.evidence.get("failed", "no result")
        words = result.detail if result is not None else failed
        return {**line, "error": words, "blamed": result is not None}
    samples: dict[str, Any] = {
        protocol: {
            kernel: list(result.samples[protocol]),
            **{arm: list(each[protocol]) for arm, each in reply.baselines.items()},
        }
        for protocol in PROTOCOLS
    }
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {**line, "samples": samples, "evidence": dict(reply.evidence), "date": today}


def _lines(
    folder: Path, drawn: Sequence[Problem], standing: Mapping[Problem, Standing]
) -> list[Line]:
    """The last line of each problem of the sample."""
    found: dict[Problem, Line] = {}
    for line in campaign.answers([folder / CONFIRMED]):
        problem = problem_of(*line["problem"])
        if problem in drawn and line["kernel"] == standing[problem].best:
            found[problem] = line
    return list(found.values())


def _judge(lines: Sequence[Line], standing: Mapping[Problem, Standing]) -> Verdict:
    against: dict[Problem, str] = {}
    wrong = 0
    for line in lines:
        problem = problem_of(*line["problem"])
        if "error" in line:
            wrong, against[problem] = wrong + 1, str(line["error"])
        else:
            row = standing[problem].row
            against[problem] = sample.disagreement(row, line["kernel"], line["samples"])
    return sample.judge_sample(against, wrong, len(lines))


def _fields(lines: Sequence[Line]) -> list[Field]:
    """The sample as evidence of its own: of several confirmations the lowest counts."""
    found = []
    for line in lines:
        if "error" not in line:
            samples = {
                protocol: {arm: tuple(us) for arm, us in arms.items()}
                for protocol, arms in line["samples"].items()
            }
            statuses = {line["kernel"]: Status.OK}
            about = problem_of(*line["problem"]), "confirm", samples, statuses
            found.append(Field(*about, line["date"], line["evidence"]))
    return found
