"""Prompts made of parts, each of which says where it came from.

Every role that asks a model builds a `Prompt` here; `show` prints one as the model gets it with the
source of each part beside it, so that nobody has to guess what a model knew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hgemm_packs.generator.agents import schemas
from hgemm_packs.generator.agents.archive import Example
from hgemm_packs.generator.agents.words import Hypothesis
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import DeviceFacts
from hgemm_packs.generator.families.free.places import sources_dir
from hgemm_packs.generator.llm.words import Message
from hgemm_packs.problem import Problem, regime

NOTES = Path(__file__).resolve().parent / "notes"
#: Characters of one example's source; a part that is longer is cut and says so.
MOST_SOURCE = 12_000
_DECLARATION = re.compile(r"^__device__ __forceinline__ (.+?\))(?= \{|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt. `source` names the file, store or role that it came from."""

    title: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a role asks: its rules, and parts in their order."""

    role: str
    rules: Part
    parts: tuple[Part, ...]

    def messages(self) -> list[Message]:
        """The two messages that a model is sent."""
        body = "\n\n".join(f"## {part.title}\n{part.text.strip()}" for part in self.parts)
        return [Message("system", self.rules.text.strip()), Message("user", body)]

    def show(self) -> str:
        """The prompt for a reader: each part with where it came from."""
        lines = [f"=== prompt of the {self.role} ==="]
        for part in (self.rules, *self.parts):
            lines += [f"--- {part.title}  [from {part.source}]", part.text.strip()]
        return "\n".join(lines)

    @classmethod
    def of_document(cls, document: Any) -> Prompt:
        """What `dataclasses.asdict` wrote. Raises KeyError or TypeError."""
        parts = tuple(Part(**each) for each in document["parts"])
        return cls(str(document["role"]), Part(**document["rules"]), parts)

    def with_parts(self, *parts: Part) -> Prompt:
        return replace(self, parts=(*self.parts, *parts))


def note(name: str, title: str) -> Part:
    """A page of `notes/`."""
    path = NOTES / f"{name}.md"
    return Part(title, path.read_text(encoding="utf-8"), f"generator/agents/notes/{path.name}")


def task(problem: Problem, device: DeviceFacts) -> Part:
    """The problem, and the machine."""
    sizes = f"C[{problem.m},{problem.n}] = A[{problem.m},{problem.k}] B[{problem.k},{problem.n}]"
    text = (
        f"{sizes}, {problem.dtype} operands and result, float32 sums, layout {problem.layout} "
        f"(n: as written, t: stored transposed), epilogue {problem.epilogue}, kind "
        f"{regime(problem.m, problem.n, problem.k)}.\n"
        f"The machine: {device.name}, {device.arch}, {device.sm_count} SMs, "
        f"{device.l2_bytes >> 20} MiB of L2."
    )
    return Part("The problem", text, "the problem asked for and the device's facts")


def genes(space: Space, names: Iterable[str]) -> Part:
    """The genes of families of the space with the values that they may have there; those that the
    problem decides are left out."""
    lines = []
    for name in names:
        lines.append(f"{name}:")
        found = schemas.values(space, name).items()
        lines += [f"  {gene}: {json.dumps(list(values))}" for gene, values in found]
    return Part("Families and their genes", "\n".join(lines), "generator/families")


def facts(title: str, values: Mapping[str, Any], source: str) -> Part:
    """Figures, a line each."""
    return Part(title, "\n".join(f"{name}: {_figure(v)}" for name, v in values.items()), source)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def examples(found: Sequence[Example]) -> Part | None:
    """Kernels with their times, the fastest first: what a model is to tell apart."""
    if not found:
        return None
    lines, sources = [], []
    for each in found:
        lines.append(
            f"### {each.rank}: {each.us:.3f} us, {each.speedup:.3f}x torch on {each.problem}"
        )
        lines.append(f"limited by {each.kind}" if each.kind else "")
        lines.append(code(each.candidate))
        sources.append(f"{each.rank} {each.source}")
    text = "\n".join(line for line in lines if line)
    return Part("Kernels that were measured", text, "; ".join(sources))


def code(candidate: Mapping[str, Any]) -> str:
    """A candidate as text: a genome as JSON, or the record and the source."""
    if "source" not in candidate:
        return json.dumps(candidate)
    record = json.dumps(candidate.get("record", {}))
    return f"record: {record}\n```cuda\n{_cut(str(candidate['source']))}\n```"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SOURCE else f"{text[:MOST_SOURCE]}\n// (cut here)"


def dead_ends(closed: Sequence[tuple[Hypothesis, str]]) -> Part | None:
    """Hypotheses that came to nothing, each with what became of it."""
    if not closed:
        return None
    lines = [f"- {hypothesis.words}: {why}" for hypothesis, why in closed]
    return Part("Tried without gain; do not repeat", "\n".join(lines), "this run's journal")


@cache
def instructions() -> Part:
    """Every device function that a kernel may call by including our headers."""
    lines = []
    for path in sorted((sources_dir() / "common").glob("*.cuh")):
        names = _DECLARATION.findall(path.read_text(encoding="utf-8"))
        if names:
            lines += [f'#include "common/{path.name}"', *(f"  {name};" for name in names)]
    return Part("Instructions with a name", "\n".join(lines), "csrc/kernels/common")
