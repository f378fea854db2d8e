"""What having packs costs before the first product: import, opening a pack, loading its kernels.

python -m benchmarks.host.load_cost [OUT.json] needs a GPU and a pack on HGEMM_PACKS_PATH.

Everything is measured in fresh processes, and a figure is the median over them. `pack100_ms` is
opening the pack plus loading every one of its kernels, brought to 100 kernels by proportion: the
most that the lazy loading of a process can add up to. `first_product_ms` is the first `matmul` of a
process that has used torch's on the same operands: packs found and opened, one row, its kernel,
until the product is there. `idle_pack_mb` is what an opened pack that was asked about one problem
adds to the resident memory.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "results" / "load_cost.json"
PROCESSES = 15

IMPORT = """
import json, time, torch
start = time.perf_counter()
import hgemm_packs
print(json.dumps({"import_ms": (time.perf_counter() - start) * 1e3}))
"""

OPEN_AND_LOAD = """
import gc, json, time, torch
from hgemm_packs import launcher, select
from hgemm_packs.problem import Problem

def resident_mb():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

torch.zeros(1, device="cuda")
start = time.perf_counter()
device = launcher.device_info(0)
started = time.perf_counter()
before = resident_mb()
opening = time.perf_counter()
packs = select.find_packs().packs
opened = time.perf_counter()
select.resolve(Problem(8, 8, 8, "nn", "f16"), 0)
idle = resident_mb() - before
mine = [pack for pack in packs if pack.manifest.arch == device.arch]
assert mine, "no installed pack is for this device"
served = next(row for pack in mine for row in pack.manifest.table if row.layout == "nn"
              and select.resolve(Problem(*row.key), 0, device).row == row)
entries = [(pack, entry) for pack in mine for entry in pack.manifest.kernels]
loading = time.perf_counter()
each = []
for pack, entry in entries:
    begin = time.perf_counter()
    launcher.load(0, entry, pack.image(entry))
    each.append((time.perf_counter() - begin) * 1e3)
loaded = time.perf_counter()
print(json.dumps({
    "start_ms": (started - start) * 1e3,
    "open_ms": (opened - opening) * 1e3,
    "load_all_ms": (loaded - loading) * 1e3,
    "first_kernel_ms": each[0],
    "slowest_kernel_ms": max(each),
    "idle_pack_mb": idle,
    "kernels": len(entries),
    "problem": [served.m, served.n, served.k, served.dtype],
    "blob_mb": sum(pack.manifest.blob.bytes for pack in mine) / 2**20,
    "device": torch.cuda.get_device_name(0),
    "torch": torch.__version__,
}))
"""

OPERANDS = """
import json, sys, time, torch
from hgemm_packs import counters, matmul

m, n, k, name = json.loads(sys.argv[1])
dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[name]
a = torch.randn(m, k, device="cuda").to(dtype)
b = torch.randn(k, n, device="cuda").to(dtype)
torch.matmul(a, b)
torch.cuda.synchronize()
"""

FIRST_PRODUCT = f"""{OPERANDS}
start = time.perf_counter()
matmul(a, b)
torch.cuda.synchronize()
first = time.perf_counter()
assert counters()["hits"] == 1, counters()
print(json.dumps({{"first_product_ms": (first - start) * 1e3}}))
"""

FIRST_CALL = f"""{OPERANDS}
from hgemm_packs import select

select.find_packs()
start = time.perf_counter()
matmul(a, b)
first = time.perf_counter()
assert counters()["hits"] == 1, counters()
print(json.dumps({{"first_call_ms": (first - start) * 1e3}}))
"""


def run(script: str, problem: list[Any] | None = None) -> dict[str, Any]:
    """One fresh process's figures."""
    command = [sys.executable, "-c", script, json.dumps(problem)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the numbers, first values of the rest."""
    return {
        name: round(median(each[name] for each in runs), 4) if isinstance(value, float) else value
        for name, value in runs[0].items()
    }


def main(out: Path) -> None:
    run(IMPORT)  # byte code is compiled and files are cached once per installation
    runs = {
        "import": [run(IMPORT) for _ in range(PROCESSES)],
        "load": [run(OPEN_AND_LOAD) for _ in range(PROCESSES // 3)],
    }
    problem = runs["load"][0]["problem"]
    runs["first_product"] = [run(FIRST_PRODUCT, problem) for _ in range(PROCESSES)]
    runs["first_call"] = [run(FIRST_CALL, problem) for _ in range(PROCESSES // 3)]
    result: dict[str, Any] = {}
    for each in runs.values():
        result |= medians(each)
    whole = result["open_ms"] + result["load_all_ms"]
    result["pack100_ms"] = round(whole * 100 / result["kernels"], 3)
    result["runs"] = runs
    result["machine"] = {"python": platform.python_version(), "cpus": os.cpu_count()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    names = ("import_ms", "open_ms", "load_all_ms", "first_product_ms", "first_call_ms")
    for name in (*names, "idle_pack_mb"):
        print(f"{name:16} {result[name]}")
    print(f"pack100_ms {result['pack100_ms']} ({result['kernels']} kernels), wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
