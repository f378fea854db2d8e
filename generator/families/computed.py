"""What kernels compute beyond the product: the gene that names an epilogue, and its macro.

Called by `base` for names and records, by the compiler for macros, by the search for the genomes of
a problem, and by the gates for what rounding may add. Twin of common/finish.cuh; touches no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hgemm_packs.problem import EPILOGUES

#: The gene of a kernel that computes more than a product; no other genome has it, so that names and
#: cubins of plain products are what they were. Its values are those of TABLE.
COMPUTES = "computes"
PLAIN = "none"
GATED = "gated_silu"

Genome = Mapping[str, int | str | bool]


class Epilogue(NamedTuple):
    """`function` is that of common/finish.cuh; `slope` is how steep it is at most, which is what it
    makes of an error of the sum."""

    function: str
    slope: float


TABLE: Mapping[str, Epilogue] = {
    "bias": Epilogue("identity", 1.0),
    "bias_relu": Epilogue("relu", 1.0),
    "bias_gelu": Epilogue("gelu", 1.13),
    "bias_gelu_tanh": Epilogue("gelu_tanh", 1.13),
    "bias_silu": Epilogue("silu", 1.1),
    "residual": Epilogue("identity", 1.0),
    GATED: Epilogue("silu", 1.1),
}
assert (PLAIN, *TABLE) == EPILOGUES


def epilogue_of(genome: Genome) -> str:
    """The epilogue of a kernel of this genome."""
    return str(genome.get(COMPUTES, PLAIN))


def compute_also(genome: Genome, epilogue: str) -> dict[str, int | str | bool]:
    """`genome` with another epilogue, which may be PLAIN; none other is checked here."""
    rest = {gene: value for gene, value in genome.items() if gene != COMPUTES}
    return rest if epilogue == PLAIN else {**rest, COMPUTES: epilogue}


def macros(genome: Genome) -> dict[str, int | str]:
    """The HGP_* definitions of an epilogue; none for a plain product, whose source stays as it
    was."""
    name = epilogue_of(genome)
    if name == PLAIN:
        return {}
    macro = "HGP_GATE" if name == GATED else "HGP_ACTIVATION"
    residual = {"HGP_RESIDUAL": 1} if name == "residual" else {}
    return {macro: TABLE[name].function} | residual
