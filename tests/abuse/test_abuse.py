"""Every abusive pack is refused with its own code, warned about once, and stops nothing."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.errors import PackError
from hgemm_packs.generator.devices.fake import fake_cubin
from hgemm_packs.pack import discover
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from tests import packs
from tests.abuse.builder import edit, put
from tests.abuse.case import OPEN, WHOLE, Case
from tests.abuse.cases import CASES

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def bad(tmp_path: Path, case: Case) -> Path:
    folder = tmp_path / "bad"
    packs.write_good(folder).close()
    case.change(folder)
    return folder


def open_files() -> set[str]:
    """Links of this process's open files; the listing's own handle is gone by the time it ends."""
    return {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@by_name
def test_the_check_of_all_refuses_with_exactly_this_code(case: Case, bad: Path) -> None:
    with pytest.raises(PackError) as caught:
        Pack.open_verified(bad)
    assert caught.value.code == case.code
    assert len(str(caught.value)) < 600


@by_name
def test_no_file_stays_open(case: Case, bad: Path) -> None:
    before = open_files()
    with pytest.raises(PackError):
        Pack.open_verified(bad)
    assert open_files() == before


@by_name
def test_it_is_seen_when_the_case_says(case: Case, bad: Path) -> None:
    if case.seen == OPEN:
        with pytest.raises(PackError) as caught:
            Pack.open(bad)
        assert caught.value.code == case.code
    else:
        Pack.open(bad).close()


def used(problem: Problem) -> tuple[str, bytes] | None:
    """What a process launches, found as the launcher does it: a pack whose cubin is not what it
    says is refused, and the next one asked."""
    while True:
        choice = select.resolve(problem, 0, packs.H200)
        if choice.pack is None or choice.kernel is None:
            return None
        try:
            return choice.kernel.name, bytes(choice.pack.image(choice.kernel))
        except PackError as error:
            select.refuse(choice.pack, error)


@by_name
@pytest.mark.usefixtures("clean_process")
def test_what_is_used_is_right_with_the_good_pack_beside_it(
    case: Case,
    bad: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = packs.write_good(tmp_path / "good")
    monkeypatch.setenv("HGEMM_PACKS_PATH", os.pathsep.join([str(bad), str(good.path)]))
    code = case.used or case.code
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        for _ in range(2):
            assert used(packs.WIN) == ("k_tma2", packs.fake_cubin("k_tma2", 1300))
            assert used(packs.WIN_SMALL) == ("k_direct", packs.fake_cubin("k_direct", 700))
            assert used(packs.CUBLAS) is None
            refused = [each.error.code for each in select.find_packs().refused]
            assert refused == ([] if case.seen == WHOLE else [code])
            select.reset()
        known = select.verify_packs()
    assert [each.error.code for each in known.refused] == [case.code]
    assert [each.path for each in known.packs] == [good.path]
    warned = Counter(record.getMessage().split(": ")[2].split(" ")[0] for record in caplog.records)
    assert warned == Counter({case.code} if case.seen == WHOLE else {code, case.code})


@pytest.mark.usefixtures("clean_process")
def test_an_abusive_pack_alone_means_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs.write_good(tmp_path / "bad").close()
    put(3, "launcher_abi")(tmp_path / "bad")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(tmp_path / "bad"))
    choice = select.resolve(packs.WIN, 0, packs.H200)
    assert choice.kernel is None
    assert choice.code == "launcher_abi"


# What is wrong for this device only is no reason to refuse the pack, but one not to use it.
@pytest.mark.parametrize(
    ("value", "keys", "code"),
    [
        (13010, ("min_driver",), "driver"),
        (114, ("device_profiles", 0, "sm_count"), "profile"),
    ],
)
@pytest.mark.usefixtures("clean_process")
def test_a_pack_for_another_device_is_passed_over(
    value: object,
    keys: tuple[str | int, ...],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packs.write_good(tmp_path / "other").close()
    put(value, *keys)(tmp_path / "other")
    _passed_over(tmp_path, monkeypatch, code)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100a"])
@pytest.mark.usefixtures("clean_process")
def test_a_pack_of_another_arch_is_passed_over(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs.write_good(tmp_path / "other", arch=arch).close()
    _passed_over(tmp_path, monkeypatch, "arch")


def _passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The pack at `other`, alone and beside a good one."""
    good = packs.write_good(tmp_path / "good")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(tmp_path / "other"))
    alone = select.resolve(packs.WIN, 0, packs.H200)
    assert (alone.kernel, alone.code) == (None, code)
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{tmp_path / 'other'}{os.pathsep}{good.path}")
    discover.settings.cache_clear()
    select.reset()
    beside = select.resolve(packs.WIN, 0, packs.H200)
    assert [reason.code for reason in beside.reasons] == [code, "kernel"]
    assert beside.pack is not None and beside.pack.path == good.path


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    for place, code in (
        (tmp_path / "nothing", "missing_file"),
        (tmp_path / ("x" * 300), "unreadable"),
        (Path("a\0b"), "unreadable"),
        (Path(__file__), "not_a_directory"),
    ):
        with pytest.raises(PackError) as caught:
            Pack.open(place)
        assert caught.value.code == code


