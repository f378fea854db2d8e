"""How a good pack is spoiled: edits of the manifest, its text, the blob, and the files themselves.

Used by `cases`. Edits keep all hashes true unless the hash is what is attacked, so that each case
is refused for its own sake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Spoils the pack at a path.
Change = Callable[[Path], None]


def in_lines(document: dict[str, Any]) -> bytes:
    """A manifest as the packer writes it, whatever is in it."""
    lines = []
    for name, value in sorted(document.items()):
        text = compact(value)
        if name in ("kernels", "predictors", "table") and isinstance(value, list):
            text = "[\n" + ",\n".join(map(compact, value)) + "\n]"
        lines.append(f"{json.dumps(name)}:{text}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def edit(pack: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the decoded manifest in place and write it back."""
    path = pack / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_bytes(in_lines(document))


def edit_blob(pack: Path, change: Callable[[bytearray], None]) -> None:
    """Change the blob in place, and make the manifest's size and hash of it true again."""
    path = pack / "kernels.bin"
    blob = bytearray(path.read_bytes())
    change(blob)
    path.write_bytes(blob)
    facts = {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}
    edit(pack, lambda document: document.update(blob=facts))


def on_cubin(change: Callable[[bytes], bytes], index: int = 0) -> Change:
    """Exchange one cubin for bytes of no greater length, filled up with zeros; its id follows."""

    def exchange(pack: Path) -> None:
        entry = json.loads((pack / "manifest.json").read_text())["kernels"][index]
        place = slice(entry["offset"], entry["offset"] + entry["size"])
        made = b""

        def write(blob: bytearray) -> None:
            nonlocal made
            made = change(bytes(blob[place])).ljust(entry["size"], b"\0")
            blob[place] = made

        edit_blob(pack, write)
        new = hashlib.sha256(made).hexdigest()
        replace_all(entry["id"], new)(pack)

    return exchange


def put(value: Any, *keys: str | int) -> Change:
    """Put `value` at the end of a path of keys."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return lambda pack: edit(pack, change)


def replace_text(old: str, new: str) -> Change:
    """Replace text of the manifest that no decoded form could carry."""

    def change(pack: Path) -> None:
        path = pack / "manifest.json"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def replace_all(old: str, new: str) -> Change:
    return manifest_bytes(lambda data: data.replace(old.encode(), new.encode()))


def manifest_bytes(make: Callable[[bytes], bytes]) -> Change:
    def change(pack: Path) -> None:
        path = pack / "manifest.json"
        path.write_bytes(make(path.read_bytes()))

    return change


def on_manifest(change: Callable[[dict[str, Any]], None]) -> Change:
    return lambda pack: edit(pack, change)


def on_blob(change: Callable[[bytearray], None]) -> Change:
    return lambda pack: edit_blob(pack, change)


def instead_of(name: str, make: Callable[[Path], object]) -> Change:
    """Put something that is no regular file where a file of the pack was."""

    def change(pack: Path) -> None:
        path = pack / name
        kept = pack.parent / f"{pack.name}.{name}"
        path.rename(kept)
        make(path)

    return change
