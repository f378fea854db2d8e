"""Problems as TOML: the one format of manifests/shapes/*.toml and of a user's own file.

Read by `demo` and `plan`, for the layers of models, and by `tune` and the generator, for what to
measure. The format is
explained in manifests/shapes/example.toml. It reads and checks; it never chooses a kernel.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import PackError
from ..pack.strict_json import (
    Check,
    boolean,
    integer,
    listing,
    nullable,
    one_of,
    record,
    text,
)
from ..problem import ALIGNED, ALIGNMENTS, DTYPES, LAYOUTS, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_SIDE = 1 << 24  # what the kernels' 64-bit offsets are proved for
LARGEST_BYTES = 1 << 35  # A, B and C once; a card also holds tuning workspaces and references
MAX_PROBLEMS = 100_000

SIDE = integer(1, LARGEST_SIDE)
SIDES = listing(SIDE, 1, 256)
LAYOUT, DTYPE = one_of(*LAYOUTS), one_of(*DTYPES)
LINE = text(r"[ -~]{1,100}")

#: Fields of config.json, under its names. Attention is one of the two groups, or not described.
HEADS = {"num_attention_heads", "num_key_value_heads", "head_dim"}
LATENT = {"num_attention_heads", "q_lora_rank", "kv_lora_rank"}
LATENT |= {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}
WIDTHS = {"hidden_size", "intermediate_size", "moe_intermediate_size", "vocab_size"}
WIDTHS |= {"n_shared_experts", "shared_expert_intermediate_size"}


@dataclass(frozen=True, slots=True)
class Layer:
    """One weight, or several of the same shape in one model: [N, K] as nn.Linear stores it. `model`
    is "" for a layer that stands alone."""

    model: str
    names: str
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Engines:
    """What engines run of the layers of a file: numbers of tokens, layouts, types, and the models
    that come first."""

    m: tuple[int, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a file lists: layers at each number of tokens `m`, problems, and a product of sides;
    each in every one of `layouts` and `dtypes`, but for a problem that names its own. What engines
    run is a list of its own, `of_engines`."""

    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]
    m: tuple[int, ...]
    layers: tuple[Layer, ...]
    sides: tuple[tuple[int, int, int], ...]
    listed: tuple[Problem, ...]
    engines: Engines | None = None

    def of_layer(self, layer: Layer, layout: str, dtype: str) -> Iterator[Problem]:
        for m in self.m:
            yield Problem(m, layer.n, layer.k, layout, dtype)

    def problems(self) -> Iterator[Problem]:
        """Everything that the file asks for, in its order; what is listed twice comes twice."""
        for layout, dtype in product(self.layouts, self.dtypes):
            for layer in self.layers:
                yield from self.of_layer(layer, layout, dtype)
            for m, n, k in self.sides:
                yield Problem(m, n, k, layout, dtype)
        yield from self.listed

    def restrict(self, models: Collection[str]) -> Shapes:
        """The layers of the models whose name matches one of the patterns ("Qwen3 *"; * is any
        text), in any case of letters, and nothing else. Raises PackError where none matches."""
        names = {layer.model.lower() for layer in self.layers}
        wanted = set()
        for pattern in models:
            found = {name for name in names if name and fnmatchcase(name, pattern.lower())}
            if not found:
                known = ", ".join(sorted({layer.model for layer in self.layers if layer.model}))
                raise PackError("unknown_model", f"no model is called {pattern!r}; known: {known}")
            wanted |= found
        kept = tuple(layer for layer in self.layers if layer.model.lower() in wanted)
        return replace(self, layers=kept, sides=(), listed=())

    def of_engines(self) -> Shapes:
        """The layers as engines run them, those of the `first` models in front. Raises PackError
        where the file says nothing of engines."""
        if self.engines is None:
            raise PackError("missing_field", "the file has no table of engines")
        m, layouts, dtypes, first = astuple(self.engines)
        places = {name: place for place, name in enumerate(first)}
        layers = sorted(self.layers, key=lambda each: places.get(each.model, len(first)))
        return Shapes(layouts, dtypes, m, tuple(layers), (), ())


