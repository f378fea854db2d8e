"""One thing wrong with a pack: the changes that cases.py is made of."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAX_MANIFEST_BYTES, OF_BATCH, PARAM_LAYOUTS
from tests.abuse.builder import (
    Change,
    edit,
    edit_blob,
    manifest_bytes,
    on_blob,
    on_manifest,
    replace_text,
)

_LEAF = '{"base":0.0,"feature":[-1],"number":[0.0],"right":[0],"roots":[0]}'
_TREE = (
    '{"base":0.0,"feature":[0,1,-1,-1,-1],"number":[8.0,6.0,1.0,2.0,3.0],"right":[4,3,0,0,0],'
    '"roots":[0]}'
)
#: A predictor without candidates.
PREDICTED = (
    f'{{"doubt":{_TREE},"families":["sm90_test"],"margin":1.25,"ours":{_TREE},'
    f'"profile":"NVIDIA H200","torch":{_LEAF}}}'
)


def flip(index: int) -> Change:
    def change(blob: bytearray) -> None:
        blob[index] ^= 1

    return on_blob(change)


def cut(blob: bytearray) -> None:
    del blob[-1:]


def add(blob: bytearray) -> None:
    blob += b"\0"


def link_to_kept(path: Path) -> None:
    path.symlink_to(path.parent.parent / f"{path.parent.name}.{path.name}")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def swap_offsets(document: dict[str, Any]) -> None:
    first, second = document["kernels"][:2]
    first["offset"], second["offset"] = second["offset"], first["offset"]


def shift(index: int, amount: int) -> Change:
    """Move one cubin's place without moving the cubin."""

    def change(document: dict[str, Any]) -> None:
        document["kernels"][index]["offset"] += amount

    return on_manifest(change)


def hole(pack: Path) -> None:
    """256 unused zero bytes between two cubins, every hash right."""
    second = json.loads((pack / "manifest.json").read_text())["kernels"][1]["offset"]

    def widen(document: dict[str, Any]) -> None:
        for entry in document["kernels"][1:]:
            entry["offset"] += 256

    def insert(blob: bytearray) -> None:
        blob[second:second] = bytes(256)

    edit_blob(pack, insert)
    edit(pack, widen)


def overlap(document: dict[str, Any]) -> None:
    """The first cubin claims to reach into the second."""
    document["kernels"][0]["size"] = document["kernels"][1]["offset"] + 1


def gate_an_odd_n(document: dict[str, Any]) -> None:
    document["launcher_abi"] = 5
    kernel = document["kernels"][1]
    kernel["epilogue"] = "gated_silu"
    kernel["dims"]["n"]["multiple_of"] = 1


def align(row: int, base: Any = ..., packed: Any = ..., abi: int = 6, **sizes: int) -> Change:
    """A row says how its operands are aligned, and whether they are packed."""

    def change(document: dict[str, Any]) -> None:
        document["launcher_abi"] = abi
        said = {"base": base, "packed": packed, **sizes}
        document["table"][row] |= {name: value for name, value in said.items() if value is not ...}

    return on_manifest(change)


def rename_cubin(document: dict[str, Any]) -> None:
    """An id that is no cubin's hash, in the kernel and in its row."""
    old, new = document["kernels"][1]["id"], "0" * 64
    document["kernels"][1]["id"] = new
    for row in document["table"]:
        if row["kernel"] == old:
            row["kernel"] = new


def repeat(name: str, count: int) -> Change:
    def change(document: dict[str, Any]) -> None:
        document[name] = document[name][:1] * count

    return on_manifest(change)


def crowd(document: dict[str, Any]) -> None:
    """4095 kernels more, each with an id and a name of its own."""
    first = document["kernels"][0]
    document["kernels"] += [
        first | {"id": f"{each:064x}", "name": f"k{each}"} for each in range(4095)
    ]


def twin(field: str, value: str) -> Change:
    """The first kernel a second time, but for one field."""

    def change(document: dict[str, Any]) -> None:
        document["kernels"].append(document["kernels"][0] | {field: value})

    return on_manifest(change)


def workspace(size: int, slices: Any = 4, persistent: bool = False, **fields: Any) -> Change:
    """The second kernel with a workspace; no `slices` in its grid where they are `...`."""

    def change(document: dict[str, Any]) -> None:
        kernel = document["kernels"][1]
        sizes = list(PARAM_LAYOUTS["tma2_ws_v2"])
        kernel |= {"param_layout": "tma2_ws_v2", "param_sizes": sizes, "workspace_bytes": size}
        kernel["grid"]["persistent"] = persistent
        if slices is not ...:
            kernel["grid"]["slices"] = slices
        kernel |= {"cooperative": True, **fields}

    return on_manifest(change)


def row_twice(document: dict[str, Any]) -> None:
    document["table"].insert(0, document["table"][0] | {"kernel": None})


def drop(document: dict[str, Any]) -> None:
    del document["blob"]


