"""What needs no run: `generate eval` of a kernel, `redteam` of all gates, `doctor` of the host."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hgemm_packs import report
from hgemm_packs.cli.console import UserError, console, progress
from hgemm_packs.generator.cli import doctor as doctor_checks
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.cli.app import GATES, LOOK, app
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.candidate import Candidate, load
from hgemm_packs.generator.compile.compiler import generator_info
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.evaluator import DEVICES
from hgemm_packs.generator.families import computed
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.redteam.book import Book
from hgemm_packs.problem import ALIGNMENTS, Alignments, Problem

LOG_S = 15.0  # from one line of a log to the next


@app.command("eval", rich_help_panel=LOOK)
def evaluate_one(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help='FILE.cu with FILE.toml beside it; {"family": ..., "genome": {...}}; or the name '
            "of a case of the red team.",
        ),
    ],
    m: Annotated[int, typer.Argument(metavar="M", min=1, help="Rows of A and C.")],
    n: Annotated[int, typer.Argument(metavar="N", min=1, help="Columns of B and C.")],
    k: Annotated[int, typer.Argument(metavar="K", min=1, help="Columns of A, rows of B.")],
    layout: Annotated[
        str | None, typer.Option(help="Storage of A and B. Default: as FILE.toml says, else nt.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Type of A, B and C. Default: as FILE.toml says, else f16.")
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            metavar="A,B,C", help="Bytes, of 2, 4, 8 and 16, that divide addresses (and strides)."
        ),
    ] = "16,16,16",
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Operands with gaps between their rows.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help=f"{DEVICES} Default: gpu, else none.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")
    ] = False,
) -> None:
    """Put one kernel through every gate; with a GPU, also time it.

    FILE.toml is the launch record of FILE.cu, in the words of a pack's manifest. It must say
    `block` (threads of a CTA) and `grid` (`tile_m` and `tile_n`: the part of C of one CTA).

    It may say `symbol` (the kernel's name in FILE.cu; default: FILE), `layout` (default: nn),
    `dtype` (f16 or bf16), `param_layout` (the kernel's parameters; default: ptr_v1), `tma`,
    `cluster`, `smem_bytes`, `workspace_bytes`, `align`, `dims`, `acc`, `epilogue` (default:
    none), `cooperative`, `reads_ahead` and `triggers_early`. An example: block = 32, then
    grid = { tile_m = 16, tile_n = 8 }.

    docs/candidate.md of the repository has a kernel with its record, and every field.
    """
    from hgemm_packs.generator.evaluator.evaluator import Evaluator

    lies = _bytes(base)
    plain = Problem(m, n, k, layout or "nt", dtype or "f16", base=lies, packed=not gaps)
    out, one = console(), _kernel(what, plain)
    if isinstance(one, Candidate):
        kind = (layout or str(one.fields["layout"]), dtype or str(one.fields["dtype"]))
        epilogue = str(one.fields["epilogue"])
        problem = Problem(m, n, k, *kind, epilogue=epilogue, base=lies, packed=not gaps)
    else:
        problem = replace(plain, epilogue=computed.epilogue_of(one.genome))
    place = device_named(device)
    answer = Evaluator(place).judge(one, problem)
    if as_json:
        typer.echo(json.dumps(answer.document(), indent=1))
    else:
        rows = Table("gate", "verdict", "detail")
        for verdict in answer.verdicts:
            detail = verdict.detail or str(verdict.evidence.get("skipped", ""))
            rows.add_row(verdict.gate, verdict.status.value, detail)
        out.print(rows)
        if answer.correct:
            out.print(answer.words)
        if place is None:
            out.print("this machine has no GPU: the gates that run the kernel were left out")
    if not answer.verdict.passed:
        raise typer.Exit(1)


def device_named(words: str | None) -> Any:
    """The device of an evaluator that an option names: by default the first GPU, none where there
    is none. Raises UserError."""
    if words is None:
        import torch

        return 0 if torch.cuda.is_available() else None
    from hgemm_packs.generator.evaluator.places import open_device

    try:
        return open_device(words)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from None


def _bytes(text: str) -> Alignments:
    """What --base names. Raises UserError."""
    found = tuple(int(word) if word.isdecimal() else 0 for word in text.split(","))
    if len(found) != 3 or not {*found} <= {*ALIGNMENTS}:
        raise UserError(f"--base is three of {ALIGNMENTS}, as 16,2,8; not {text!r}")
    return found


def _kernel(what: str, problem: Problem) -> Candidate | Choice:
    """What the argument of `eval` names. Raises UserError, CandidateError, OSError, ValueError."""
    path = Path(what)
    if path.suffix == ".cu" and path.resolve().parent != corpus.KERNELS:
        return load(path)
    if path.suffix == ".cu" or re.fullmatch(r"\w+", what):
        case = {case.name: case for case in corpus.load()}.get(path.stem)
        if case is None or case.candidate is None:
            raise UserError(f"{what!r} is neither FILE.cu, nor JSON, nor a case of the red team")
        return case.candidate
    document = _document(what)
    genome = document.get("genome") if isinstance(document, dict) else None
    epilogue = computed.epilogue_of(genome) if isinstance(genome, dict) else computed.PLAIN
    return Space(replace(problem, epilogue=epilogue)).parse(document)


def _document(text: str) -> Any:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UserError(f"{text!r} is neither FILE.cu nor JSON: {error}") from None
    name = document.get("family", "") if isinstance(document, dict) else ""
    if not isinstance(name, str):
        raise UserError(f"there is no kernel family {name!r}")
    return document


@app.command(rich_help_panel=GATES)
def redteam(
    out_file: Annotated[Path, typer.Option("--out", help="JSON file of verdicts to write.")] = Path(
        "redteam.json"
    ),
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Also check the gates that run kernels.")
    ] = False,
    names: Annotated[
        list[str] | None,
        typer.Option("--case", help="Check only the case of this name. Repeatable."),
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="Commit of the sources. Default: the commit that git names.")
    ] = None,
    mutate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="In place of the corpus, N faults drawn by --seed."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="What --mutate draws by.")] = 1,
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Of --mutate at a time. Default: one a CPU.")
    ] = None,
) -> None:
    """Check the gates: they must reject cheats and pass honest kernels.

    Each cheat of the corpus must be rejected by the gate that it was written for. Without --gpu,
    cases that need a GPU stay undecided. With it, a killed run goes on from the file of FILE's name
    in .jsonl.

    With --mutate, faults of every kind are planted in honest kernels of every family, the same
    ones at the same seed. FILE gets the shares that the gates catch and names what got through;
    each mutant has a line in the file of that name in .jsonl, from which a killed run goes on.
    """
    from hgemm_packs.generator.redteam import run as corpus_run

    out = console()
    if gpu:
        search.gpus_here()
    check_writable(out_file)  # minutes before it is written
    commit = commit or generator_info().commit
    if mutate is not None:
        if names:
            raise UserError(
                "--case names cases of the corpus, and --mutate draws faults in its place"
            )
        _mutate(out_file, mutate, seed, gpu, processes, commit)
        return
    corpus_run.choose(corpus.load(), names or ())
    try:
        book = Book.open(out_file.with_suffix(".jsonl"), commit) if gpu else None
    except ValueError as error:  # lines of another commit
        raise UserError(f"{error}: name another file by --out") from None
    with progress(out, "red team") as tick:
        result = corpus_run.run("gpu" if gpu else "cpu", tick, names=names or (), book=book)
    found = {
        "commit": commit,
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
    if found["undecided"]:
        out.print(f"{found['undecided']} cases are undecided: only --gpu decides them")
    if not result.clean:
        raise typer.Exit(1)


def _mutate(
    out_file: Path, count: int, seed: int, gpu: bool, processes: int | None, commit: str
) -> None:
    """Run mutants and write their figures; say what got through. Raises UserError."""
    from hgemm_packs.generator.gates import sanitizer
    from hgemm_packs.generator.redteam.mutation import judge, report, run

    out = console()
    device = 0 if gpu else None
    plan = run.Plan(seed, count, out_file.with_suffix(".jsonl"), processes, device, commit)
    try:
        with progress(out, "mutants") as tick:
            lines = run.run(plan, tick if out.is_terminal else _logged(out, "mutants"))
    except ValueError as error:  # lines of another run
        raise UserError(f"{error}: name another file by --out") from None
    except sanitizer.SanitizerUnavailable as error:
        raise UserError(f"{error}: without it no mutant has passed every gate") from None
    found = report.document(lines.values(), plan.seed)
    about = {"commit": commit, "device": _device() if gpu else "none"}
    write_atomically(out_file, (json.dumps(about | found, indent=1) + "\n").encode())
    rows = Table("kind", "planted", "caught", "share", "by")
    for kind, sums in [*found["by"]["kind"].items(), ("all", found)]:
        gates = ", ".join(f"{gate} {count}" for gate, count in sums["by_gate"].items())
        share = "" if sums["caught_share"] is None else f"{sums['caught_share']:.1%}"
        rows.add_row(kind, str(sums["planted"]), str(sums["caught"]), share, gates)
    out.print(rows)
    for each in found["through"]:
        place = f"{each['family']} {each['where']} line {each['line']}"
        out.print(f"{each['outcome']}: mutant {each['number']}, {each['operator']}, {place}")
    if found[judge.UNDECIDED]:
        out.print(f"{found[judge.UNDECIDED]} mutants are undecided: only --gpu decides them")


def _logged(out: Console, text: str) -> Callable[[int, int], None]:
    """Progress in a log: a line each LOG_S seconds, for a run that may be killed."""
    due = 0.0

    def tick(done: int, total: int) -> None:
        nonlocal due
        if time.monotonic() >= due or done == total:
            due = time.monotonic() + LOG_S
            out.print(f"{text}: {done} of {total}")

    return tick


def check_writable(path: Path) -> None:
    """Raise OSError where the file could not be written; leave it as it is."""
    there = path.exists()
    path.open("a", encoding="utf-8").close()
    if not there:
        path.unlink()


def _device() -> str:
    """The first GPU, its driver and torch, in words."""
    import torch

    versions = report.runtime_versions(0)
    name = torch.cuda.get_device_name(0)
    return f"{name}, driver {versions.get('driver', 'unknown')}, torch {versions['torch']}"


@app.command(rich_help_panel=LOOK)
def doctor() -> None:
    """Say what this machine lacks to generate a pack."""
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
