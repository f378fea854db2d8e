"""Changes to documents of ours that leave most of them whole, so that deep checks are reached.

Used by the hypothesis tests and, as libFuzzer's mutator, by benchmarks/gates/fuzz.py. Works on
bytes that may be no JSON at all. Never imports a reader.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from typing import Any

from tests.abuse.builder import in_lines
from tests.fuzz.targets import SEPARATOR

_WORDS = r"""
0 1 -1 2 8 15 16 17 31 32 33 64 127 128 255 256 257 1023 1024 4096 4097 16384 65535 65536 65537
2147483647 2147483648 4294967296 9223372036854775808 -0 -0.0 1e308 1e309 -1e999 1e-400 0.5 1.0 1.02
1.5 16.0 NaN Infinity -Infinity true false null [] {} [[]] [null] [1,1,1] [16,16,16] [ ] { } , :
"" "a" "b" "c" "nn" "nt" "f16" "bf16" "f32" "none" "ptr_v1" "tma2_v1" "tma3_v1" "tma2_ws_v2"
"schema" "kernels" "table" "blob" "dependent" "slices" "cooperative" "reads_ahead" "triggers_early"
"hgemm-packs/2" "hgemm-packs/3" "sm_90a" "2026-02-31"
"\ud800" "\u0000" "/etc/passwd\n" "../../etc/passwd"
"""
#: What stands in for a value or a bracket of a document, as JSON text.
TEXTS = (
    *_WORDS.encode().split(),
    b'"%s"' % (b"a" * 64),
    b'"%s"' % (b"a" * 300),
    b"9" * 400,
    b"9" * 5000,
    b"[" * 150 + b"]" * 150,
    b"[" * 985 + b"]" * 985,
    b'{"a":' * 300 + b"1" + b"}" * 300,
)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{},:]')


def _token(rng: random.Random, data: bytes) -> tuple[int, int]:
    """Where a token stands; sought from a random place, as splitting it all takes 0.1 ms."""
    match = _TOKEN.search(data, rng.randrange(len(data) + 1)) or _TOKEN.search(data)
    return match.span() if match else (len(data), len(data))


def change_tokens(rng: random.Random, data: bytes) -> bytes:
    """One or two tokens replaced, dropped, doubled, or taken from elsewhere in the document."""
    for _ in range(rng.choice((1, 1, 1, 2))):
        start, end = _token(rng, data)
        kind = rng.random()
        if kind < 0.6:
            new = rng.choice(TEXTS)
        elif kind < 0.85:
            new = data[slice(*_token(rng, data))]
        else:
            new = b"" if kind < 0.93 else data[start:end] * 2
        data = data[:start] + new + data[end:]
    return data


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    items = value.items() if type(value) is dict else enumerate(value)
    for key, each in items:
        found.append((value, key))
        if type(each) in (dict, list):
            _places(each, found)
    return found


def change_tree(rng: random.Random, data: bytes) -> bytes:
    """A member of the decoded document dropped, doubled, or replaced by another one of it."""
    try:
        document = json.loads(data)
        places = _places(document, []) if type(document) in (dict, list) else []
        holder, key = rng.choice(places)
        other_holder, other_key = rng.choice(places)
    except (ValueError, RecursionError, IndexError):
        return change_tokens(rng, data)
    kind = rng.randrange(4)
    value = json.loads(json.dumps(other_holder[other_key]))
    if kind == 0:
        del holder[key]
    elif kind == 1 and type(holder) is list:
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif kind == 2 and type(holder) is dict:
        holder[f"{key}{rng.randrange(3)}"] = value
    else:
        holder[key] = value
    return in_lines(document) if type(document) is dict else json.dumps(document).encode()


def cut_or_flip(rng: random.Random, data: bytes) -> bytes:
    """Truncated, lengthened, or one byte changed."""
    if not data or rng.random() < 0.1:
        return data + rng.randbytes(rng.randrange(1, 9))
    at = rng.randrange(len(data))
    if rng.random() < 0.3:
        return data[:at]
    return data[:at] + rng.randbytes(1) + data[at + 1 :]


def seal(data: bytes) -> bytes:
    """A pack's input with its hashes made right again, where the manifest can still be read: else
    no change would get past the first hash."""
    manifest, _, blob = data.partition(SEPARATOR)
    try:
        document = json.loads(manifest)
        renamed = {}
        for entry in document["kernels"]:
            image = blob[entry["offset"] : entry["offset"] + entry["size"]]
            renamed[entry["id"]] = entry["id"] = hashlib.sha256(image).hexdigest()
        for row in document["table"]:
            row["kernel"] = renamed.get(row["kernel"], row["kernel"])
        document["blob"] = {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}
        return in_lines(document) + SEPARATOR + blob
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return data


def mutate(rng: random.Random, data: bytes, other: Callable[[bytes], bytes]) -> bytes:
    """One changed document; `other` is libFuzzer's own mutation, or cut_or_flip."""
    document, separator, blob = data.partition(SEPARATOR)
    kind = rng.random()
    if separator and kind < 0.25:
        blob = cut_or_flip(rng, blob)
    elif kind < 0.7:
        document = change_tokens(rng, document)
    elif kind < 0.78:
        document = change_tree(rng, document)
    else:
        document = other(document)
    data = document + separator + blob
    return seal(data) if separator and rng.random() < 0.5 else data
