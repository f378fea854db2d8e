"""What holds in every launch of a kernel, said to the compiler: two texts that it then makes the
same instructions of are one kernel.

Called by `judge`. A limit that no admitted size has, or a stride beside a size that it always is,
changes the code and no launch of it. That the compiler proves, which knows nothing of gates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import BuildError
from hgemm_packs.generator.gates.coverage import launches
from hgemm_packs.generator.gates.coverage.problems import at_once
from hgemm_packs.generator.redteam.mutation import same_code
from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.draw import Mutant
from hgemm_packs.generator.workers.builder import OF_SEVERAL
from hgemm_packs.pack.manifest import MAPPED

#: The last number of an int.
LAST_SIZE: Final = (1 << 31) - 1
WARP: Final = 32
OF_WARP: Final = "threadIdx.x / 32"


def are_one(mutant: Mutant) -> bool:
    """Whether a mutant's code and the honest kernel's compile to the same instructions once both
    are told what every launch by their one record keeps."""
    base, made = mutant.base, mutant.candidate
    if made.fields != base.fields or made.source == base.source:
        return False
    try:
        first, second = (
            compiler.build_source(_told(source, base.fields), base.fields)
            for source in (base.source, made.source)
        )
    except BuildError:
        return False
    return same_code.run_the_same(first.cubin, second.cubin)


def _told(source: str, fields: Mapping[str, Any]) -> str:
    """A source whose kernel begins with what it may take for granted."""
    code = Code(source)
    changes = [*_known(code, fields), code.open_kernel(" ".join(_said(fields, code.params)))]
    for change in sorted(changes, key=lambda each: each.start, reverse=True):
        source = code.apply(change)
        code = Code(source)
    return source


def _known(code: Code, fields: Mapping[str, Any]) -> Iterator[Change]:
    """What the code asks the device and the launch decides: the place in a cluster of one CTA, and
    the number of its warp that a lane gets from the first one."""
    if launches.ranks(fields) == 1:
        for function in code.functions:
            if function.name == "cluster_rank":
                yield code.put(function.body, "{ return 0; }")
    if int(fields["block"]) % WARP == 0:
        for node, given in code.calls("warp_uniform"):
            if [code.text(each) for each in given] == [OF_WARP]:
                yield code.put(node, f"(int)({OF_WARP})")


def _said(fields: Mapping[str, Any], params: frozenset[str]) -> Iterator[str]:
    """Statements of what csrc/launcher/cuda/launch.c makes of this record."""
    layout, grid = str(fields["param_layout"]), fields["grid"]
    if layout in OF_SEVERAL and "ldc" in params:
        yield "ldc = n;"  # C is packed
    most = {dim: int(fields["dims"][dim]["max"]) for dim in "mnk"}
    if not MAPPED[layout]:
        most["n"] = min(most["n"], launches.LARGEST_GRID_Y * int(grid["tile_n"]), LAST_SIZE)
    for dim in "mnk":
        rule = fields["dims"][dim]
        yield _holds(f"{dim} >= {rule['min']}")
        yield _holds(f"{dim} <= {most[dim]}")
        yield _holds(f"{dim} % {rule['multiple_of']} == 0")
    for one, other in itertools.combinations("mnk", 2):
        yield _holds(f"(i64){one} * {other} <= {most[one] * most[other]}")
    yield _holds(f"threadIdx.x < {fields['block']}")
    yield _holds("blockIdx.x < gridDim.x")
    ctas = [LAST_SIZE]  # the launcher refuses a larger grid
    if layout not in OF_SEVERAL:
        largest = launches.with_strides(fields, most["m"], most["n"], most["k"])
        ctas.append(launches.grid(fields, largest, None)[0])
    if grid.get("persistent") or fields.get("cooperative"):
        ctas.append(at_once(fields))
    yield _holds(f"gridDim.x <= {min(ctas)}")


def _holds(text: str) -> str:
    return f"__builtin_assume({text});"
