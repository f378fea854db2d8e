"""What somebody proposes, as yet unread: a genome of a family, or CUDA source with its launch
record.

Made by models, trainers and the doors, from JSON or by hand. Reading one runs and compiles nothing,
and raises one error, whatever is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hgemm_packs.generator.compile import candidate as sources
from hgemm_packs.generator.core.space import read_choice
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.problem import Problem

#: A source with its record, read and checked.
Source = sources.Candidate

#: The fields of the two kinds of proposals, as JSON has them; of the second, "name" may be left
#: out.
OF_GENOME, OF_SOURCE = frozenset(("family", "genome")), frozenset(("source", "record"))


class Unreadable(ValueError):
    """A proposal that names no kernel; the message says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal: `family` with `genome`, or `source` with `record`, of which the others are empty.

    `record` holds launch-record fields by their manifest names, as docs/candidate.md lists them.
    Nothing is checked here but that the values are of these kinds: what is wrong with a proposal is
    the evaluator's answer to it.

    >>> Candidate.of_genome("sm90_gemv", {"mi": 1}).family
    'sm90_gemv'
    """

    family: str = ""
    genome: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    name: str = "kernel"

    @classmethod
    def of_genome(cls, family: str, genome: Mapping[str, Any]) -> Candidate:
        """A family's kernel. Genes that the problem decides (layout, dtype) may be left out."""
        return cls(family=family, genome=dict(genome))

    @classmethod
    def of_source(cls, source: str, record: Mapping[str, Any], name: str = "kernel") -> Candidate:
        """Free CUDA source, device code alone; `name` is the kernel's symbol unless `record` says
        "symbol"."""
        return cls(source=source, record=dict(record), name=name)

    @classmethod
    def of_document(cls, document: Any) -> Candidate:
        """The proposal of a JSON object. Raises Unreadable where it has other fields or kinds."""
        if not isinstance(document, Mapping):
            raise Unreadable("a candidate is a JSON object")
        given = document.keys()
        if given != OF_GENOME and given - {"name"} != OF_SOURCE:
            raise Unreadable(
                'a candidate has "family" and "genome", or "source", "record" and perhaps "name"; '
                f"not {sorted(map(str, given))}"
            )
        for name, kind, words in (
            ("family", str, "a string"),
            ("source", str, "a string"),
            ("name", str, "a string"),
            ("genome", Mapping, "an object"),
            ("record", Mapping, "an object"),
        ):
            if name in document and not isinstance(document[name], kind):
                raise Unreadable(f"{name!r} of a candidate is {words}")
        return cls(**document)

    @property
    def is_source(self) -> bool:
        return not self.family and bool(self.source or self.record)

    def document(self) -> dict[str, Any]:
        """What `of_document` reads."""
        if not self.is_source:
            return {"family": self.family, "genome": dict(self.genome)}
        return {"source": self.source, "record": dict(self.record), "name": self.name}

    @property
    def key(self) -> str:
        """sha256 of the canonical JSON: equal proposals have equal keys. Raises TypeError or
        ValueError for values that JSON has not."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, problem: Problem) -> Choice | Source:
        """The choice, or the source with its whole record. Raises Unreadable.

        A source is taken to be written for the problem: its layout, dtype and epilogue are those of
        the problem where its record does not say others.
        """
        try:
            if not self.is_source:
                return read_choice(self.document(), problem)
            self.source.encode()  # half a character is in no file
            of_problem = {"layout": problem.layout, "dtype": problem.dtype}
            if problem.epilogue != "none":
                of_problem["epilogue"] = problem.epilogue
            return sources.candidate(self.name, self.source, {**of_problem, **self.record})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise Unreadable(str(error)) from None
