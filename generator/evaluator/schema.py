"""What a model or trainer is told before it proposes: families with their genes, and a problem in
figures.

Called by the doors and by agents. A JSON schema lists the genes and values of a family; which of
them fit together only `families` knows, and the evaluator answers.
"""

from __future__ import annotations

import importlib
from typing import Any

from hgemm_packs.generator.compile import candidate
from hgemm_packs.generator.core.problems import regime
from hgemm_packs.generator.core.space import is_for
from hgemm_packs.generator.core.spec import DeviceFacts
from hgemm_packs.generator.families import FAMILIES, computed
from hgemm_packs.generator.families.free.places import sources_dir
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.pack.manifest import PARAM_LAYOUTS
from hgemm_packs.problem import Problem

EXAMPLE = "plain"  # a case of the corpus that passes
#: Genes that the problem decides: a proposal may leave them out.
OF_PROBLEM = ("layout", "dtype")
Document = dict[str, Any]


def genome_schema(name: str, problem: Problem | None = None) -> Document:
    """JSON schema of a family's genomes, for a problem without the genes that it decides. Raises
    KeyError for no family of products.

    >>> genome_schema("sm90_oneshot")["properties"]["k_slice"]["enum"][:2]
    [64, 128]
    """
    genes = FAMILIES[name].genes
    free = {gene: values for gene, values in genes.items() if gene not in OF_PROBLEM}
    properties: Document = {gene: {"enum": list(values)} for gene, values in free.items()}
    if problem is None:
        for gene in OF_PROBLEM:
            properties[gene] = {"enum": list(genes[gene])}
        properties[computed.COMPUTES] = {"enum": list(computed.TABLE)}
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(free),
        "additionalProperties": False,
    }


def choice_schema(problem: Problem) -> Document:
    """JSON schema of {"family": ..., "genome": {...}} over the families of a problem."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {"family": {"const": name}, "genome": genome_schema(name, problem)},
                "required": ["family", "genome"],
                "additionalProperties": False,
            }
            for name in families_for(problem)
        ]
    }


def families_for(problem: Problem) -> list[str]:
    """The families that have kernels of the problem's layout and type, and are for its sizes."""
    return [
        name
        for name, family in FAMILIES.items()
        if problem.layout in family.genes["layout"]
        and problem.dtype in family.genes["dtype"]
        and is_for(name, problem)
    ]


def families() -> Document:
    """Every family: what it is, and the schema of its genomes."""
    return {
        name: {"about": _about(name), "genome": genome_schema(name)} for name in sorted(FAMILIES)
    }


def _about(name: str) -> str:
    """The sentence that the family's module begins with."""
    module = importlib.import_module(FAMILIES[name].check.__module__)
    return " ".join((module.__doc__ or "").split("\n\n")[0].split())


def records() -> Document:
    """How to hand in free source: a record's fields with their defaults, what the parameters of
    each `param_layout` are in bytes, the headers to include, and an example that passes."""
    example = next(case.candidate for case in corpus.load() if case.name == EXAMPLE)
    assert example is not None
    said = (*candidate.REQUIRED, *candidate.DEFAULTS)
    headers = sources_dir() / "common"
    return {
        "required": list(candidate.REQUIRED),
        "defaults": {k: v for k, v in candidate.DEFAULTS.items() if k not in OF_PROBLEM},
        "optional": [*candidate.OPTIONAL, *OF_PROBLEM],
        "param_layouts": {name: list(sizes) for name, sizes in PARAM_LAYOUTS.items()},
        "headers": sorted(f"common/{path.name}" for path in headers.glob("*.cuh")),
        "example": {
            "source": example.source,
            "record": {name: example.fields[name] for name in (*said, "symbol")},
            "name": example.name,
        },
    }


def problem_facts(problem: Problem, device: DeviceFacts | None = None) -> Document:
    """A problem in figures: its regime, operations, bytes, operations a byte, the families for it,
    and on a device with known ceilings the least times in us that they allow."""
    flops, touched = plausibility.flops(problem), plausibility.compulsory_bytes(problem)
    found: Document = {
        "problem": str(problem),
        "regime": regime(problem.m, problem.n, problem.k),
        "flops": flops,
        "bytes": touched,
        "flops_per_byte": round(flops / touched, 2),
        "families": families_for(problem),
    }
    if device is not None and device.peak_tflops and device.peak_gbps:
        found["device"] = device.name
        for protocol in ("hot", "cold"):
            floor = plausibility.floor_us(problem, device, cold=protocol == "cold")
            found[f"least_{protocol}_us"] = round(floor, 3)
    return found
