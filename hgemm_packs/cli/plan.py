"""`hgemm-packs plan`: what a model gains at which number of tokens, and what was never measured.

The layers come from the model's config.json, from a TOML of shapes or from the committed list; the
figures from the table of the pack that calls would use, or of the committed manifest where none is
installed. Nothing is measured here.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .. import profiles, select
from ..errors import PackError, of_path
from ..pack.manifest import DeviceProfile, Row, WinPolicy
from ..problem import DTYPES, DeviceInfo, Key, Problem
from ..tuning import config, shapes
from .console import UserError, cuda_device, generator, manifests_dir
from .devices import find_device, of_packs
from .layers import LAYOUT

#: GPU-seconds that the search of a problem took, in a run of 250 on an H200: generator.json.
SEARCH_S = 204.869 / 250
#: How the names of weights end that stand for several in one.
FUSED = ("qkv", "gate_up")
LEGEND = (
    "Caches hot. torch runs where there is a dot (no confirmed win), a dash (not measured) or an x "
    "(N or K is no multiple of 8)."
)
ALONE = (
    "These are products measured one at a time: a whole step has other work too, and gains less. "
    "README has the figures of whole models."
)


class Figures(NamedTuple):
    """What tables say: by problem a row, with what makes it count, and where they are from."""

    rows: Mapping[Key, tuple[Row, WinPolicy]]
    source: str


class Call(NamedTuple):
    """One layer at one number of tokens, with its row, if it was measured."""

    layer: shapes.Layer
    problem: Problem
    row: Row | None
    served: bool

    @property
    def fits(self) -> bool:
        """Whether a kernel could take it."""
        return self.problem.align == 16

    @property
    def cell(self) -> str:
        if not self.fits:
            return "x"
        if self.row is None:
            return "-"
        return f"{self.row.hot.speedup:.2f}" if self.served else "."


def run(
    out: Console,
    model: str,
    counts: str | None,
    dtype: str | None,
    profile: str | None,
    missing: Path | None,
) -> None:
    """Print the plan of a model; write what has no measurement to `missing`, as a TOML for
    `generate`. Raises UserError for a model, number or type that is none."""
    device = _device(profile)
    figures = _figures(device)
    listed, own_dtype = read_layers(model)
    chosen = read_dtype(dtype) or own_dtype or next(iter(listed.dtypes))
    tokens = read_tokens(counts) or listed.m
    calls = [
        _call(figures, layer, Problem(m, layer.n, layer.k, LAYOUT, chosen))
        for layer in listed.layers
        for m in tokens
    ]
    out.print(f"speed-up over torch, {chosen} on {device.name}, from {figures.source}")
    out.print(_table(calls, tokens))
    out.print(LEGEND)
    steps = [_step(m, [each for each in calls if each.problem.m == m]) for m in tokens]
    for line in filter(None, steps):
        out.print(line)
    if any(steps):
        out.print(ALONE)
    out.print("A layer with a bias gets no kernel yet, whatever stands above.")
    _say_missing(out, figures, calls, model, missing)


def _device(profile: str | None) -> DeviceInfo:
    """The named one; else the GPU here; else the first that is known, for a plan needs none."""
    if profile is None and cuda_device() is None:
        known = of_packs()
        return next(iter(known.values())) if known else find_device("NVIDIA H200")
    return find_device(profile)


def _figures(device: DeviceInfo) -> Figures:
    found: dict[Key, tuple[Row, WinPolicy]] = {}
    names = []
    for pack in select.find_packs().packs:
        manifest = pack.manifest
        profile = profiles.match(manifest.device_profiles, device)
        if profile is not None:
            found = _rows(manifest.table, profile, manifest.policy) | found
            names.append(f"pack {manifest.pack}")
            if not pack.local:  # which has few problems
                break
    if names:
        return Figures(found, " and ".join(names))
    read_source = generator("compile.pack_writer").read_source
    for path in sorted(manifests_dir().glob("sm_*/*/pack.json")):
        source = read_source(path.parent)
        profile = profiles.match(source.device_profiles, device)
        found = _rows(source.table, profile, source.policy) if profile else {}
        if found:
            name = "the committed table (no pack installed: hgemm-packs build)"
            return Figures(found, name)
    raise UserError(f"nothing was measured on {device.name}: `hgemm-packs tune` measures it")


def _rows(
    table: Sequence[Row], profile: DeviceProfile, policy: WinPolicy
) -> dict[Key, tuple[Row, WinPolicy]]:
    return {row.key: (row, policy) for row in table if row.profile == profile.name}


def _call(figures: Figures, layer: shapes.Layer, problem: Problem) -> Call:
    row, policy = figures.rows.get(problem.key, (None, None))
    served = bool(row and policy and row.kernel is not None and policy.clears(row))
    return Call(layer, problem, row, served)


def read_layers(model: str) -> tuple[shapes.Shapes, str | None]:
    """The layers of what the user named, and the type that a config says its weights have."""
    listed = shapes.read(manifests_dir() / "shapes" / "llm_layers.toml")
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        try:
            return config.read(path, listed.m)
        except PackError as error:
            raise UserError(str(error)) from None
    if path.suffix == ".toml" and path.name != path.stem:
        found = shapes.read(path)
        if not found.layers:
            raise UserError(f"{path}: the file has no layer and no model")
        return found, None
    try:
        return listed.restrict([model]), None
    except PackError:
        names = list(dict.fromkeys(layer.model for layer in listed.layers))
        near = difflib.get_close_matches(model, names, 5, 0.4) or names
        raise UserError(
            f"{model!r} is neither a file nor a listed model: give a config.json, a .toml, "
            f"or one of {', '.join(near)}"
        ) from None


def read_dtype(word: str | None) -> str | None:
    if word is None or word in DTYPES:
        return word
    raise UserError(f"--dtype {word}: not one of {', '.join(DTYPES)}")


def read_tokens(words: str | None) -> tuple[int, ...]:
    if words is None:
        return ()
    try:
        found = tuple(dict.fromkeys(int(word) for word in words.split(",")))
    except ValueError:
        found = (0,)
    if not all(1 <= m <= shapes.LARGEST_SIDE for m in found):
        raise UserError(f"--m {words}: not numbers from 1, such as 1,8,64")
    return found


def _table(calls: Sequence[Call], tokens: Sequence[int]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("layer, at M =", overflow="fold")
    table.add_column("N x K", justify="right", no_wrap=True)
    for m in tokens:
        table.add_column(str(m), justify="right", no_wrap=True)
    model = ""
    for start in range(0, len(calls), len(tokens)):
        row = calls[start : start + len(tokens)]
        layer = row[0].layer
        if layer.model != model:
            table.add_section()
            table.add_row(layer.model, style="bold")
            model = layer.model
        table.add_row(f"  {layer.names}", f"{layer.n} x {layer.k}", *(each.cell for each in row))
    return table


def _step(m: int, calls: Sequence[Call]) -> str:
    """What one decoder layer's products take together, each weight by itself: fused weights would
    count twice, and how many tokens an expert gets nobody knows here."""
    ours = theirs = 0.0
    for each in calls:
        names = [name for name in each.layer.names.split() if _alone(name)]
        if not names or each.layer.model != calls[0].layer.model:
            continue
        if each.row is None:
            return ""
        theirs += len(names) * each.row.hot.torch_us
        ours += len(names) * (each.row.hot.us if each.served else each.row.hot.torch_us)
    if not theirs:
        return ""
    return (
        f"M = {m}: the products of one {calls[0].layer.model or 'set of layers'} block take torch "
        f"{theirs:.1f} us, with kernels {ours:.1f} us: {theirs / ours:.3f}x"
    )


def _alone(name: str) -> bool:
    return not name.startswith("expert_") and name != "lm_head" and not name.endswith(FUSED)


def _say_missing(
    out: Console, figures: Figures, calls: Sequence[Call], model: str, missing: Path | None
) -> None:
    """What has no row: how many problems, what M there are, and what measuring them would cost."""
    lacking = {each.problem.key: each.problem for each in calls if each.row is None and each.fits}
    unfit = {each.problem.key for each in calls if not each.fits}
    if unfit:
        out.print(
            f"{len(unfit)} problems have an N or K that is no multiple of 8: no kernel takes them."
        )
    if not lacking:
        out.print("Nothing else is missing: every problem was measured.")
        return
    wanted = {(p.n, p.k, p.layout, p.dtype) for p in lacking.values()}
    known = {
        row.m for row, _ in figures.rows.values() if (row.n, row.k, row.layout, row.dtype) in wanted
    }
    if known:
        out.print(f"M that were measured for some of these: {', '.join(map(str, sorted(known)))}")
    minutes = math.ceil(SEARCH_S * len(lacking) / 60)
    out.print(
        f"{len(lacking)} problems were not measured, and run on torch: a search of them takes "
        f"about {minutes} min of one GPU, and `generate refine` after it about as long"
    )
    if missing is None:
        out.print("`--out FILE.toml` writes them down for that search.")
        return
    with of_path(missing):
        missing.write_text(_as_toml(lacking.values(), model), encoding="utf-8")
    out.print(f"hgemm-packs generate --shapes {missing} --budget {minutes}m", soft_wrap=True)
    out.print("hgemm-packs generate refine generate-run")


def _as_toml(problems: Any, model: str) -> str:
    """Problems as manifests/shapes/example.toml explains them."""
    lines = [f"# Problems of {json.dumps(model)} that no table has, by `hgemm-packs plan`."]
    for p in problems:
        lines += ["", "[[problem]]", f"m = {p.m}", f"n = {p.n}", f"k = {p.k}"]
        lines += [f'layout = "{p.layout}"', f'dtype = "{p.dtype}"']
    return "\n".join(lines) + "\n"
