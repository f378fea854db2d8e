"""A candidate: device code and the launch record that says how our launcher runs it.

Made from FILE.cu with FILE.toml beside it, from a family's genome, or from a case of the red-team
corpus; what `evaluate` puts through the gates. Host code of a candidate does not exist, so nothing
here runs any of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families.base import dims
from hgemm_packs.pack.manifest import PARAM_LAYOUTS, KernelEntry
from hgemm_packs.pack.manifest_checks import check_launch_record
from hgemm_packs.pack.manifest_fields import KERNEL

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOREIGN = "foreign"  # the family of a kernel that comes as a file

#: What a record may leave out, as OPTIONAL. `block` and `grid` (`tile_m`, `tile_n`) it must say.
DEFAULTS: Mapping[str, Any] = {
    "param_layout": "ptr_v1",
    "cluster": [1, 1, 1],
    "grid": {"persistent": False},
    "smem_bytes": 0,
    "tma": [],
    "workspace_bytes": 0,
    "align": {"a": 16, "b": 16, "c": 16},
    "dims": dims(),
    "dtype": "f16",
    "layout": "nn",
    "acc": "f32",
}
REQUIRED = ("block", "grid")
OPTIONAL = ("symbol", "epilogue", "cooperative", "reads_ahead", "triggers_early")

#: Stands in for what only a built, checked and packed kernel has.
_UNBUILT: Mapping[str, Any] = {
    "id": "0" * 64,
    "regs": 1,
    "offset": 0,
    "size": 1,
    "numerics": {"reference": "float64", "max_rel_err": 0.0, "shapes_tested": 1},
}


class CandidateError(ValueError):
    """A file or launch record that is no candidate; the message names the field."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Source text, our own headers in place, and every manifest field but those of the build."""

    source: str
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.fields["name"])


def entry(fields: Mapping[str, Any], cubin: bytes = b"\0") -> KernelEntry:
    """The manifest's view of a kernel, read as strictly as a manifest is. Raises CandidateError."""
    document = {**_UNBUILT, **fields, "size": len(cubin)}
    try:
        made: KernelEntry = KERNEL(json.loads(json.dumps(document)))
        check_launch_record(made)
    except PackError as error:
        raise CandidateError(f"{fields.get('name')}: {error}") from None
    return made


def described(fields: Mapping[str, Any]) -> Any:
    """A kernel's fields as attributes, for what reads a few of them: committed ones may have names
    of their day beside them, which `entry` refuses."""
    grid = SimpleNamespace(**{"slices": 1, **fields["grid"]})
    align = [fields["align"][name] for name in "abc"]
    return SimpleNamespace(**{"epilogue": "none", **fields, "grid": grid, "align": align})


def candidate(name: str, source: str, record: Mapping[str, Any]) -> Candidate:
    """A foreign candidate, which may include headers of ours ("common/mma.cuh"). `record` holds
    launch-record fields by their manifest names, the symbol (by default the name) among them.
    Raises CandidateError."""
    unknown = record.keys() - DEFAULTS.keys() - {*REQUIRED, *OPTIONAL}
    if unknown:
        raise CandidateError(f"{name}: {sorted(unknown)[0]!r} is no field of a launch record")
    for field in REQUIRED:
        if field not in record:
            raise CandidateError(f"{name}: the launch record must say {field!r}")
    fields = _merge_tables(DEFAULTS, record)
    fields = {
        "name": name,
        "symbol": name,
        "family": FOREIGN,
        "genome": {},
        "out_dtype": fields["dtype"],
        "epilogue": "none",
        "deterministic": True,
        "param_sizes": list(PARAM_LAYOUTS.get(str(fields["param_layout"]), ())),
        **fields,
    }
    entry(fields)
    return Candidate(compiler.expand_includes(source), fields)


def _merge_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, table by table."""
    both = {**base, **over}
    return {
        name: _merge_tables(base[name], value)
        if isinstance(value, dict) and isinstance(base.get(name), Mapping)
        else value
        for name, value in both.items()
    }


def load(path: str | Path) -> Candidate:
    """FILE.cu and the launch record in FILE.toml beside it. Raises CandidateError, or OSError when
    one of them cannot be read."""
    path = Path(path)
    source = _read(path)
    about = path.with_suffix(".toml")
    try:
        record = tomllib.loads(_read(about))
    except tomllib.TOMLDecodeError as error:
        raise CandidateError(f"{about.name}: {error}") from None
    return candidate(path.stem, source, record)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CandidateError(f"{path.name}: {error}") from None


def of_choice(choice: Choice) -> Candidate:
    """The candidate that a family makes of a genome, of any age. Raises KeyError or
    InvalidGenome."""
    genome = family(choice.family).whole(choice.genome)
    return Candidate(compiler.render(choice.family, genome), family(choice.family).fields(genome))
