"""Source document and pack writer: strict, reproducible, and never destructive."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import pack_writer
from hgemm_packs.generator.compile.pack_writer import read_source, write_pack, write_source
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import MAX_MANIFEST_BYTES
from tests import packs
from tests.abuse.case import Case
from tests.abuse.cases import FIELDS, FORM, RULES


def write(out: Path, kernels: list[packs.FakeBuilt], **changes: Any) -> Pack:
    rows = changes.pop("rows", packs.good_rows(packs.good_kernels()))
    return write_pack(
        out,
        packs.source(packs.good_kernels(), rows, **changes),
        kernels,
        generator_info=packs.GENERATOR,
    )


def good_source() -> pack_writer.SourceManifest:
    kernels = packs.good_kernels()
    return packs.source(kernels, packs.good_rows(kernels))


def test_the_blob_holds_the_cubins_in_order_aligned_and_padded_with_zeros(tmp_path: Path) -> None:
    pack = packs.write_good(tmp_path / "pack")
    blob = (tmp_path / "pack" / "kernels.bin").read_bytes()
    expected = b""
    for name, size in (("k_direct", 700), ("k_tma2", 1300), ("k_tma3", 900)):
        expected += bytes(-len(expected) % 256) + packs.fake_cubin(name, size)
    assert blob == expected
    assert pack.manifest.blob.sha256 == hashlib.sha256(expected).hexdigest()
    assert sorted(path.name for path in (tmp_path / "pack").iterdir()) == [
        "kernels.bin",
        "manifest.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["pack"], "nothing is left beside it"


def test_the_manifest_is_canonical(tmp_path: Path) -> None:
    packs.write_good(tmp_path / "pack").close()
    data = (tmp_path / "pack" / "manifest.json").read_text(encoding="ascii")
    document = json.loads(data)
    again = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert data.replace("\n", "") == again
    lines = len(document) + len(document["kernels"]) + len(document["table"]) + 4
    assert data.count("\n") == lines, "one a field, a kernel and a row, and the brackets that close"


def test_the_bytes_do_not_depend_on_order_time_or_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs.write_good(tmp_path / "one").close()
    kernels = packs.good_kernels()
    rows = packs.good_rows(kernels)
    monkeypatch.setattr("time.time", lambda: 4e9)
    write_pack(
        tmp_path / "elsewhere" / "two",
        packs.source(kernels[::-1], rows[::-1]),
        kernels[1:] + kernels[:1],
        generator_info=packs.GENERATOR,
    ).close()
    for name in ("manifest.json", "kernels.bin"):
        assert (tmp_path / "one" / name).read_bytes() == (
            tmp_path / "elsewhere" / "two" / name
        ).read_bytes()


def test_an_older_pack_is_replaced_and_stays_readable_by_who_has_it_open(tmp_path: Path) -> None:
    old = packs.write_good(tmp_path / "pack")
    kernels = packs.good_kernels()
    new = write(tmp_path / "pack", kernels, rows=[])
    assert new.manifest.table == ()
    assert bytes(old.image(old.manifest.kernels[0])) == kernels[0].cubin
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


@pytest.mark.parametrize("what", ["file", "link", "foreign"])
def test_nothing_but_a_pack_is_replaced(what: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if what == "file":
        out.write_text("mine")
    elif what == "link":
        (tmp_path / "target").mkdir()
        out.symlink_to(tmp_path / "target")
    else:
        packs.write_good(out).close()
        (out / "notes.txt").write_text("mine")
    before = {path: path.lstat().st_ino for path in tmp_path.rglob("*")}
    with pytest.raises(FileExistsError):
        write(out, packs.good_kernels())
    assert {path: path.lstat().st_ino for path in tmp_path.rglob("*")} == before


def test_a_pack_that_the_reader_refuses_never_takes_its_place(tmp_path: Path) -> None:
    old = packs.write_good(tmp_path / "pack").manifest_sha256
    kernels = packs.good_kernels()
    kernels[0] = dataclasses.replace(
        kernels[0], entry_fields=kernels[0].entry_fields | {"smem_bytes": 10**6}
    )
    with pytest.raises(PackError, match=r"out_of_bounds at kernels\[0\].smem_bytes"):
        write(tmp_path / "pack", kernels)
    assert Pack.open(tmp_path / "pack").manifest_sha256 == old
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_a_failed_swap_puts_the_old_pack_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = packs.write_good(tmp_path / "pack").manifest_sha256
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "fresh":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no"):
        write(tmp_path / "pack", packs.good_kernels(), rows=[])
    assert Pack.open(tmp_path / "pack").manifest_sha256 == old


def test_a_rebuilt_kernel_with_another_id_is_refused(tmp_path: Path) -> None:
    """The promise of reproducible builds: a compiler that gives other bytes must be noticed."""
    kernels = packs.good_kernels()
    kernels[1] = packs.built("k_tma2", "tma2_v1", cubin=b"other bytes")
    with pytest.raises(PackError) as caught:
        write(tmp_path / "pack", kernels)
    assert caught.value.code == "not_built"
    assert kernels[1].entry_fields["id"] in caught.value.detail
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda kernels: kernels[:2], "not_built"),
        (lambda kernels: [*kernels, packs.built("k_more", "ptr_v1")], "not_in_source"),
        (
            lambda kernels: [
                packs.FakeBuilt(kernels[0].entry_fields | {"genome": {}}, kernels[0].cubin),
                *kernels[1:],
            ],
            "build_differs",
        ),
    ],
)
def test_built_and_named_kernels_must_be_the_same(spoil: Any, code: str, tmp_path: Path) -> None:
    with pytest.raises(PackError) as caught:
        write(tmp_path / "pack", spoil(packs.good_kernels()))
    assert caught.value.code == code


def test_a_cubin_that_is_not_its_id_is_refused(tmp_path: Path) -> None:
    kernels = packs.good_kernels()
    kernels[0] = dataclasses.replace(kernels[0], cubin=b"x" * 700)
    with pytest.raises(PackError) as caught:
        write(tmp_path / "pack", kernels)
    assert caught.value.code == "kernel_hash"


def test_source_round_trip_one_kernel_and_one_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    source = good_source()
    first, *others = source.table
    source = dataclasses.replace(source, table=(first._replace(dependent=first.kernel), *others))
    write_source(path, source)
    again = read_source(path)
    assert [row.key for row in again.table if row.dependent] == [first.key]
    assert set(again.table) == set(source.table)
    assert again.kernels == source.kernels
    assert dataclasses.replace(again, table=()) == dataclasses.replace(source, table=())
    lines = path.read_text().splitlines()
    for row in source.table:
        assert sum(f'"m":{row.m},' in line for line in lines) == 1
    assert sum('"genome"' in line for line in lines) == 3
    assert sum('"dependent"' in line for line in lines) == 1  # absent where there is none
    first = path.read_bytes()
    write_source(path, again)
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["h200.json"]


def test_a_folder_says_what_a_file_says(tmp_path: Path) -> None:
    """A table for each layout and type, what all records share once, and the same document."""
    file, folder = tmp_path / "one.json", tmp_path / "one"
    source = good_source()
    write_source(file, source)
    write_source(folder, source)
    assert read_source(folder) == read_source(file)
    kinds = {f"table-{row.layout}-{row.dtype}.json" for row in source.table}
    assert {each.name for each in folder.iterdir()} == {"pack.json", "kernels.json", *kinds}
    for name in kinds:
        table = json.loads((folder / name).read_bytes())
        assert all(table["constants"].keys().isdisjoint(row) for row in table["records"])
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    write_source(folder, read_source(folder))
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one", "one.json"]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("notes.txt", "", "foreign_file"),
        ("pack.json", "[]", "wrong_type"),
        ("kernels.json", '{"constants":{},"records":[1]}', "wrong_type"),
        ("kernels.json", '{"constants":{},"records":[],"more":1}', "wrong_type"),
        ("table-nn-f16.json", '{"constants":{"m":8},"records":[{"m":8}]}', "duplicate_key"),
        ("table-nn-f16.json", '{"constants":{},"constants":{},"records":[]}', "duplicate_json_key"),
        ("table-nn-f16.json", '{"constants":{},"records":[{"m":8}]}', "missing_field"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    write_source(tmp_path / "one", good_source())
    (tmp_path / "one" / name).write_text(text)
    with pytest.raises(PackError) as caught:
        read_source(tmp_path / "one")
    assert caught.value.code == code


def test_a_folder_of_anything_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    with pytest.raises(FileExistsError, match="letter"):
        write_source(tmp_path / "home", good_source())
    assert (tmp_path / "home" / "letter").read_text() == "dear"


def test_a_win_within_the_noise_is_no_row_of_a_source(tmp_path: Path) -> None:
    kernels = packs.good_kernels()
    noisy = packs.row(packs.NOISE, kernels[0], lcb=1.02)
    path = tmp_path / "h200.json"
    write_source(path, good_source())
    before = path.read_bytes()
    with pytest.raises(PackError) as caught:
        write_source(path, packs.source(kernels, [noisy]))
    assert caught.value.code == "unproven_win"
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["h200.json"]


# The source is read by the manifest's own checks: what spoils a manifest spoils a source, where it
# has the field at all.
_SOURCE_CASES = {
    *("truncated_manifest", "manifest_with_a_tail", "not_utf8", "nesting_bomb", "nan"),
    *("duplicate_key", "duplicate_inner_key", "overflowing_float", "endless_integer", "a_list"),
    *("unknown_field", "unknown_row_field", "float_as_int", "zero_dim", "zero_time"),
    *("no_profile", "path_as_pack_name", "path_as_kernel", "newline_in_name", "arch_family"),
    *("foreign_abi", "duplicate_table_key", "duplicate_kernel_id", "duplicate_kernel_name"),
    *("duplicate_profile", "unknown_profile", "unknown_kernel", "bound_above_estimate"),
    *("pdl_of_a_row", "null_dependent", "name_as_dependent", "unknown_dependent"),
    *("pdl_of_a_kernel", "dependent_without_kernel"),
}


@pytest.mark.parametrize(
    "case",
    [case for case in FORM + FIELDS + RULES if case.name in _SOURCE_CASES],
    ids=lambda case: case.name,
)
def test_the_source_is_as_strict_as_the_manifest(case: Case, tmp_path: Path) -> None:
    # The builder's edits know a pack's file name.
    path = tmp_path / "manifest.json"
    write_source(path, good_source())
    read_source(path)
    case.change(tmp_path)
    with pytest.raises(PackError) as caught:
        read_source(path)
    assert caught.value.code == case.code


def test_a_manifest_is_no_source_and_the_other_way_round(tmp_path: Path) -> None:
    packs.write_good(tmp_path / "pack").close()
    with pytest.raises(PackError) as caught:
        read_source(tmp_path / "pack" / "manifest.json")
    assert caught.value.code == "unknown_schema"
    write_source(tmp_path / "pack" / "manifest.json", good_source())
    with pytest.raises(PackError) as caught:
        Pack.open(tmp_path / "pack")
    assert caught.value.code == "unknown_schema"


def test_an_oversized_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    path.write_bytes(b" " * (MAX_MANIFEST_BYTES + 1))
    with pytest.raises(PackError) as caught:
        read_source(path)
    assert caught.value.code == "manifest_too_large"
