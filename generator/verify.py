"""Every kernel of a pack through the numeric gate on one GPU; what `hgemm-packs verify` runs where
there is one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hgemm_packs import launcher
from hgemm_packs.errors import PackError
from hgemm_packs.generator.gates import numeric
from hgemm_packs.pack import Pack


@dataclass(frozen=True, slots=True)
class Result:
    """Verdict on one kernel; `detail` is empty or says what failed."""

    name: str
    ok: bool
    max_rel_err: float
    shapes_tested: int
    detail: str


def verify_kernels(
    pack: Pack, device: int = 0, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Result]:
    """Run the numeric gate on each kernel of `pack` on CUDA device `device`, with fresh seeds.

    `progress(done, total)` is called after each kernel. Wrong kernels are results, not exceptions.
    """
    sm_count = launcher.device_info(device).sm_count
    place = torch.device("cuda", device)
    results = []
    for entry in pack.manifest.kernels:
        try:
            kernel = launcher.load(device, entry, pack.image(entry))
            verdict = numeric.check(
                entry,
                lambda a, b, c, kernel=kernel: launcher.launch(kernel, a, b, c),
                place,
                sm_count,
                secrets.randbits(48),
            )
            results.append(Result(entry.name, True, verdict.max_rel_err, verdict.shapes_tested, ""))
        except (numeric.NumericError, PackError, RuntimeError) as error:
            results.append(Result(entry.name, False, float("nan"), 0, str(error)))
        progress(len(results), len(pack.manifest.kernels))
    return results
