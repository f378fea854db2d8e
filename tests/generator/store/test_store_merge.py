"""Two stores make one, and damaged ones are found, mended or refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.store import schema
from hgemm_packs.generator.store.run_folder import Store, StoreError, merge
from tests.generator.store.filled_store import fill
from tests.generator.store.sample_store import FACTS, PROBLEMS, choices, kernel


def rows(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, in an order of their own."""
    return {
        table: sorted(store.db.execute(f"SELECT * FROM {table}"), key=repr)
        for table in schema.TABLES
    }


def blobs(store: Store) -> dict[str, bytes]:
    found = (path for path in (store.folder / "blobs").rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in found}


def test_cubins_are_kept(tmp_path: Path) -> None:
    built, refused, untried = choices(3)
    with Store(tmp_path) as store:
        tool = store.add_toolchain({})
        store.add_build(built, tool, kernel(built))
        store.add_build(refused, tool, Verdict("binary", Status.BINARY, "fp16 accumulator"))
        assert store.built(built, tool) == kernel(built)
        assert store.kernel(kernel(built).id) == kernel(built)
        verdict = store.built(refused, tool)
        assert verdict == Verdict("binary", Status.BINARY, "fp16 accumulator")
        assert store.built(untried, tool) is None
        path = store.blob_path(kernel(built).id)
        path.write_bytes(b"damaged")
        with pytest.raises(StoreError, match="damaged"):
            store.kernel(kernel(built).id)
        path.unlink()  # as after a loss of power: built again
        assert store.built(built, tool) is None


def test_a_damaged_cubin_is_mended_when_it_is_built_again(tmp_path: Path) -> None:
    (choice,) = choices(1)
    with Store(tmp_path) as store:
        tool = store.add_toolchain({})
        store.add_build(choice, tool, kernel(choice))
        store.blob_path(kernel(choice).id).write_bytes(b"damaged")
        assert store.built(choice, tool) is None
        store.add_build(choice, tool, kernel(choice))
        assert store.built(choice, tool) == kernel(choice)


def test_merge_is_a_union(tmp_path: Path) -> None:
    """Either way round, and twice as well as once; a strategy is told both histories."""
    for folder, picked in (("a", choices(4)), ("b", choices(6)[2:])):
        with Store(tmp_path / folder) as store:
            us = [float(i + 2) for i in range(len(picked))]
            fill(store, PROBLEMS[0], picked, us, folder)
            _, tool = fill(store, PROBLEMS[ord(folder) % 7 + 1], picked, us, folder)
            store.add_verdict(kernel(picked[0]).id, Verdict("sanitizer", Status.OK))
    dumps, files = [], []
    for order in (("a", "b"), ("b", "a"), ("a", "b", "b", "a")):
        with Store(tmp_path / "".join(order)) as store:
            for folder in order:
                merge(store, tmp_path / folder)
            dumps.append(rows(store))
            files.append(blobs(store))
            told = {o.proposal.choice: o.us for o in store.outcomes(PROBLEMS[0], tool, FACTS)}
            assert told[choices(6)[0]] == 2.0 and told[choices(6)[5]] == 5.0
    assert dumps[0] == dumps[1] == dumps[2]
    assert files[0] == files[1] == files[2]
    assert len(files[0]) == 6 and len(dumps[0]["job"]) == 4


def test_merge_copies_no_damaged_blob(tmp_path: Path) -> None:
    (choice,) = choices(1)
    with Store(tmp_path / "a") as store:
        fill(store, PROBLEMS[0], [choice], [2.0])
        store.blob_path(kernel(choice).id).write_bytes(b"torn")
    with Store(tmp_path / "b") as store:
        with pytest.raises(StoreError, match="damaged"):
            merge(store, tmp_path / "a")
        assert list(store.measured()) == []


def test_a_run_that_goes_on_is_merged_as_it_was(tmp_path: Path) -> None:
    """What it adds once its cubins are copied waits for the next merge."""
    old, new = choices(2)

    class Slow(Store):
        def put_blob(self, data: bytes) -> str:
            if not self.blob_path(kernel(old).id).exists():
                fill(source, PROBLEMS[1], [new], [3.0])
            return super().put_blob(data)

    with Store(tmp_path / "a") as source, Slow(tmp_path / "b") as into:
        fill(source, PROBLEMS[0], [old], [2.0])
        merge(into, source.folder)
        assert [done.problem for done in into.measured()] == [PROBLEMS[0]]
        merge(into, source.folder)
        assert [done.problem for done in into.measured()] == PROBLEMS[:2]
        assert into.blob(kernel(new).id) == kernel(new).cubin


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        Store(tmp_path / "absent", readonly=True)
    assert not (tmp_path / "absent").exists()
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"a text that is no database at all" * 99)
    with pytest.raises(StoreError, match="no store, or damaged"):
        Store(tmp_path)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE study (id)")
    other.close()
    with pytest.raises(StoreError, match="something else"):
        Store(tmp_path)
    path.unlink()
    Store(tmp_path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    with pytest.raises(StoreError, match="schema 2; this version reads 1"):
        Store(tmp_path, readonly=True)


def test_damaged_pages_are_found(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, PROBLEMS[0], choices(8), [2.0] * 8)
    data = bytearray((tmp_path / "store.sqlite").read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    (tmp_path / "store.sqlite").write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path)