def _table(make: Callable[..., Any], required: str, **fields: Check) -> Check:
    """A TOML table: `record` with only the `required` fields, the others None where absent."""
    needed = required.split()
    absent = dict.fromkeys(fields.keys() - set(needed))
    exact = record(
        make, **{name: f if name in needed else nullable(f) for name, f in fields.items()}
    )
    return lambda value: exact({**absent, **value} if type(value) is dict else value)


def _attention(config: dict[str, int], hidden: int) -> dict[str, tuple[int, int]]:
    given = config.keys() & (HEADS | LATENT)
    heads = config.get("num_attention_heads", 0)
    if given == HEADS:
        q, kv = heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
        return {
            "q": (q, hidden),
            "k v": (kv, hidden),
            "qkv": (q + 2 * kv, hidden),
            "o": (hidden, q),
        }
    if given == LATENT:
        q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
        nope, rope, v = (config[f"{name}_head_dim"] for name in ("qk_nope", "qk_rope", "v"))
        return {
            "q_a": (q_rank, hidden),
            "kv_a": (kv_rank + rope, hidden),
            "qkv_a": (q_rank + kv_rank + rope, hidden),
            "q_b": (heads * (nope + rope), q_rank),
            "kv_b": (heads * (nope + v), kv_rank),
            "o": (hidden, heads * v),
        }
    if given:
        groups = " or of ".join(", ".join(sorted(group)) for group in (HEADS, LATENT))
        raise PackError("missing_field", f"attention is all of {groups}; not {sorted(given)}")
    return {}


