"""An export with kernels of known times, for remeasure."""

from __future__ import annotations

from dataclasses import replace

from hgemm_packs.generator.core.space import admits, catalogue
from hgemm_packs.generator.devices.sim import SimDevice, fake_kernel
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Field, Findings
from tests.generator.command import PROBLEMS, machine
from tests.generator.found import DATE, NOISE, PROOF

#: Kernels that any of PROBLEMS may run, none of which fails on the command's GPU, and their ids.
FIT = [c for c in catalogue("nt", "f16") if all(admits(c, p) for p in PROBLEMS)]
CHOICES = [choice for choice in FIT if not machine().fault(choice)][:6]
A, B, C, D, E, F = (fake_kernel(choice).id for choice in CHOICES)
FIRST, SECOND, THIRD = PROBLEMS
TORCH = (12.0, 14.0)


def older(*fields: Field, **changes: object) -> Findings:
    """An export's findings, of kernels that the simulated compiler makes, on the simulated GPU."""
    kernels = {fake_kernel(c).id: dict(fake_kernel(c).fields) for c in CHOICES}
    values = {
        "device": replace(SimDevice(1).facts, uuid_hash="", peak_tflops=800.0, peak_gbps=4000.0),
        "fields": fields,
        "trials": (Field(FIRST, "noise", {}, {}, DATE, NOISE),),
        "proofs": dict.fromkeys(kernels, PROOF),
        "kernels": kernels,
        "runs": ({"id": "0", "started": 1.0, "strategy": "portfolio"},),
    }
    return export.union([Findings(**values | changes)])  # type: ignore[arg-type]


def over(hot: float, cold: float) -> tuple[float, float]:
    """Times of a kernel by its speed-ups."""
    return TORCH[0] / hot, TORCH[1] / cold
