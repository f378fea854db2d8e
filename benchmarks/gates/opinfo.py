"""torch's own samples of its products under `enabled()` and through `matmul`, counted.

python -m benchmarks.gates.opinfo OUT.json [--cpu]

On a GPU with the packs on HGEMM_PACKS_PATH, or with --cpu on the CPU, where torch runs all of them.
Ends with 1 where a sample differs from torch's own result.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch

import hgemm_packs
from hgemm_packs import dispatch
from tests import opinfo

#: DLPack's number for the CPU, and a driver that is none.
CPU, NO_DRIVER = 1, "libnone.so"


def report(tally: opinfo.Tally, device: str) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "torch": torch.__version__,
        "run": tally.run,
        "failed": len(tally.failures),
        "hits": tally.hits,
        "skipped": dict(sorted(tally.skipped.items())),
        "failures": tally.failures,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--cpu", action="store_true", help="no GPU: torch runs every sample")
    asked = parser.parse_args()
    device = "cpu" if asked.cpu else "cuda"
    if asked.cpu:
        dispatch.start(NO_DRIVER, CPU)
    tally = opinfo.Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's tests warn of what is not installed
        opinfo.check(device, hgemm_packs.matmul, tally)
    found = report(tally, device)
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found | {"failures": tally.failures[:5]}, indent=1))
    return int(bool(tally.failures) or not tally.run)


if __name__ == "__main__":
    raise SystemExit(main())
