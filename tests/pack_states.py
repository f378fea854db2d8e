"""The forbidden states of docs/pack_format.md by their numbers there, written from the page alone.

`tests/unit/test_pack_format.py` asks it of what `pack_reader` has read.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
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
BATCHED = {
    "tma2_batched_v1": ("ab", [128, 128, 8, 4, 4, 4, 4, 4]),
    "tma3_batched_v1": ("abc", [128, 128, 128, 4, 4, 4, 4]),
    "tma2_batched_v1_addend": ("ab", [128, 128, 8, 4, 4, 4, 4, 8, 4]),
    "tma3_batched_v1_addend": ("abc", [128, 128, 128, 4, 4, 4, 8, 4]),
}
PARAMETERS |= BATCHED
GROUPED = "tma2_grouped_v1"
PARAMETERS[GROUPED] = ("ab", [128, 128, 8, 4, 4, 4, 4, 8, 4])


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
    keys = [(row["profile"], *key_of(row)) for row in rows]
    if any(low >= high for low, high in itertools.pairwise(keys)):
        found.add(10)
    if len(set(names)) < len(names) or any(row["profile"] not in names for row in rows):
        found.add(11)
    if pack["launcher_abi"] == 4 and any(each["epilogue"] != "none" for each in kernels + rows):
        found.add(22)
    odd = [row for row in rows if len(key_of(row)) > 8]
    if (odd and pack["launcher_abi"] < 6) or not all(map(says_more, odd)):
        found.add(29)
    batched = [row for row in rows if "batches" in row]
    batched += [kernel for kernel in kernels if kernel["param_layout"] in BATCHED]
    if batched and pack["launcher_abi"] < 7:
        found.add(36)
    for row in rows:
        found |= of_row(row, by_id)
    found |= of_grouped(pack, by_id, names)
    profiles = [each["profile"] for each in pack.get("predictors", [])]
    if len(set(profiles)) < len(profiles) or not set(profiles) <= set(names):
        found.add(30)
    for predictor in pack.get("predictors", []):
        found |= of_predictor(predictor, by_id)
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
        25: kernel["param_layout"] == GROUPED
        and not (
            kernel["grid"]["persistent"]
            and math.prod(kernel["cluster"]) == 1
            and kernel["layout"][0] == "n"
            and not any(each["row_group"] for each in kernel["tma"])
            and [kernel["dims"]["m"][each] for each in ("min", "multiple_of")] == [1, 1]
        ),
        37: kernel["param_layout"] in BATCHED
        and not (
            kernel["grid"]["persistent"]
            and kernel["cluster"][2] == 1
            and not kernel.get("reads_ahead", False)
            and not any(each["row_group"] for each in kernel["tma"])
            and kernel["epilogue"] in ("none", "residual")
        ),
        23: kernel["epilogue"] == "gated_silu" and kernel["dims"]["n"]["multiple_of"] % 2 > 0,
    }
    return {number for number, is_so in states.items() if is_so}


def of_predictor(predictor: dict[str, Any], by_id: dict[str, Any]) -> set[int]:
    families, candidates = predictor["families"], predictor["candidates"]
    kinds = Counter((each["layout"], each["dtype"]) for each in candidates)
    models = [predictor[name] for name in ("ours", "torch", "doubt")]
    ids = {each["kernel"] for each in candidates}
    states = {
        31: len(set(families)) < len(families)
        or len(ids) < len(candidates)
        or max(kinds.values()) > 48,
        32: any(
            each["numbers"][0] >= len(families)
            or not all(each["numbers"][place] for place in (1, 2, 3, 5, 6, 7, 8, 10, 18))
            for each in candidates
        ),
        33: not all(
            each["kernel"] in by_id and is_candidate(each, by_id[each["kernel"]], families)
            for each in candidates
        ),
        34: not all(map(is_forest, models)),
        35: max(predictor["torch"]["feature"]) > 22,
    }
    return {number for number, is_so in states.items() if is_so}


def is_candidate(said: dict[str, Any], kernel: dict[str, Any], families: list[str]) -> bool:
    family, *numbers = said["numbers"]
    genes = [kernel["genome"].get(name) for name in ("tile_k", "stages", "group")]
    *known, group = [
        gene if type(gene) is int and gene > 0 else absent
        for gene, absent in zip(genes, (64, 1, 1), strict=True)
    ]
    grid = kernel["grid"]
    return (
        family < len(families)
        and families[family] == kernel["family"]
        and kernel["epilogue"] == "none"
        and all(said[name] == kernel[name] for name in ("layout", "dtype", "dims"))
        and numbers
        == [
            *(grid["tile_m"], grid["tile_n"], *known, *kernel["cluster"]),
            *(grid.get("slices", 1), int(grid["persistent"])),
            *(kernel["block"], kernel["smem_bytes"], *(kernel["align"][name] for name in "abc")),
            int(kernel["genome"].get("schedule") == "pingpong"),
            int(kernel["genome"].get("wide") is True),
            *(int(kernel["genome"].get("raster") == "n"), group),
        ]
    )


def is_forest(model: dict[str, Any]) -> bool:
    roots, feature, right = model["roots"], model["feature"], model["right"]
    ends = [*roots[1:], len(feature)]
    if not len(feature) == len(right) == len(model["number"]) or roots[0]:
        return False

    def behind(at: int, end: int) -> int:
        """Where the tree that begins there ends, or a place that is none."""
        if not 0 <= at < end:
            return end + 1
        if feature[at] < 0:
            return end + 1 if right[at] else at + 1
        if behind(at + 1, end) != right[at]:
            return end + 1
        return behind(right[at], end)

    return all(behind(root, end) == end for root, end in zip(roots, ends, strict=True))


def of_row(row: dict[str, Any], by_id: dict[str, Any]) -> set[int]:
    named = [row[name] for name in ("kernel", "dependent") if row.get(name) is not None]
    states = {
        12: any(kernel not in by_id for kernel in named),
        13: "dependent" in row and row["kernel"] is None,
        14: not all(takes(by_id[kernel], row) for kernel in named if kernel in by_id),
        38: any(
            ("batches" in row) != (by_id[kernel]["param_layout"] in BATCHED)
            for kernel in named
            if kernel in by_id
        ),
        15: any(row[state]["lcb"] > row[state]["speedup"] for state in ("hot", "cold")),
    }
    return {number for number, is_so in states.items() if is_so}


def of_grouped(pack: dict[str, Any], by_id: dict[str, Any], profiles: list[str]) -> set[int]:
    rows, found = pack.get("grouped", []), set()
    layouts = {kernel["param_layout"] for kernel in pack["kernels"]}
    if pack["launcher_abi"] < 6 and ("grouped" in pack or GROUPED in layouts):
        found.add(24)
    order = ("profile", "groups", "n", "k", "layout", "dtype", "m")
    keys = [tuple(row[name] for name in order) for row in rows]
    if any(low >= high for low, high in itertools.pairwise(keys)):
        found.add(26)
    for row in rows:
        bad_bound = any(row[state]["lcb"] > row[state]["speedup"] for state in ("hot", "cold"))
        if row["profile"] not in profiles or row["kernel"] not in {*by_id, None} or bad_bound:
            found.add(27)
        kernel = by_id.get(row["kernel"])
        asked = row | {"out_dtype": row["dtype"], "acc": "f32", "epilogue": "none"}
        if kernel and not (kernel["param_layout"] == GROUPED and takes(kernel, asked)):
            found.add(28)
    named = [row.get(name) for row in pack["table"] for name in ("kernel", "dependent")]
    if any(by_id[each]["param_layout"] == GROUPED for each in named if each in by_id):
        found.add(28)
    return found


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What rows rise by within a profile."""
    base, packed = row.get("base", dict.fromkeys("abc", 16)), row.get("packed", True)
    odd = () if packed and {*base.values()} == {16} else (tuple(base.values()), packed)
    if "batches" in row:
        odd = (tuple(base.values()), packed, row["batches"])
    return (*(row[name] for name in PROBLEM), *odd)


