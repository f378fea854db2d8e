"""What the one reader of JSON refuses before it decodes, and how it shows what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgemm_packs.errors import PackError
from hgemm_packs.pack import strict_json
from hgemm_packs.pack.folder import BUNDLE_NAME, SIGNATURE_NAME
from hgemm_packs.pack.strict_json import MAX_DEPTH, read_json

REPO = Path(__file__).parents[2]

#: A child reads from outside; what leads a decoder to the end of its stack ends it with a signal.
CHILD = """
import sys
sys.setrecursionlimit(10_000_000)
from pathlib import Path
from hgemm_packs import errors
from hgemm_packs.distribution import policy, remote, signatures, transfer
from hgemm_packs.pack import strict_json
DEEP = b'{"sha":' + b'[' * 1_000_000
remote.receive = lambda request, sink, patience: sink.write(DEEP)
KEY = policy.Key(Path("k.pem"), b"")
try:
    READ
except (errors.PackError, transfer.HubError) as error:
    print(error.code)
"""
READERS = {
    "a manifest": ("strict_json.read_json(DEEP)", "too_deep"),
    "an answer of a Hub": ("remote.Remote('http://a', {}).look('a/b', 'main')", "bad_answer"),
    "a bundle": (
        "signatures.verify_sigstore(b'', Path('FOLDER', signatures.BUNDLE_NAME), 'me', 'issuer')",
        "bad_signature",
    ),
    "a signature": (
        "signatures.verify_key(b'', Path('FOLDER', signatures.SIGNATURE_NAME), KEY)",
        "bad_signature",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_defect_06_nesting_is_refused_where_the_recursion_limit_was_raised(
    name: str, tmp_path: Path
) -> None:
    for file in (BUNDLE_NAME, SIGNATURE_NAME):
        (tmp_path / file).write_bytes(b'{"a":' + b"[" * 1_000_000)
    read, code = READERS[name]
    text = CHILD.replace("READ", read.replace("FOLDER", str(tmp_path)))
    child = [sys.executable, "-c", text]
    done = subprocess.run(child, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{code}\n"), done.stderr


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (dict, list)) + max(map(depth, inner), default=0)


#: Strings that look like structure, and what must be escaped in one.
TEXT = st.text(alphabet='[]{}",:\\é\n', max_size=6)
VALUES = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=30,
)


@given(VALUES, st.integers(0, 2 * MAX_DEPTH), st.booleans())
def test_nesting_is_counted_as_a_decoder_counts_it(inner: Any, wraps: int, spaced: bool) -> None:
    value = inner
    for turn in range(wraps):
        value = {"]": value} if turn % 3 == 0 else ["}", value, "[", {}]
    data = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_SAFE_RECURSION", 0)
        if depth(value) <= MAX_DEPTH:
            assert read_json(data) == value
        else:
            with pytest.raises(PackError, match="too_deep"):
                read_json(data)


@pytest.mark.parametrize("tail", [b"", b']"', b"\\", b'\\"' + b"]" * 100, b"]" * 100, b"[]" * 100])
@pytest.mark.parametrize("head", [b"[", b'{"a":', b'["]",', b'["\\"]",', b'{"]":{},"a":['])
def test_what_is_cut_off_cannot_nest_deeper_either(
    head: bytes, tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "_SAFE_RECURSION", 0)
    for repeats, codes in ((4, {"not_json"}), (2 * MAX_DEPTH + 2, {"too_deep"})):
        with pytest.raises(PackError) as error:
            read_json(head * repeats + tail)
        assert error.value.code in codes


@pytest.mark.parametrize("digits", [5000, 100_000])
@pytest.mark.parametrize(
    "check",
    [
        strict_json.integer(0, 9),
        strict_json.number(0, 9),
        strict_json.boolean,
        strict_json.text("a"),
        strict_json.one_of(1, 2),
        strict_json.listing(strict_json.boolean, 0, 9),
        strict_json.record(dict, a=strict_json.boolean),
    ],
)
def test_defect_15_an_integer_that_python_does_not_print_is_refused_in_few_words(
    check: strict_json.Check, digits: int
) -> None:
    with pytest.raises(PackError) as error:
        check(16**digits)
    assert len(str(error.value)) < 200
    assert re.search(r"an integer of \d+ bits", str(error.value))