@pytest.mark.parametrize("name", ["manifest.json", "kernels.bin"])
def test_a_file_without_permission(name: str) -> None:
    # Not below tmp_path: once root has stepped down, its folders are closed as a whole.
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "bad"
        packs.write_good(bad).close()
        Path(folder).chmod(0o755)
        (bad / name).chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(PackError) as caught:
                Pack.open_verified(bad)
        finally:
            os.seteuid(user)
    assert caught.value.code == "unreadable" and name in caught.value.detail


def test_a_blob_that_changes_after_the_pack_was_opened(tmp_path: Path) -> None:
    pack = packs.write_good(tmp_path / "good")
    entry = pack.manifest.kernels[1]
    blob = tmp_path / "good" / "kernels.bin"
    kept = bytes(pack.image(entry))

    data = bytearray(blob.read_bytes())
    blob.rename(tmp_path / "old")
    blob.write_bytes(bytes(len(data)))
    assert bytes(pack.image(entry)) == kept, "a new file under the name must not be read"

    data[entry.offset] ^= 1
    (tmp_path / "old").write_bytes(data)
    with pytest.raises(PackError) as changed:
        pack.image(entry)
    assert changed.value.code == "kernel_hash"
    os.truncate(tmp_path / "old", entry.offset + 1)
    with pytest.raises(PackError) as truncated:
        pack.image(entry)
    assert truncated.value.code == "truncated"


def test_a_huge_manifest_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs.write_good(tmp_path / "bad").close()
    os.truncate(tmp_path / "bad" / "manifest.json", 1 << 32)

    def pread(handle: int, size: int, offset: int) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(PackError) as caught:
        Pack.open(tmp_path / "bad")
    assert caught.value.code == "manifest_too_large"


def test_an_entry_of_another_pack_gets_no_image(tmp_path: Path) -> None:
    one, two = packs.write_good(tmp_path / "one"), packs.write_good(tmp_path / "two")
    with pytest.raises(PackError) as caught:
        one.image(two.manifest.kernels[0])
    assert caught.value.code == "foreign_kernel"


def test_edits_of_the_builder_are_what_is_refused(tmp_path: Path) -> None:
    """Rewriting the manifest without a change leaves the pack good, so each case is refused for
    its own change."""
    packs.write_good(tmp_path / "good").close()
    edit(tmp_path / "good", lambda document: None)
    assert len(Pack.open(tmp_path / "good").manifest.kernels) == 3


def test_a_cubin_that_ends_in_its_header(tmp_path: Path) -> None:
    kernel = packs.built("k", "ptr_v1", cubin=fake_cubin(b"")[:51])
    source = packs.source([kernel], [packs.row(packs.WIN, kernel)])
    with pytest.raises(PackError) as caught:
        packs.write_pack(tmp_path / "pack", source, [kernel], generator_info=packs.GENERATOR)  # type: ignore[list-item]
    assert caught.value.code == "not_cubin"