def most_of(row: dict[str, Any]) -> dict[str, int]:
    """The bytes that the row lengths of packed operands are multiples of; C's rows are packed."""
    a = row["k" if row["layout"][0] == "n" else "m"]
    b = row["n" if row["layout"][1] == "n" else "k"]
    c = row["n"] // 2 if row["epilogue"] == "gated_silu" else row["n"]
    rows_a = row["m" if row["layout"][0] == "n" else "k"]
    rows_b = row["k" if row["layout"][1] == "n" else "n"]
    packed = row.get("packed", True)
    a, b = (a if packed or rows_a == 1 else 8), (b if packed or rows_b == 1 else 8)
    lengths = {"a": a, "b": b, "c": c}
    return {name: math.gcd(16, 2 * length) for name, length in lengths.items()}


def says_more(row: dict[str, Any]) -> bool:
    base = row.get("base", dict.fromkeys("abc", 16))
    return all(base[name] == 16 or base[name] < most for name, most in most_of(row).items())


def takes(kernel: dict[str, Any], row: dict[str, Any]) -> bool:
    same = all(kernel[name] == row[name] for name in PROBLEM[3:])
    base = row.get("base", dict.fromkeys("abc", 16))
    had = {name: min(base[name], most) for name, most in most_of(row).items()}
    same = same and all(had[name] >= kernel["align"][name] for name in "abc")
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