def _weights(config: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Name -> (N, K) of each weight, single as Transformers holds them and fused as servers do."""
    if not config:
        return {}
    hidden = config["hidden_size"]
    shapes = _attention(config, hidden)
    inner = {
        "": config.get("intermediate_size"),
        "expert_": config.get("moe_intermediate_size"),
        "shared_": config.get("shared_expert_intermediate_size"),
    }
    if "n_shared_experts" in config:
        inner["shared_"] = config["n_shared_experts"] * config["moe_intermediate_size"]
    for kind, size in inner.items():
        if size is not None:
            shapes[f"{kind}gate {kind}up"] = (size, hidden)
            shapes[f"{kind}gate_up"] = (2 * size, hidden)
            shapes[f"{kind}down"] = (hidden, size)
    if "vocab_size" in config:
        shapes["lm_head"] = (config["vocab_size"], hidden)
    return shapes


def _model(
    name: str, source: str | None, layer: tuple[Layer, ...] | None, **config: int | None
) -> list[Layer]:
    """The layers of a model; weights of equal shape are one entry."""
    try:
        shapes = _weights({field: size for field, size in config.items() if size is not None})
    except KeyError as error:
        raise PackError("missing_field", f"{error.args[0]!r} is missing") from None
    for each in layer or ():
        if each.names in shapes:
            raise PackError("duplicate_layer", f"{each.names!r} follows from the config already")
        shapes[each.names] = (each.n, each.k)
    by_shape: dict[tuple[int, int], list[str]] = {}
    for names, (n, k) in shapes.items():
        by_shape.setdefault((SIDE(n), SIDE(k)), []).append(names)
    if not by_shape:
        raise PackError("missing_field", "a model has fields of its config, or layers")
    return [Layer(name, " ".join(names), n, k) for (n, k), names in by_shape.items()]


def _layer(name: str | None, n: int, k: int) -> Layer:
    return Layer("", name or f"{n}x{k}", n, k)


_LAYERS = listing(_table(_layer, "n k", name=LINE, n=SIDE, k=SIDE), 1, 10_000)
_FILE = _table(
    dict,
    "",
    layouts=listing(LAYOUT, 1, 4),
    dtypes=listing(DTYPE, 1, 2),
    m=SIDES,
    layer=_LAYERS,
    model=listing(
        _table(
            _model,
            "name",
            name=LINE,
            source=LINE,
            layer=_LAYERS,
            **dict.fromkeys(HEADS | LATENT | WIDTHS, SIDE),
        ),
        1,
        1000,
    ),
    problem=listing(
        _table(
            dict,
            "m n k",
            m=SIDE,
            n=SIDE,
            k=SIDE,
            layout=LAYOUT,
            dtype=DTYPE,
            base=listing(one_of(*ALIGNMENTS), 3, 3),
            packed=boolean,
        ),
        1,
        MAX_PROBLEMS,
    ),
    grid=_table(lambda m, n, k: (m, n, k), "m n k", m=SIDES, n=SIDES, k=SIDES),
    engines=_table(
        Engines,
        "m layouts dtypes first",
        m=SIDES,
        layouts=listing(LAYOUT, 1, 4),
        dtypes=listing(DTYPE, 1, 2),
        first=listing(LINE, 0, 1000),
    ),
)


def _shapes(document: dict[str, Any]) -> Shapes:
    """The checked document, within the limits on its whole. Raises PackError."""
    found = {name: value for name, value in _FILE(document).items() if value is not None}
    layers = [*found.get("layer", ()), *(each for m in found.get("model", ()) for each in m)]
    names = [each["name"] for each in document.get("model", ())]
    if len(set(names)) < len(names):
        raise PackError("duplicate_model", "two models have the same name", "model")
    if layers and "m" not in found:
        raise PackError("missing_field", "layers need the numbers of tokens: m = [1, 16, 4096]")
    layouts, dtypes = found.get("layouts", ("nt",)), found.get("dtypes", ("f16",))
    axes = found.get("grid", ((), (), ()))
    kinds = len(layouts) * len(dtypes)
    count = len(layers) * len(found.get("m", ())) + len(axes[0]) * len(axes[1]) * len(axes[2])
    if not 1 <= kinds * (count + len(found.get("problem", ()))) <= MAX_PROBLEMS:
        raise PackError("bad_count", f"not 1..{MAX_PROBLEMS} problems")
    listed = tuple(
        Problem(
            p["m"],
            p["n"],
            p["k"],
            layout,
            dtype,
            base=p["base"] or ALIGNED,
            packed=p["packed"] is not False,
        )
        for p in found.get("problem", ())
        for layout in ([p["layout"]] if p["layout"] else layouts)
        for dtype in ([p["dtype"]] if p["dtype"] else dtypes)
    )
    engines = found.get("engines")
    shapes = Shapes(
        layouts, dtypes, found.get("m", ()), tuple(layers), tuple(product(*axes)), listed, engines
    )
    if engines and (unknown := set(engines.first) - set(names)):
        raise PackError("unknown_model", f"no model is called {min(unknown)!r}", "engines.first")
    parts = [shapes, shapes.of_engines()] if engines else [shapes]
    for p in (problem for part in parts for problem in part.problems()):
        size = 2 * (p.m * p.k + p.k * p.n + p.m * p.n)
        if size > LARGEST_BYTES:
            most = f"at most {LARGEST_BYTES >> 30} GiB"
            raise PackError("out_of_bounds", f"{p} is {size / 2**30:.1f} GiB of operands, {most}")
    return shapes


def parse(text: str) -> Shapes:
    """The shapes of a document that we wrote ourselves. Raises PackError."""
    return _shapes(tomllib.loads(text))


def read(path: Path) -> Shapes:
    """Read and check a file of shapes. Raises PackError, which names file, entry and field, and
    OSError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not TOML: tells line and column
        raise PackError("not_toml", str(error), str(path)) from None
    try:
        return _shapes(document)
    except PackError as error:
        where = error.where
        entry = re.match(r"(\w+)\[(\d+)\]", where)
        if entry and type(document[entry[1]][int(entry[2])]) is dict:
            where += f" ({document[entry[1]][int(entry[2])].get('name', 'without a name')})"
        raise PackError(error.code, error.detail, f"{path} {where}".rstrip()) from None
