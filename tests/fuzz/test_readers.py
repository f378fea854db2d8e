"""Readers of foreign bytes refuse with PackError or accept what is whole, whatever they are given.

Some hundred cases each, the same in every run; benchmarks/gates/fuzz.py does millions, led by
coverage.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgemm_packs.errors import PackError
from hgemm_packs.pack import manifest_reader, strict_json
from tests.fuzz import mutations
from tests.fuzz.targets import (
    LONGEST_MESSAGE,
    SEPARATOR,
    LongMessage,
    OutsideRead,
    WatchedOs,
    accepted,
    read_json,
    targets,
)
from tests.fuzz.write_seeds import SEEDS

NAMES = ("json", "lock", "manifest", "pack", "policy", "receipt")
SEED_FILES = {name: sorted((SEEDS / name).iterdir()) for name in NAMES}
GOOD_PACK = (SEEDS / "pack" / "good").read_bytes()

small = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
by_name = pytest.mark.parametrize("name", NAMES)
Reads = dict[str, Callable[[bytes], None]]


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    with targets() as found:
        yield found


@pytest.mark.parametrize(
    ("name", "seed"), [(name, path.name) for name in NAMES for path in SEED_FILES[name]]
)
def test_a_seed_is_accepted(reads: Reads, name: str, seed: str) -> None:
    """Seeds that are refused at their head would make a fuzzer look at nothing else."""
    assert accepted(reads[name], (SEEDS / name / seed).read_bytes())


@pytest.mark.parametrize("name", ["json", "lock", "manifest", "pack", "receipt"])
@small
@given(data=st.binary(max_size=300))
def test_bytes_are_refused_or_read(reads: Reads, name: str, data: bytes) -> None:
    assert accepted(reads[name], data) == (name == "json" and _is_json(data))


@pytest.mark.parametrize("data", [b"a=" + b"[" * 3000, b"a=" + b"9" * 5000, b"a='\xff'", b"a='\n"])
def test_what_no_toml_reader_takes_is_a_refused_policy(reads: Reads, data: bytes) -> None:
    """Brackets within brackets ended in RecursionError, and thousands of digits in ValueError."""
    with pytest.raises(PackError, match="bad_policy"):
        reads["policy"](data)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode(), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@small
@given(value=VALUES)
def test_documents_are_read_as_they_were_written(value: Any) -> None:
    assert strict_json.read_json(json.dumps(value).encode()) == value


@by_name
@small
@given(rng=st.randoms(use_true_random=False), data=st.data())
def test_changed_documents_are_refused_or_whole(
    reads: Reads, name: str, rng: random.Random, data: st.DataObject
) -> None:
    seed = data.draw(st.sampled_from(SEED_FILES[name])).read_bytes()
    changed = mutations.mutate(rng, seed, lambda part: mutations.cut_or_flip(rng, part))
    accepted(reads[name], changed)


def test_changes_reach_every_layer_of_checks(reads: Reads) -> None:
    """A mutator that only breaks JSON would test nothing but the decoder."""
    rng, codes = random.Random(3), set()
    for _ in range(2000):
        changed = mutations.mutate(rng, GOOD_PACK, lambda part: mutations.cut_or_flip(rng, part))
        try:
            reads["pack"](changed)
            codes.add("accepted")
        except PackError as error:
            codes.add(error.code)
    assert codes >= {
        *("accepted", "not_json", "not_utf8", "wrong_type", "unknown_field", "missing_field"),
        *("bad_value", "out_of_bounds", "unknown_kernel", "blob_end", "kernel_hash"),
        "not_cubin",
    }


def test_no_cut_and_no_changed_byte_of_a_blob_gets_through(reads: Reads) -> None:
    manifest, _, blob = GOOD_PACK.partition(SEPARATOR)
    for at in range(0, len(blob), 4):  # every cubin and every run of padding, in seconds
        cut = manifest + SEPARATOR + blob[:at]
        flipped = manifest + SEPARATOR + blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
        for changed, codes in (
            (cut, {"blob_size"}),
            (flipped, {"kernel_hash", "blob_padding"}),
        ):
            with pytest.raises(PackError) as caught:
                reads["pack"](changed)
            assert caught.value.code in codes


def test_a_deep_value_is_named_and_not_printed() -> None:
    """A refusal printed the value that it refused. The decoder lets documents nest up to the limit
    of the interpreter, so printing one could exceed it: a RecursionError, which nobody catches."""
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(PackError, match="wrong_type: an array is not an integer"):
        strict_json.integer(0, 1)(deep)


def test_a_launcher_abi_of_many_digits_is_cut_short() -> None:
    """The fuzzer's find: a number of thousands of digits went whole into the log."""
    data = b'{"schema": "hgemm-packs/2", "launcher_abi": %s}' % (b"9" * 1000)
    with pytest.raises(PackError) as caught:
        manifest_reader.parse(data)
    assert caught.value.code == "launcher_abi"
    assert len(str(caught.value)) < LONGEST_MESSAGE


def test_the_watch_sees_reads_outside_and_long_messages(reads: Reads, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    with path.open("rb") as file:
        assert WatchedOs.pread(file.fileno(), 8, 0) == b"12345678"
        for size, offset in ((9, 0), (1, 8), (1, -1)):
            with pytest.raises(OutsideRead):
                WatchedOs.pread(file.fileno(), size, offset)
    with pytest.raises(OutsideRead):
        WatchedOs.open("../manifest.json", 0, dir_fd=3)

    def talks(data: bytes) -> None:
        raise PackError("x", "y" * 600)

    with pytest.raises(LongMessage):
        accepted(talks, b"")
    with pytest.raises(ZeroDivisionError):
        accepted(lambda data: read_json(data[: 1 // len(data)]), b"")
