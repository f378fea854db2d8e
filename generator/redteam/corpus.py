"""The corpus: working cheats and bugs, each with the gate that must reject it, and odd kernels that
must pass.

`corpus.toml` lists the cases, `kernels/` holds their device code, each a change to the plain kernel
of `prelude.cuh`, which is put before all of them, or to that of `slices.cuh`, which shares K over
CTAs. A case is such a kernel or a family's, as it is or with a `change`. Read by `run` and by the
tests; compiles nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile import candidate
from hgemm_packs.generator.compile.candidate import Candidate
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.problem import Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
PASS = "pass"
#: The gates in the order in which a kernel meets them, and those that need no GPU.
GATES = (
    "static",
    "build",
    "binary",
    "dataflow",
    "coverage",
    "isolation",
    "numeric",
    "state",
    "sanitizer",
    "plausibility",
)
CPU_GATES = ("static", "build", "binary", "dataflow", "coverage", "plausibility")


@dataclass(frozen=True, slots=True)
class Claim:
    """A measurement that somebody reports: what the plausibility gate is asked about."""

    problem: Problem
    us_hot: float
    us_cold: float


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel or claim. `expect` names the gates of which one must reject it, the likeliest
    first; it is empty for what must pass. Gates in `fooled` are left out, as if the case had got
    past them: what stands behind them must hold alone.
    """

    name: str
    what: str
    expect: tuple[str, ...]
    fooled: tuple[str, ...]
    candidate: Candidate | None
    claim: Claim | None

    @property
    def honest(self) -> bool:
        return not self.expect

    @property
    def needs_gpu(self) -> bool:
        """Whether the gates that must reject it, or some that it must pass, run on a GPU."""
        return self.claim is None and not (set(self.expect) & set(CPU_GATES))


def _source(stem: str, record: Mapping[str, Any], sliced: bool) -> str:
    text = (KERNELS / f"{stem}.cu").read_text(encoding="utf-8")
    layout = record.get("layout", "nn")
    macros = {
        "HGP_BF16": int(record.get("dtype", "f16") == "bf16"),
        "A_T": int(layout[0] == "t"),
        "B_T": int(layout[1] == "t"),
    }
    preludes = ["prelude.cuh"]
    if sliced:
        macros["SLICES"] = record["grid"]["slices"]
        preludes.append("slices.cuh")
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return defines + "".join((HERE / f).read_text(encoding="utf-8") for f in preludes) + text


def _what(stem: str) -> str:
    """The sentence that a kernel's file begins with."""
    with (KERNELS / f"{stem}.cu").open(encoding="utf-8") as file:
        return file.readline().removeprefix("//").strip()


def _change_source(source: str, changes: Sequence[Sequence[str]]) -> str:
    """A source with each (text, other text). Raises KeyError where one is not there."""
    for text, other in changes:
        if text not in source:
            raise KeyError(text)
        source = source.replace(text, other)
    return source


def _case(name: str, entry: dict[str, Any], document: Mapping[str, Any]) -> Case:
    if "of" in entry:
        entry = {**document["case"][entry["of"]], **entry}
    expect = entry["expect"]
    gates = () if expect == PASS else (expect,) if isinstance(expect, str) else tuple(expect)
    made = claim = None
    what = entry.get("what", "")
    if "claim" in entry:
        values = dict(entry["claim"])
        times = values.pop("us_hot"), values.pop("us_cold")
        claim = Claim(Problem(**values), *times)
    elif "family" in entry:
        made = candidate.of_choice(Choice.of(entry["family"], entry["genome"]))
        made = replace(made, source=_change_source(made.source, entry.get("change", ())))
    else:
        stem = entry.get("kernel", name)
        sliced = entry.get("sliced", False)
        record = {**document["sliced" if sliced else "record"], **entry.get("record", {})}
        source = _change_source(_source(stem, record, sliced), entry.get("change", ()))
        made = candidate.candidate(name, source, record)
        what = what or _what(stem)
    return Case(name, what, gates, tuple(entry.get("fooled", ())), made, claim)


@cache
def load() -> tuple[Case, ...]:
    """Every case, in the order of corpus.toml. Raises CandidateError or KeyError when it is
    damaged."""
    document = tomllib.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))
    return tuple(_case(name, entry, document) for name, entry in document["case"].items())


@cache
def device_facts() -> DeviceFacts:
    """The machine that the claims are made of."""
    document = tomllib.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))
    return DeviceFacts(**document["device"])
