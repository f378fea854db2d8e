"""The forbidden states of docs/pack_format.md by their numbers there, written from the page alone.

`tests/unit/test_pack_format.py` asks it of what `pack_reader` has read.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

from tests.pack_reader import PROBLEM

# The page's "Parameters": operands of tensor maps, bytes of each parameter.
PARAMETERS: dict[str, tuple[str, list[int]]] = {
    "ptr_v1": ("", [8, 8, 8, 4, 4, 4, 4, 4, 4]),
    "tma2_v1": ("ab", [128, 128, 8, 4, 4, 4, 4]),
    "tma3_v1": ("abc", [128, 128, 128, 4, 4, 4]),
    "tma2_ws_v2": ("ab", [128, 128, 8, 8, 4, 4, 4, 4]),
}
# "Each with `_addend` behind its name has one parameter more."
PARAMETERS |= {
    f"{name}_addend": (operands, [*sizes, 8]) for name, (operands, sizes) in PARAMETERS.items()
}


def forbidden(pack: dict[str, Any], blob: bytes) -> set[int]:
    """The numbers of the page's forbidden states that a pack is in, by nothing but the page."""
    kernels, rows = pack["kernels"], pack["table"]
    by_id = {kernel["id"]: kernel for kernel in kernels}
    found = set()
    if not len(by_id) == len({kernel["name"] for kernel in kernels}) == len(kernels):
        found.add(1)
    for kernel in kernels:
        found |= of_kernel(kernel)
    names = [profile["name"] for profile in pack["device_profiles"]]
    keys = [tuple(row[name] for name in ("profile", *PROBLEM)) for row in rows]
    if any(low >= high for low, high in itertools.pairwise(keys)):
        found.add(10)
    if len(set(names)) < len(names) or any(row["profile"] not in names for row in rows):
        found.add(11)
    if pack["launcher_abi"] == 4 and any(each["epilogue"] != "none" for each in kernels + rows):
        found.add(22)
    for row in rows:
        found |= of_row(row, by_id)
    return found | of_blob(pack, blob)


def of_kernel(kernel: dict[str, Any]) -> set[int]:
    operands, sizes = PARAMETERS[kernel["param_layout"]]
    slices, space = kernel["grid"].get("slices", 1), kernel["workspace_bytes"]
    with_workspace = kernel["param_layout"] in ("tma2_ws_v2", "tma2_ws_v2_addend")
    whole = slices > 1 and space > 0 and not kernel["grid"]["persistent"]
    strided = {
        "a": "k" if kernel["layout"][0] == "t" else "m",
        "b": "n" if kernel["layout"][1] == "t" else "k",
        "c": "m",
    }
    maps = [(each, 2 * each["box"][0], each["box"][1]) for each in kernel["tma"]]
    steps = [kernel["dims"][strided[each["operand"]]]["multiple_of"] for each, _, _ in maps]
    states = {
        2: math.prod(kernel["cluster"]) > 16,
        3: any(each["min"] > each["max"] for each in kernel["dims"].values()),
        4: kernel["param_sizes"] != sizes
        or "".join(each["operand"] for each in kernel["tma"]) != operands,
        5: not with_workspace and (slices > 1 or space > 0),
        6: with_workspace and not whole,
        7: kernel.get("cooperative", False) != (slices > 1),
        8: any(wide % 16 or wide > (each["swizzle"] or wide) for each, wide, _ in maps),
        9: any(
            each["row_group"] and (other % each["row_group"] or step % each["row_group"])
            for (each, _, other), step in zip(maps, steps, strict=True)
        ),
        21: kernel["param_layout"].endswith("_addend")
        != (kernel["epilogue"] not in ("none", "gated_silu")),
        23: kernel["epilogue"] == "gated_silu" and kernel["dims"]["n"]["multiple_of"] % 2 > 0,
    }
    return {number for number, is_so in states.items() if is_so}


def of_row(row: dict[str, Any], by_id: dict[str, Any]) -> set[int]:
    named = [row[name] for name in ("kernel", "dependent") if row.get(name) is not None]
    states = {
        12: any(kernel not in by_id for kernel in named),
        13: "dependent" in row and row["kernel"] is None,
        14: not all(takes(by_id[kernel], row) for kernel in named if kernel in by_id),
        15: any(row[state]["lcb"] > row[state]["speedup"] for state in ("hot", "cold")),
    }
    return {number for number, is_so in states.items() if is_so}


def takes(kernel: dict[str, Any], row: dict[str, Any]) -> bool:
    same = all(kernel[name] == row[name] for name in PROBLEM[3:])
    return same and all(
        each["min"] <= row[name] <= each["max"] and row[name] % each["multiple_of"] == 0
        for name, each in kernel["dims"].items()
    )


def of_blob(pack: dict[str, Any], blob: bytes) -> set[int]:
    found, end = set(), 0
    number = "".join(each for each in pack["arch"][3:] if each.isdigit())
    for kernel in pack["kernels"]:
        cubin = blob[kernel["offset"] : kernel["offset"] + kernel["size"]]
        if kernel["offset"] != -(-end // 256) * 256:
            found.add(17)
        if any(blob[end : kernel["offset"]]):
            found.add(18)
        if hashlib.sha256(cubin).hexdigest() != kernel["id"]:
            found.add(19)
        head = (cubin[:7], cubin[8:9], cubin[16:20], cubin[49:50])
        if len(cubin) < 52 or head != (
            b"\x7fELF\2\1\1",
            b"\x08",
            b"\2\0\xbe\0",
            bytes([int(number)]),
        ):
            found.add(20)
        end = kernel["offset"] + kernel["size"]
    if end != len(blob):
        found.add(18)
    if pack["blob"] != {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}:
        found.add(16)
    return found
