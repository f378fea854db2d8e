"""Answers on disk: a cache that a killed run goes on from, and cassettes that replay a run.

A cache is a folder with a file an answer. A cassette is JSON lines, one answer a line in the order
of the conversation: what tests and demonstrations replay without any server. Neither ever holds a
key: `Chat` hides it in all that it passes on.
"""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict, deque
from dataclasses import asdict
from pathlib import Path

from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.llm.words import (
    Answer,
    NotRecorded,
    Request,
    as_document,
    canonical,
    read_answer,
)

SCHEMA = "hgemm_packs.cassette.v1"


class Cache:
    """A folder of answers, each a file named after its request. Entries are written whole or not at
    all; one that is damaged is refused, counted in `refused`, and asked for again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.refused = 0

    def _path(self, request: Request) -> Path:
        return self._folder / request.key[:2] / f"{request.key}.json"

    def get(self, request: Request) -> Answer | None:
        """The answer on file, if there is one."""
        try:
            document = json.loads(self._path(request).read_bytes())
            if document.get("key") != request.key:
                raise ValueError("another request's answer")
            return read_answer(document["answer"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, AttributeError, RecursionError):
            self.refused += 1
            return None

    def put(self, request: Request, answer: Answer) -> None:
        document = {"key": request.key, "answer": as_document(answer)}
        write_atomically(self._path(request), canonical(document).encode())


class Recorder:
    """Appends every answer to a cassette as it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():  # the torn line of a killed run would join the next
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def put(self, request: Request, answer: Answer) -> None:
        line = {
            "schema": SCHEMA,
            "key": request.key,
            "request": asdict(request),
            "answer": as_document(answer),
        }
        with self._lock, self._path.open("ab") as file:
            file.write(canonical(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


class Player:
    """A cassette as it answers: the same request gets its answers in their order."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, or ValueError naming the line for a file that is no cassette."""
        self._path = path
        self._lock = threading.Lock()
        self._answers: dict[str, deque[Answer]] = defaultdict(deque)
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                document = json.loads(line)
                if document["schema"] != SCHEMA:
                    raise ValueError(f"its schema is not {SCHEMA}")
                self._answers[str(document["key"])].append(read_answer(document["answer"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ValueError(f"{path.name}, line {number}, is no cassette: {error}") from None

    def get(self, request: Request) -> Answer:
        """The next answer to a request. Raises NotRecorded."""
        with self._lock:
            answers = self._answers.get(request.key)
            if not answers:
                raise NotRecorded(f"{self._path.name} has no answer to request {request.key[:12]}")
            return answers.popleft()
