"""`hgemm-packs demo`: the whole path, as far as this machine can walk it.

Without a GPU: build the pack from its committed manifest, verify it, show what real models would
get on the GPU it was measured on, and check `matmul` on the CPU. With that GPU: also every kernel
against float64, and a benchmark.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .. import profiles, select
from ..pack.manifest_reader import Manifest
from ..settings import settings
from ..tuning import shapes
from . import bench, build, inspect, layers, plots
from .console import LOG_COLUMNS, cuda_device, manifests_dir

ARCH = "sm_90a"
BENCH_ROWS = 12

#: Models of the list that fit on a page.
MODELS = ("Llama 3.1 8B", "Llama 3.1 70B", "Qwen2.5 7B", "Qwen3 8B", "Qwen3 32B", "Mistral 7B v0.3")


def run(out: Console, folder: Path, jobs: int) -> bool:
    """Everything above, files into `folder`. Returns whether all checks held."""
    pack = build.run(out, ARCH, folder / "pack", jobs)[0]
    # From here on the process has this pack and no other, as a user's would after installing it.
    os.environ["HGEMM_PACKS_PATH"] = str(folder / "pack")
    settings.cache_clear()
    select.reset()
    sound = inspect.verify(out, folder / "pack", gpu=False)
    manifest = pack.manifest
    _show_layers(out, folder, manifest)
    if plots.plot_speedups(manifest, folder / "speedups.png"):
        out.print(f"plot of all measured wins: {folder / 'speedups.png'}")
    sound = _check_matmul(out) and sound
    if _gpu_of(manifest):
        sound = inspect.verify(out, folder / "pack", gpu=True) and sound
        bench.run(out, folder, BENCH_ROWS)
    else:
        out.print("no GPU of this pack here: kernels were compiled and hashed, not run")
    return sound


def _gpu_of(manifest: Manifest) -> bool:
    index = cuda_device()
    if index is None:
        return False
    from ..launcher import device_info

    return profiles.match(manifest.device_profiles, device_info(index)) is not None


def _show_layers(out: Console, folder: Path, manifest: Manifest) -> None:
    profile = manifest.device_profiles[0]
    device = profiles.as_device(profile, manifest.arch, manifest.min_driver)
    known = shapes.read(manifests_dir() / "shapes" / "llm_layers.toml").restrict(MODELS)
    dtypes = sorted({row.dtype for row in manifest.table if row.layout == layers.LAYOUT})
    everything: list[layers.Decision] = []
    for dtype in dtypes:
        decisions = layers.decide(known, dtype, device)
        title = f"linear layers in {dtype} on {profile.name}"
        # Every second token count where the terminal is too narrow for all.
        step = 1 if out.width >= LOG_COLUMNS else 2
        out.print(_layers_table(known.m, step, decisions, title))
        everything += decisions
    _summary(out, everything)
    path = folder / "layers.json"
    text = json.dumps([each.as_json() for each in everything], indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    out.print(f"every decision with its kernel: {path}")


def _cell(decision: layers.Decision) -> str:
    if decision.row is not None:
        return f"{decision.row.hot.speedup:.2f}"
    return "-" if decision.choice.code == "not_measured" else "."


def _layers_table(
    counts: Sequence[int], step: int, decisions: Sequence[layers.Decision], title: str
) -> Table:
    """One line per layer, one column per `step`-th token count."""
    caption = "over torch, caches hot; torch itself runs at a dot (no confirmed win) and at a dash "
    caption += "(not measured)"
    table = Table(title=title, box=SIMPLE_HEAD, caption=caption)
    table.add_column("speed-up at M =", no_wrap=True)
    table.add_column("N x K", justify="right", no_wrap=True)
    for m in counts[::step]:
        table.add_column(str(m), justify="right", no_wrap=True)
    model = ""
    for start in range(0, len(decisions), len(counts)):
        cells = decisions[start : start + len(counts) : step]
        layer = cells[0].layer
        if layer.model != model:
            table.add_section()
            table.add_row(layer.model, style="bold")
            model = layer.model
        table.add_row(f"  {layer.names}", f"{layer.n} x {layer.k}", *map(_cell, cells))
    return table


def _summary(out: Console, decisions: Sequence[layers.Decision]) -> None:
    kernels = Counter(each.choice.kernel.name for each in decisions if each.choice.kernel)
    ours = sum(kernels.values())
    asked = sum(each.choice.code != "not_measured" for each in decisions)
    out.print(
        f"{ours} of {asked} layer calls that were measured get a kernel of this pack, "
        f"{len(decisions) - asked} were not measured; most used:"
    )
    for name, count in kernels.most_common(5):
        out.print(f"  {count:4} x {name}")


def _check_matmul(out: Console) -> bool:
    """`matmul` on the CPU against torch and float64, over the ways a model calls it."""
    import torch

    from .. import matmul

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)

    table = Table(title="matmul on this machine's CPU, relative error against float64")
    for name in ("call", "dtype", "ours", "torch"):
        table.add_column(name, justify="left" if name in ("call", "dtype") else "right")
    agree = True
    for dtype in (torch.float16, torch.bfloat16):
        weight = normal(96, 64, dtype=dtype)
        for call, a, b in (
            ("a @ b", normal(32, 64, dtype=dtype), normal(64, 96, dtype=dtype)),
            ("x @ weight.t()", normal(32, 64, dtype=dtype), weight.t()),
            ("tokens @ weight.t()", normal(2, 16, 64, dtype=dtype), weight.t()),
        ):
            exact = a.double() @ b.double()
            errors = [
                float((product.double() - exact).norm() / exact.norm())
                for product in (matmul(a, b), torch.matmul(a, b))
            ]
            agree = agree and errors[0] <= max(errors[1], torch.finfo(dtype).eps)
            shown = (f"{error:.1e}" for error in errors)
            table.add_row(call, str(dtype).removeprefix("torch."), *shown)
    out.print(table)
    return agree
