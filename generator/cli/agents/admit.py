"""`generate admit`: sources that won at an evaluator enter the folder of free sources."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.compile import free_sources
from hgemm_packs.generator.compile.candidate import CandidateError
from hgemm_packs.generator.compile.free_sources import Lineage
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.evaluator.candidate import Candidate, Source, Unreadable
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem


@app.command("admit", rich_help_panel=AGENTS)
def admit_sources(
    answers: Annotated[
        Path, typer.Argument(metavar="ANSWERS.jsonl", help="An evaluator's file of answers.")
    ],
    by: Annotated[str, typer.Option(help='Who wrote the sources: a model\'s name, or "hand".')],
    asked: Annotated[
        str, typer.Option(help="What was asked: a conversation, or the sha256 of a prompt.")
    ] = "none",
    parent: Annotated[
        str, typer.Option(help="Id of the kernel that the sources were to beat.")
    ] = "none",
) -> None:
    """Take sources that passed every gate and were faster than torch.

    Each goes into csrc/kernels/free with its lineage. No table names it yet: `generate measure
    free` measures what was taken.
    """
    out, taken = console(), 0
    for line in read_records([answers]):
        try:
            name, genome = _admit(line, by, asked, parent)
        except (CandidateError, Unreadable) as error:
            out.print(f"refused: {error}", soft_wrap=True)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{answers} has a line that is no answer: {error!r}") from None
        else:
            taken += 1
            out.print(f"taken: {name}, sha256 {genome['sha256']}", soft_wrap=True)
    if not taken:
        raise typer.Exit(1)


def _admit(line: dict[str, Any], by: str, asked: str, parent: str) -> tuple[str, Any]:
    """The name and the genome of the source of an answer. Raises CandidateError and Unreadable for
    what is not admitted, KeyError, TypeError and ValueError for what is no answer."""
    from hgemm_packs.generator.run import evaluate  # torch, which help needs not

    m, n, k, layout, dtype = line["problem"]
    problem = Problem(m, n, k, layout, dtype, epilogue=line["epilogue"])
    one, answer = Candidate.of_document(line["candidate"]), line["answer"]
    name = f"k{problem.m}x{problem.n}x{problem.k}_{problem.layout}_{problem.dtype}_{one.key[:8]}"
    if not one.is_source:
        raise CandidateError(f"{one.family}: the kernel of a family, which searches know")
    free_sources.check_gates(name, {each["gate"]: each["status"] for each in answer["gates"]})
    if answer["status"] != Status.OK.value:
        raise CandidateError(f"{name}: {answer['status']}, which is no win over torch")
    judged = hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
    made = one.read(problem)
    assert isinstance(made, Source)
    evaluate.check_again(name, made)
    lineage = Lineage(by, asked, parent, judged)
    return name, free_sources.admit(name, one.source, made, problem, lineage)
