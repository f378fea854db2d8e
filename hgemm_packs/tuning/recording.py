"""The problems that a program really multiplies, and how often: `record_shapes`, and its file.

Used by users around a step of their program; `tune` takes the recording. C tells of every call
that it looks up, whoever makes it: `matmul`, layers, and torch's own products under `enable()`.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import launcher
from ..errors import PackError, of_path
from ..pack.manifest_fields import ALIGN, DIM, DTYPE, PROBLEM_FIELDS
from ..pack.strict_json import boolean, integer, listing, one_of, read_json, record
from ..problem import ALIGNED, Problem

SCHEMA = "hgemm-packs/shapes-1"
MAX_BYTES = 64 << 20
MAX_PROBLEMS = 100_000


class Recording(Mapping[Problem, int]):
    """Problems, and how often each was multiplied. As a mapping it is read like a dict; `tune`
    takes it as it is.

    Example:

        with hgemm_packs.record_shapes() as seen, torch.inference_mode():
            model(tokens)
        seen.save("shapes.json")
        hgemm_packs.tune(seen)
    """

    def __init__(self, calls: Mapping[Problem, int] | None = None) -> None:
        self._calls = dict(calls or {})
        self._lock = threading.Lock()

    def __getitem__(self, problem: Problem) -> int:
        return self._calls[problem]

    def __iter__(self) -> Iterator[Problem]:
        return iter(dict(self._calls))

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"Recording({len(self)} problems, {sum(self._calls.values())} calls)"

    def add(self, problem: Problem, calls: int = 1) -> None:
        """Count calls of a problem; of more than 100,000 problems the others are left out."""
        with self._lock:
            if problem in self._calls or len(self._calls) < MAX_PROBLEMS:
                self._calls[problem] = self._calls.get(problem, 0) + calls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording to a file, whole or not at all. Raises OSError.

        Example:

            seen.save("shapes.json")
        """
        target = Path(path)
        most = sorted(self._calls.items(), key=lambda item: (-item[1], str(item[0])))
        lines = ",\n".join(json.dumps(_values(problem, calls)) for problem, calls in most)
        text = f'{{"schema": "{SCHEMA}", "problems": [\n{lines}\n]}}\n'
        with of_path(target):
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, target)
            except BaseException:
                os.unlink(name)
                raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a file that `save` wrote. Raises PackError for any other file, OSError.

        Example:

            hgemm_packs.tune(Recording.load("shapes.json"))
        """
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        try:
            if len(data) > MAX_BYTES:
                raise PackError("file_too_large", f"more than {MAX_BYTES} bytes")
            problems: list[tuple[Problem, int]] = _FILE(read_json(data))
        except PackError as error:
            raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None
        found = cls()
        for problem, calls in problems:
            found.add(problem, calls)
        return found


def is_recording(path: Path) -> bool:
    """Whether a file begins as `save` begins one. Raises OSError."""
    with path.open("rb") as file:
        return file.read(64).startswith(f'{{"schema": "{SCHEMA}"'.encode())


@contextlib.contextmanager
def record_shapes() -> Iterator[Recording]:
    """Record which products the program multiplies in a `with` block, and how often.

    The block holds for the whole process: calls of other threads are recorded, too. Recorded are
    the calls of `matmul`, `linear` and the layers of `hgemm_packs.nn`, torch's own products under
    `enable()`, and products of backward that are ours. A CUDA graph is recorded while it is
    captured, once, and not when it is replayed. Not recorded are grouped products, and calls that
    could get no kernel whatever a table says: other types, other devices, kernels switched off.
    Products that torch.compile left to torch are not seen. Results are what they are without the
    block; a call takes some microseconds longer.

    Yields a `Recording`. Blocks may be nested: each has the calls inside it. Raises RuntimeError
    where the extension is not built.

    Example:

        with hgemm_packs.enabled(), hgemm_packs.record_shapes() as seen:
            model.generate(**inputs)
        hgemm_packs.tune(seen, seconds=60)
    """
    seen = Recording()
    with _lock:
        _open.append(seen)
        launcher.record_calls(_note)
    try:
        yield seen
    finally:
        with _lock:
            _open.remove(seen)
            if not _open:
                launcher.record_calls(None)


_lock = threading.Lock()
_open: list[Recording] = []


def _note(described: tuple[Any, ...]) -> None:
    """C's word of a call that it looks up."""
    problem = launcher.problem_of(described)
    for each in list(_open):
        each.add(problem)


def _values(problem: Problem, calls: int) -> dict[str, Any]:
    p = problem
    said: dict[str, Any] = {"m": p.m, "n": p.n, "k": p.k, "layout": p.layout, "dtype": p.dtype}
    if p.epilogue != "none":
        said["epilogue"] = p.epilogue
    if p.base != ALIGNED:
        said["base"] = dict(zip("abc", p.base, strict=True))
    if not p.packed:
        said["packed"] = False
    if p.batches > 1:
        said["batches"] = p.batches
    return {**said, "calls": calls}


def _problem(calls: int, **fields: Any) -> tuple[Problem, int]:
    return Problem(**fields), calls


_FILE = record(
    lambda schema, problems: problems,
    schema=one_of(SCHEMA),
    problems=listing(
        record(
            _problem,
            {
                "epilogue": PROBLEM_FIELDS["epilogue"],
                "base": ALIGN,
                "packed": boolean,
                "batches": integer(2, 1 << 30),
            },
            m=DIM,
            n=DIM,
            k=DIM,
            layout=PROBLEM_FIELDS["layout"],
            dtype=DTYPE,
            calls=integer(1, 1 << 62),
        ),
        0,
        MAX_PROBLEMS,
    ),
)
