"""A table with more kernels than its rows name: all that passed the numeric gate somewhere.

Called by `generate contenders`. The rows stay as they are; what the kernels are worth elsewhere is
for `generate measure rows` to find, which puts none through the gate again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.families import computed
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables.table import Usable, source_kernel


def add_proven(
    known: SourceManifest,
    found: Findings,
    usable: Usable,
    layouts: Sequence[str] = (),
    dtypes: Sequence[str] = (),
) -> SourceManifest:
    """The plain kernels and rows of `known` in these layouts and types (none given: all), with the
    plain kernels that are proven in `found`, refused nowhere, and `usable`."""

    def asked(layout: object, dtype: object) -> bool:
        return (not layouts or layout in layouts) and (not dtypes or dtype in dtypes)

    kernels = {
        kernel.id: kernel
        for kernel in known.kernels
        if asked(kernel.genome["layout"], kernel.genome["dtype"])
        and computed.epilogue_of(kernel.genome) == computed.PLAIN
    }
    fresh = {
        id_: found.kernels[id_]
        for id_ in found.proofs.keys() & found.kernels.keys()
        if id_ not in kernels and id_ not in found.refused
        if found.kernels[id_]["epilogue"] == computed.PLAIN
        if asked(found.kernels[id_]["layout"], found.kernels[id_]["dtype"])
    }
    for id_ in sorted(usable(fresh)):
        kernels[id_] = source_kernel(found, id_)
    rows = tuple(
        row
        for row in known.table
        if row.epilogue == computed.PLAIN and asked(row.layout, row.dtype)
        if {row.kernel, row.dependent} - {None} <= kernels.keys()
    )
    every = tuple(kernels[id_] for id_ in sorted(kernels))
    return replace(known, kernels=every, table=rows, grouped=(), predictors=())
