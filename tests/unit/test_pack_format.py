"""docs/pack_format.md is enough to read a pack: a reader written from the page agrees with the
package's own on good packs and on bad ones."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs import select
from hgemm_packs.errors import PackError
from hgemm_packs.pack.manifest import OF_BATCH
from hgemm_packs.problem import Problem
from tests import pack_reader, pack_states, packs, predictions
from tests.abuse.case import Case
from tests.abuse.cases import CASES

REPOSITORY = Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "manifests" / "schema.json").read_text())
LAYOUTS = ("ptr_v1", "tma2_v1", "tma3_v1", "tma2_ws_v2")
ROOM = 64  # problems of the large pack


def identity(kernel: dict[str, Any]) -> str:
    """As the page's "Identity of a kernel" has it."""
    grid = kernel["grid"]
    record = {
        "align": [kernel["align"][name] for name in "abc"],
        "cluster": kernel["cluster"],
        "cooperative": kernel.get("cooperative", False),
        "dims": [
            [kernel["dims"][name][bound] for bound in ("min", "max", "multiple_of")]
            for name in "mnk"
        ],
        "maps": [
            [each["box"], each["swizzle"], each["row_group"], each["l2_promotion"]]
            for each in kernel["tma"]
        ],
        "persistent": grid["persistent"],
        "reads_ahead": kernel.get("reads_ahead", False),
        "slices": grid.get("slices", 1),
        "tile": [grid["tile_m"], grid["tile_n"]],
        "triggers_early": kernel.get("triggers_early", False),
    }
    same = ("block", "dtype", "layout", "param_layout", "param_sizes", "smem_bytes", "symbol")
    record |= {name: kernel[name] for name in (*same, "workspace_bytes")}
    if kernel["epilogue"] != "none":
        record["epilogue"] = kernel["epilogue"]
    said = {"cubin": kernel["id"], "record": record, "rules": 2}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def large(folder: Path) -> Any:
    """A pack with two kernels of each parameter layout, that differ in all they may, and rows of
    every sort, every second of them for another type and layout."""
    kernels = []
    for index, (layout, dtype) in enumerate(itertools.product(LAYOUTS, ("f16", "bf16"))):
        changes: dict[str, Any] = {"dtype": dtype, "out_dtype": dtype, "block": 128 + 32 * index}
        if dtype == "bf16":
            changes |= {"layout": "nt", "reads_ahead": True, "triggers_early": index % 4 == 1}
        size = 700 + 100 * index
        kernels.append(packs.built(f"k{index}", layout, size=size, **changes))
    rows = []
    for index in range(ROOM):
        is_bf16 = index % 2
        own, other = (kernels[2 * (each % 4) + is_bf16] for each in (index, index // 4))
        layout, dtype = ("nt", "bf16") if is_bf16 else ("nn", "f16")
        problem = Problem(8 * (1 + index % 5), 8 * (1 + index), 64, layout, dtype)
        kernel = None if index % 7 == 3 else own
        dependent = other if kernel and index % 3 else None
        rows.append(packs.row(problem, kernel, lcb=1.03 + index / 1000, dependent=dependent))
    # Operands with gaps, and at other addresses: of a kernel that takes them, and of none.
    odd = [((16, 16, 16), False), ((4, 16, 16), True), ((4, 16, 8), False)]
    for base, packed in odd:
        problem = Problem(8, 8, 64, "nn", "f16", base=base, packed=packed)
        rows.append(packs.row(problem, kernels[0] if base[0] == 16 else None))
    for index, layout in enumerate(OF_BATCH.values()):
        kernel = packs.built(f"b{index}", layout, epilogue=("none", "residual")[index // 2])
        kernels.append(kernel)
        problem = dataclasses.replace(
            packs.WIN, epilogue=kernel.entry_fields["epilogue"], batches=3 + index % 2
        )
        rows.append(packs.row(problem, kernel))
        rows.append(packs.row(dataclasses.replace(problem, packed=False), kernel))
    source = packs.source(kernels, rows, launcher_abi=7)
    return packs.write_pack(folder, source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]


#: What a row leaves out that says nothing of these.
ALIGNED = {
    "dependent": None,
    "base": {"a": 16, "b": 16, "c": 16},
    "packed": True,
    "batches": 1,
}


#: The same of a profile.
NOT_RECORDED = {"theoretical_mem_bw_gbps": None, "power_limit_w": None}


def plain(value: Any) -> Any:
    """Named tuples of the package as JSON has them."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (tuple, list)) else value


def test_the_reader_is_short_and_has_nothing_of_the_package() -> None:
    text = Path(pack_reader.__file__).read_text()
    assert len(text.splitlines()) < 120
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert imported <= set(sys.stdlib_module_names), imported


def test_both_read_the_same_kernels_rows_and_cubins(tmp_path: Path) -> None:
    predicting = predictions.write(tmp_path / "predicting")
    assert pack_reader.read(predicting.path)["predictors"] == plain(predicting.manifest.predictors)
    for pack in (packs.write_good(tmp_path / "good"), large(tmp_path / "large"), predicting):
        read, manifest = pack_reader.read(pack.path), pack.manifest
        assert pack_states.forbidden(read, (pack.path / "kernels.bin").read_bytes()) == set()
        for name in ("pack", "toolchain", "generator", "blob", "baseline", "policy"):
            assert read[name] == plain(getattr(manifest, name))
        profiles = [NOT_RECORDED | each for each in read["device_profiles"]]
        assert profiles == plain(manifest.device_profiles)
        assert len(read["kernels"]) == len(manifest.kernels) > 0
        for mine, entry in zip(read["kernels"], manifest.kernels, strict=True):
            assert read["image"][mine["id"]] == bytes(pack.image(entry))
            assert identity(mine) == select.identity(entry)
            theirs = plain(entry)
            theirs["dims"] = {name: theirs.pop(name) for name in "mnk"}
            theirs["align"] = dict(zip("abc", theirs["align"], strict=True))
            mine["grid"].setdefault("slices", 1)
            for name in ("cooperative", "reads_ahead", "triggers_early"):
                mine.setdefault(name, False)
            assert mine == theirs
        assert len(read["table"]) == len(manifest.table) > 0
        for mine, row in zip(read["table"], manifest.table, strict=True):
            assert ALIGNED | mine == plain(row) | {"base": dict(zip("abc", row.base, strict=True))}


@pytest.mark.usefixtures("clean_process")
def test_both_pick_the_same_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = large(tmp_path / "large")
    read = pack_reader.read(pack.path)
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    problems = [Problem(*row.key) for row in pack.manifest.table]
    problems += [dataclasses.replace(each, batches=each.batches % 5 + 1) for each in problems]
    problems += [dataclasses.replace(each, k=each.k + 8) for each in problems]
    problems += [dataclasses.replace(each, layout="tt") for each in problems[:ROOM]]
    here = packs.H200
    devices = [
        here,
        dataclasses.replace(here, sm_count=114),
        dataclasses.replace(here, driver=12090),
        dataclasses.replace(here, arch="sm_90"),
        dataclasses.replace(here, name="NVIDIA H100"),
        dataclasses.replace(here, l2_bytes=50 << 20),
    ]
    found = set()
    for device, problem in itertools.product(devices, problems):
        choice = select.resolve(problem, 0, device)
        theirs = None
        if choice.kernel is not None:
            theirs = choice.kernel.id, choice.dependent and choice.dependent.id
        facts = {"name": device.name, "sm_count": device.sm_count, "l2_bytes": device.l2_bytes}
        asked = facts, device.arch, device.driver
        wanted = (*problem.key[:8], problem.base, problem.packed, problem.batches)
        assert pack_reader.pick(read, wanted, *asked) == theirs, (problem, device)
        found.add(theirs)
    assert None in found and len(found) > 20
    assert any(each and each[1] is None for each in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_abusive_pack_is_refused_by_what_the_page_says(case: Case, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    packs.write_good(bad).close()
    case.change(bad)
    with pytest.raises(PackError):
        type(packs.write_good(tmp_path / "good")).open_verified(bad)
    try:
        read = pack_reader.read(bad)
    except (ValueError, OSError, RecursionError):
        return
    if case.code == "not_canonical":  # the one rule of "Lines" that this reader does not need
        ids = [f'"id":"{kernel["id"]}"' for kernel in read["kernels"]]
        assert not all(each in (bad / "manifest.json").read_text() for each in ids)
        return
    assert pack_states.forbidden(read, (bad / "kernels.bin").read_bytes()), case.code


def test_every_forbidden_state_is_met_by_some_abusive_pack(tmp_path: Path) -> None:
    """So that none of the page's states is a guess. Those of hashes end the reader itself."""
    numbers = set()
    for index, case in enumerate(CASES):
        bad = tmp_path / str(index)
        packs.write_good(bad).close()
        case.change(bad)
        try:
            blob = pack_reader.load(bad, "kernels.bin", 1 << 29)
            document = json.loads(pack_reader.load(bad, "manifest.json", 1 << 24))
            if pack_reader.fits(document, "manifest"):
                numbers |= pack_states.forbidden(document, blob)
        except (ValueError, OSError, RecursionError):
            continue
    section = pack_reader.PAGE.split("## Forbidden states")[1].split("\n## ")[0]
    listed = [int(line.split(".")[0]) for line in section.splitlines() if line[:1].isdigit()]
    assert listed == list(range(1, 39))
    assert numbers == set(listed)


def test_a_damaged_pack_is_refused(tmp_path: Path) -> None:
    """Any one byte of either file: it is refused, or the manifest is another one's name."""
    pack = packs.write_good(tmp_path / "good")
    for name in ("manifest.json", "kernels.bin"):
        path = pack.path / name
        data = path.read_bytes()
        for place in range(0, len(data), 37):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            outcome = set()
            for read in (pack_reader.read, type(pack).open_verified):
                try:
                    manifest = read(pack.path)
                except (ValueError, PackError):
                    outcome.add("refused")
                else:
                    blob = (pack.path / "kernels.bin").read_bytes()
                    mine = read is pack_reader.read and pack_states.forbidden(manifest, blob)
                    outcome.add("refused" if mine else "taken")
            assert len(outcome) == 1, (name, place, outcome)
            assert name == "manifest.json" or outcome == {"refused"}
        path.write_bytes(data)


def schema_type(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = SCHEMA["$defs"][part["$ref"].rsplit("/", 1)[1]]
    return part


def agree(kind: str, part: dict[str, Any], seen: set[str]) -> None:
    """A type of the page and a part of manifests/schema.json say the same."""
    part = schema_type(part)
    head, *rest = kind.split()
    if head in pack_reader.TABLES:
        seen.add(head)
        fields = pack_reader.TABLES[head]
        assert [name for name, _, _ in fields] and part["additionalProperties"] is False
        assert {name for name, _, _ in fields} == part["properties"].keys(), head
        assert {name for name, optional, _ in fields if not optional} == set(part["required"])
        for name, _, each in fields:
            agree(each, part["properties"][name], seen)
    elif head == "array":
        low, high = map(int, rest[0].split(".."))
        assert (low, high) == (part.get("minItems", 0), part["maxItems"]), kind
        agree(" ".join(rest[2:]), part["items"], seen)
    elif head == "object":
        assert int(rest[0].split("..")[1]) == part["maxProperties"]
        kinds = " ".join(rest[2:]).split(" or ")
        options = {option["type"]: option for option in part["additionalProperties"]["anyOf"]}
        assert sorted(options) == ["boolean", "integer", "string"] and kinds[0] == "bool"
        agree(kinds[1], options["integer"], seen)
        agree(kinds[2], options["string"], seen)
    elif kind.endswith(" or null"):
        options = part["anyOf"]
        assert {"type": "null"} in options
        agree(head, next(each for each in options if each != {"type": "null"}), seen)
    elif head == "one":
        assert rest[1:] == [str(each) for each in part["enum"]], kind
    elif head in ("int", "number"):
        low, high = map(float, rest[0].split(".."))
        assert (low, high) == (part["minimum"], part["maximum"]), kind
        assert part["type"] == {"int": "integer"}.get(head, head)
        assert part.get("multipleOf", 1) == (int(rest[2]) if len(rest) > 1 else 1)
    elif head == "bool":
        assert part["type"] == "boolean"
    else:
        assert part["pattern"] == f"^{pack_reader.TEXTS[head]}$", kind


def test_the_page_and_the_schema_say_the_same() -> None:
    seen: set[str] = set()
    agree("manifest", SCHEMA, seen)
    assert seen == pack_reader.TABLES.keys()