def dependent(row: int, **kernel: Any) -> Change:
    """A row names the kernel that no row has for dependent launches, with fields put into that."""

    def change(document: dict[str, Any]) -> None:
        document["kernels"][2] |= kernel
        document["table"][row]["dependent"] = document["kernels"][2]["id"]

    return on_manifest(change)


def batched(
    row: dict[str, Any] | None = None,
    abi: int = 7,
    plain: bool = False,
    served: int = 2,
    **kernel: Any,
) -> Change:
    """The kernel that no row has becomes one of batches, with fields put into it, and the last row
    one of a batch that it runs, or the kernel `served`, with fields put into it; but with `plain`
    what it was, so that the kernel gets a row of one product."""

    def change(document: dict[str, Any]) -> None:
        own = document["kernels"][2]
        layout = OF_BATCH["tma3_v1"]
        own |= {"param_layout": layout, "param_sizes": list(PARAM_LAYOUTS[layout])} | kernel
        document["launcher_abi"] = abi
        if row is not None:
            runs = {"kernel": document["kernels"][served]["id"]}
            document["table"][-1] |= runs | ({} if plain else {"batches": 4}) | row

    return on_manifest(change)


def grouped(*rows: dict[str, Any], abi: int = 6, served: str = "", **kernel: Any) -> Change:
    """The kernel that no row has becomes a grouped one, with fields put into it, and measured in
    `rows`, each with fields put into a good one. `served` names a plain row that gets it."""

    def change(document: dict[str, Any]) -> None:
        own = document["kernels"][2]
        own |= {"param_layout": GROUPED_LAYOUT, "param_sizes": list(PARAM_LAYOUTS[GROUPED_LAYOUT])}
        own |= {"tma": own["tma"][:2], "cluster": [1, 1, 1]}
        own["dims"]["m"] = {"min": 1, "max": 16384, "multiple_of": 1}
        own |= kernel
        plain = document["table"][0]
        names = ("n", "k", "dtype", "profile", "hot", "cold", "pairs", "date")
        row = {name: plain[name] for name in names} | {"groups": 8, "m": 64, "layout": "nn"}
        made = [row | {"kernel": own["id"]} | each for each in rows]
        document |= {"launcher_abi": abi} | ({"grouped": made} if rows else {})
        if served:
            plain[served] = own["id"]

    return on_manifest(change)


def predictor(value: Any = None, *keys: str | int, last: int | None = None) -> Change:
    """A good predictor of the second kernel, with a value at the end of a path of keys; or the
    predictor twice and more, where `last` says how often."""

    def change(document: dict[str, Any]) -> None:
        made = json.loads(PREDICTED)
        kernel = document["kernels"][1]
        numbers = [0, 128, 64, 64, 1, *kernel["cluster"], 1, 1, 384, 98304, 16, 16, 16, 0, 0, 0, 1]
        facts = copy.deepcopy({name: kernel[name] for name in ("layout", "dtype", "dims")})
        made["candidates"] = [{**facts, "kernel": kernel["id"], "numbers": numbers}]
        place: Any = made
        for key in keys[:-1]:
            place = place[key]
        if keys:
            place[keys[-1]] = value
        document["predictors"] = [made] * (last or 1)

    return on_manifest(change)


def many_of_a_kind(document: dict[str, Any]) -> None:
    """More candidates of one layout and type than a problem may have."""
    one = document["predictors"][0]["candidates"][0]
    document["predictors"][0]["candidates"] = [one | {"kernel": f"{i:064x}"} for i in range(49)]


def crowded(pack: Path) -> None:
    predictor()(pack)
    edit(pack, many_of_a_kind)


def predictors_in_one_line(pack: Path) -> None:
    predictor()(pack)
    replace_text('"predictors":[\n', '"predictors":[')(pack)


def byte(index: int, value: int) -> Callable[[bytes], bytes]:
    return lambda cubin: cubin[:index] + bytes([value]) + cubin[index + 1 :]


def oversize(pack: Path) -> None:
    """Sparse, so the case costs no disk; the size alone must be enough to refuse it."""
    os.truncate(pack / "manifest.json", MAX_MANIFEST_BYTES + 1)


def without(name: str) -> Change:
    return lambda pack: (pack / name).unlink()


def nested(depth: int) -> Change:
    return manifest_bytes(lambda data: b"[" * depth + b"]" * depth)


def sub(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old.encode("latin-1"), new.encode("latin-1"), 1)


def compact(data: bytes) -> bytes:
    return json.dumps(json.loads(data), separators=(",", ":")).encode()


def last_row(name: str, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["table"][-1][name] = value

    return on_manifest(change)


def inside(pack: Path) -> None:
    """Lines that begin a table where none may be."""
    replace_text('"baseline":{', '"baseline":{\n"table":[\n\n],')(pack)


def spaced(pack: Path) -> None:
    """JSON all the same, but the id is not where a reader of lines seeks it."""
    path = pack / "manifest.json"
    path.write_text(path.read_text().replace('"id":', '"id": '))
