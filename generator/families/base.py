"""What a family provides, and what all families share: names, macros, record fields.

Called by the build service and the search; never touches a GPU or a compiler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.families.computed import COMPUTES
from hgemm_packs.pack.manifest import OF_BATCH, PARAM_LAYOUTS, WITH_ADDEND
from hgemm_packs.problem import WITHOUT_ADDEND

Genome = Mapping[str, int | str | bool]

SMEM_LIMIT_BYTES = 232448  # dynamic shared memory that one sm_90 CTA can have
SM_BYTES = 233472  # shared memory of an SM
LARGEST = 1 << 24  # bound of M, N and K: products of two stay far inside 64 bits
LARGEST_SIDE = 32768  # bound of M and N where tiles are found by quick_quotient, for 2^20 tiles
LARGEST_GRID_Y = 65535  # tiles along N where the grid has two dimensions (`ptr_v1`)


class InvalidGenome(ValueError):
    """A genome that breaks a constraint of its family; the message names the constraint."""


#: Genes that came after kernels were measured, with the value at which those are the same: it is
#: left out of their names.
UNNAMED: Mapping[str, int | str | bool] = {
    "reads_ahead": False,
    "triggers_early": False,
    "cp_async": False,
    "wide": False,
}
#: Genes of kernels that may read A and B before they wait for the grid ahead, and then also let the
#: next grid start (CUDA's programmatic trigger) before that has ended.
AHEAD: dict[str, tuple[int | str | bool, ...]] = {
    "reads_ahead": (False, True),
    "triggers_early": (False, True),
}


@dataclass(frozen=True, slots=True)
class Family:
    """One kernel design.

    `genes` maps each gene to its values (but COMPUTES, which all families have alike), `check`
    calls `require`, `macros` gives the HGP_* definitions and `record` the launch-record fields that
    depend on the genome.
    """

    name: str
    source: str
    genes: dict[str, tuple[int | str | bool, ...]]
    check: Callable[[Genome], None]
    macros: Callable[[Genome], dict[str, int | str]]
    record: Callable[[Genome], dict[str, Any]]
    #: operator -> the genes that it moves together
    operators: dict[str, tuple[str, ...]]
    #: Whether a CTA adds up all of K that it reads in one float32 accumulator, by wgmma of 16 of K
    #: after each other from the lowest on, whatever its other genes, and the bits of its kernels
    #: were measured: where no CTAs share a tile by K, kernels of such families give the same bits
    #: (hgemm_packs/pack/batch_invariant.py).
    in_order: bool = False
    #: calls `require` of a genome that is to compute silu(gate) * up; None where the family cannot
    gated: Callable[[Genome], None] | None = None
    #: Whether its kernels run batches of products, and these alone.
    batched: bool = False
    #: What its kernels may do that the data-flow gate or the size gate refuses others, by the names
    #: that `exceptions.py` of either gives reasons for.
    exceptions: tuple[str, ...] = ()

    def stem(self, genome: Genome) -> str:
        """The source of a genome's kernel, below the folder of sources."""
        return self.source

    def whole(self, genome: Genome) -> dict[str, int | str | bool]:
        """`genome` with those of UNNAMED that it is too old to have: the same kernel."""
        absent = self.genes.keys() - genome.keys()
        return {**genome} | {gene: same for gene, same in UNNAMED.items() if gene in absent}

    def validate(self, genome: Genome) -> None:
        """Raise InvalidGenome unless every gene is present and in its set and all fit together."""
        if genome.get(COMPUTES, "bias") not in (*computed.TABLE,):  # a list has no hash
            raise InvalidGenome(
                f"{self.name}: {COMPUTES}={genome[COMPUTES]!r} is not one of {(*computed.TABLE,)}"
            )
        plain = computed.compute_also(genome, computed.PLAIN)
        if set(plain) != set(self.genes):
            raise InvalidGenome(
                f"{self.name}: genes must be {sorted(self.genes)}, not {sorted(plain)}"
            )
        for gene, value in plain.items():
            if value not in self.genes[gene] or type(value) is not type(self.genes[gene][0]):
                raise InvalidGenome(
                    f"{self.name}: {gene}={value!r} is not one of {self.genes[gene]}"
                )
        try:
            self.check(genome)
            if computed.epilogue_of(genome) == computed.GATED:
                require(self.gated is not None, f"no {computed.GATED} kernels")
                assert self.gated is not None
                self.gated(genome)
        except InvalidGenome as error:
            raise InvalidGenome(f"{self.name}: {error}") from None

    def is_valid(self, genome: Genome) -> bool:
        """Whether `validate` passes."""
        try:
            self.validate(genome)
        except InvalidGenome:
            return False
        return True

    def space(self, **fixed: int | str | bool) -> Iterator[Genome]:
        """Every valid genome with the given genes fixed, in the order of the gene sets.

        Raises InvalidGenome when a fixed gene is none of this family's.
        """
        names = [*self.genes, *({COMPUTES} & fixed.keys())]
        if not fixed.keys() <= set(names):
            raise InvalidGenome(f"{self.name}: no genes {sorted(fixed.keys() - set(names))}")

        def extend(genome: Genome, rest: list[str]) -> Iterator[Genome]:
            if not rest:
                if self.is_valid(genome):
                    yield dict(genome)
                return
            gene = rest[0]
            for value in (fixed[gene],) if gene in fixed else self.genes[gene]:
                yield from extend({**genome, gene: value}, rest[1:])

        yield from extend({}, names)

    def kernel_name(self, genome: Genome) -> str:
        """Name and symbol: family, layout, accumulator, tile, and a hash of the whole genome."""
        grid = self.record(genome)["grid"]
        named = {gene: value for gene, value in genome.items() if UNNAMED.get(gene) != value}
        text = json.dumps({"family": self.name, **named}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        arch, design = self.name.split("_", 1)
        tile = f"{grid['tile_m']}x{grid['tile_n']}"
        return f"{arch}_hgemm_{genome['layout']}_{genome['dtype']}_f32acc_{design}_{tile}_{digest}"

    def fields(self, genome: Genome) -> dict[str, Any]:
        """All manifest fields that follow from the genome; id, size and registers come from the
        build. Raises InvalidGenome."""
        self.validate(genome)
        name = self.kernel_name(genome)
        record = self.record(genome)
        epilogue = computed.epilogue_of(genome)
        if epilogue not in WITHOUT_ADDEND:
            record["param_layout"] = WITH_ADDEND[record["param_layout"]]
        if self.batched:
            record["param_layout"] = OF_BATCH[record["param_layout"]]
        return {
            "name": name,
            "symbol": name,
            "family": self.name,
            "genome": dict(sorted(genome.items())),
            "param_sizes": list(PARAM_LAYOUTS[record["param_layout"]]),
            "workspace_bytes": 0,
            "align": {"a": 16, "b": 16, "c": 16},
            "dtype": genome["dtype"],
            "out_dtype": genome["dtype"],
            "acc": "f32",
            "layout": genome["layout"],
            "epilogue": epilogue,
            "deterministic": True,
            **record,
        }


def check_ahead(genome: Genome) -> None:
    """Behind one that reads nothing ahead, grids that start early would only wait."""
    require(
        bool(genome["reads_ahead"]) or not genome["triggers_early"],
        "only what reads ahead triggers early",
    )


def ahead_macros(genome: Genome) -> dict[str, int | str]:
    """The HGP_* definitions of the genes AHEAD."""
    return {f"HGP_{gene.upper()}": int(bool(genome[gene])) for gene in AHEAD}


def ahead_fields(genome: Genome) -> dict[str, bool]:
    """The manifest fields of a kernel that reads A and B before it waits for the grid ahead."""
    return {gene: True for gene in AHEAD if genome[gene]}


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for positive integers."""
    return -(-a // b)


def number(genome: Genome, gene: str) -> int:
    """The value of a gene that is a number."""
    return int(genome[gene])


def require(ok: bool, text: str) -> None:
    """Raise InvalidGenome(text) unless `ok`; `Family.validate` adds the family's name."""
    if not ok:
        raise InvalidGenome(text)


def smem_room(ctas_per_sm: int) -> int:
    """Bytes of dynamic shared memory for each of so many CTAs of an SM: the system takes 1024 of
    each, 512 stay for barriers."""
    return SM_BYTES // ctas_per_sm - 1536


def register_room(threads: int, ctas_per_sm: int) -> int:
    """Registers a thread can have: four partitions of 512 a lane, in steps of 8."""
    return min(255, 512 // ceil_div(threads // 32 * ctas_per_sm, 4) // 8 * 8)


def common_macros(genome: Genome, *genes: str) -> dict[str, int | str]:
    """Macros that every family's source needs, element type and how A and B are stored, and those
    of `genes`, which are numbers."""
    layout = str(genome["layout"])
    return {
        "HGP_BF16": int(genome["dtype"] == "bf16"),
        "HGP_A_MN_MAJOR": int(layout[0] == "t"),
        "HGP_B_MN_MAJOR": int(layout[1] == "n"),
        **{f"HGP_{gene.upper()}": number(genome, gene) for gene in genes},
    }


def dims(m: int = 1, n: int = 8, k: int = 8) -> dict[str, dict[str, int]]:
    """Admitted problem sizes, given what each of M, N and K must be a multiple of."""
    multiples = {"m": m, "n": n, "k": k}
    return {
        d: {"min": x, "max": LARGEST - LARGEST % x, "multiple_of": x} for d, x in multiples.items()
    }


def dims_ptr(tile_n: int, m: int = 1, n: int = 8, k: int = 8) -> dict[str, dict[str, int]]:
    """`dims` of a `ptr_v1` kernel; `tile_n` is a multiple of `n`."""
    sizes = dims(m, n, k)
    sizes["n"]["max"] = min(sizes["n"]["max"], LARGEST_GRID_Y * tile_n)
    return sizes
