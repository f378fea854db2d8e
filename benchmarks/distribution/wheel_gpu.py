"""The wheels as a user has them, on a GPU: an environment with torch alone, core and data wheel
installed into it, one row that names each kernel of the pack (for each way to launch it, of which
both are loaded and the plain one runs) through `matmul`.

    python -m benchmarks.distribution.wheel_gpu CORE.whl DATA.whl --out OUT.json

Values are compared with float64; every call must be a hit. Needs a GPU that the pack has a profile
of; without one every call goes to torch and the result says so. Times nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.distribution.wheels import installed  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "distribution" / "wheel_gpu.json"

# Runs where nothing but torch and the wheels can be imported.
PROGRAM = """
import io, json, logging, sys
import torch

said = io.StringIO()
logging.basicConfig(stream=said, level=logging.WARNING, format="%(message)s")
import hgemm_packs
from hgemm_packs import counters, matmul, select

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
device = "cuda" if torch.cuda.is_available() else "cpu"
rows = {}
for pack in select.find_packs().packs:
    for row in sorted(pack.manifest.table, key=lambda row: row.m * row.n * row.k):
        for kernel, way in ((row.kernel, "plain"), (row.dependent, "dependent")):
            if kernel is not None:
                rows.setdefault((kernel, way), row)
worst, count = 0.0, 0
for row in list(dict.fromkeys(rows.values()))[: int(sys.argv[1])]:
    a = torch.randn(row.m, row.k, device=device).to(DTYPES[row.dtype])
    b = torch.randn(row.k, row.n, device=device).to(DTYPES[row.dtype])
    b = b if row.layout[1] == "n" else b.t().contiguous().t()
    a = a if row.layout[0] == "n" else a.t().contiguous().t()
    exact = a.double() @ b.double()
    error = float((matmul(a, b).double() - exact).norm() / exact.norm())
    worst, count = max(worst, error), count + 1
print(json.dumps({
    "device": torch.cuda.get_device_name() if device == "cuda" else "none",
    "torch": torch.__version__,
    "place": hgemm_packs.__file__,
    "packs": [each.manifest.pack.name for each in select.find_packs().packs],
    "calls": count,
    "counters": counters(),
    "worst_rel_err": worst,
    "warnings": said.getvalue().splitlines(),
}))
"""


def measure(wheels: list[Path], calls: int) -> dict[str, Any]:
    """What `calls` problems gave in a new environment. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        python = installed.environment(Path(folder) / "environment")
        installed.install(python, *wheels)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HGEMM_", "PYTHON"))}
        done = subprocess.run(
            [str(python), "-c", PROGRAM, str(calls)],
            cwd=folder,
            env=clean | {"XDG_CACHE_HOME": folder},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    found["place"] = str(Path(found["place"]).relative_to(folder))
    digests = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in wheels}
    return {"wheels": digests, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, nargs=2, help="core and data")
    parser.add_argument("--calls", type=int, default=10**6, help="at most so many problems")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = measure([each.resolve() for each in options.wheels], options.calls)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    hits = found["counters"]["hits"]
    print(f"{hits} of {found['calls']} calls by kernels, worst error {found['worst_rel_err']:.2e}")
    return int(hits != found["calls"] or found["worst_rel_err"] > 5e-3)


if __name__ == "__main__":
    sys.exit(main())
