"""What somebody asks of a served evaluator, read from JSON under limits.

Called by the doors before anything is queued. A request that breaks a limit, or is none, is refused
with a code, an HTTP status and a sentence; a candidate that is only wrong is the evaluator's to
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hgemm_packs.errors import PackError
from hgemm_packs.generator.evaluator.candidate import Candidate, Unreadable
from hgemm_packs.pack.strict_json import boolean, integer, listing, one_of, read_json, record
from hgemm_packs.problem import ALIGNMENTS, DTYPES, EPILOGUES, LAYOUTS, Problem, set_bytes


class Refusal(Exception):
    """A request that is not done. `code` is for programs, `status` HTTP's, the text for people."""

    def __init__(self, status: int, code: str, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s

    def document(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": str(self)}}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, one token and the whole service may take.

    body_bytes: of a request. source_chars: of a candidate. dim: of M, N and K each.
    operand_bytes: of A, B and C together. batch: candidates of one request. job_s: wall time of an
    evaluation, after which its process is ended. per_minute: candidates that a token may hand in.
    waiting: jobs of a token that are not finished. connections: at a time. wait_s: how long a
    request may wait for its answer. kept: finished jobs that are remembered.
    """

    body_bytes: int = 1 << 20
    source_chars: int = 1 << 18
    dim: int = 1 << 16
    operand_bytes: int = 8 << 30
    batch: int = 64
    job_s: float = 900.0
    per_minute: int = 600
    waiting: int = 512
    connections: int = 128
    wait_s: float = 300.0
    kept: int = 100_000


class Asked(NamedTuple):
    """One evaluation that was asked for."""

    candidate: Candidate
    problem: Problem


def read(data: bytes) -> Any:
    """The JSON of a body. Raises Refusal."""
    try:
        return read_json(data)
    except PackError as error:
        raise Refusal(400, "bad_json", error.detail) from None


def asked(document: Any, limits: Limits) -> Asked:
    """{"problem": {...}, "candidate": {...}}. Raises Refusal."""
    if not isinstance(document, dict) or document.keys() != {"problem", "candidate"}:
        raise Refusal(400, "bad_request", 'a job is {"problem": {...}, "candidate": {...}}')
    return Asked(_candidate(document["candidate"], limits), problem(document["problem"], limits))


def batch(document: Any, limits: Limits) -> list[Asked]:
    """{"jobs": [...]}, each as `asked` reads it. Raises Refusal, which names the job."""
    jobs = document.get("jobs") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(jobs, list) or not jobs:
        raise Refusal(400, "bad_request", 'a batch is {"jobs": [...]}, of one job at least')
    if len(jobs) > limits.batch:
        words = f"{len(jobs)} jobs in one batch, at most {limits.batch}"
        raise Refusal(422, "batch_too_large", words)
    found = []
    for at, each in enumerate(jobs):
        try:
            found.append(asked(each, limits))
        except Refusal as error:
            raise Refusal(error.status, error.code, f"jobs[{at}]: {error}") from None
    return found


def problem(document: Any, limits: Limits) -> Problem:
    """{"m", "n", "k"} and perhaps "layout" (nt), "dtype" (f16), "epilogue" (none), "base" and
    "packed". Raises Refusal: 422 where only its size is too much."""
    try:
        found: Problem = _PROBLEM(document)
    except PackError as error:
        raise Refusal(400, "bad_problem", f"problem: {error}") from None
    except ValueError as error:
        raise Refusal(400, "bad_problem", f"problem: {error}") from None
    if max(found.m, found.n, found.k) > limits.dim:
        words = f"{found}: M, N and K are at most {limits.dim} here"
        raise Refusal(422, "problem_too_large", words)
    size = set_bytes(found)
    if size > limits.operand_bytes:
        words = f"{found}: {size} bytes of operands, at most {limits.operand_bytes} here"
        raise Refusal(422, "problem_too_large", words)
    return found


def _candidate(document: Any, limits: Limits) -> Candidate:
    try:
        found = Candidate.of_document(document)
    except Unreadable as error:
        raise Refusal(400, "bad_candidate", str(error)) from None
    if len(found.source) > limits.source_chars:
        words = f"a source of {len(found.source)} characters, at most {limits.source_chars}"
        raise Refusal(422, "source_too_large", words)
    return found


def problem_document(asked_for: Problem) -> dict[str, Any]:
    """What `problem` reads."""
    p = asked_for
    base, packed = list(p.base), p.packed
    sizes: Mapping[str, Any] = {"m": p.m, "n": p.n, "k": p.k, "layout": p.layout, "dtype": p.dtype}
    return {**sizes, "epilogue": p.epilogue, "base": base, "packed": packed}


def _make_problem(
    m: int,
    n: int,
    k: int,
    layout: str = "nt",
    dtype: str = "f16",
    epilogue: str = "none",
    base: tuple[int, int, int] = (16, 16, 16),
    packed: bool = True,
) -> Problem:
    return Problem(m, n, k, layout, dtype, epilogue=epilogue, base=base, packed=packed)


_SIZE = integer(1, 2**31 - 1)
_PROBLEM = record(
    _make_problem,
    {
        "layout": one_of(*LAYOUTS),
        "dtype": one_of(*DTYPES),
        "epilogue": one_of(*EPILOGUES),
        "base": listing(one_of(*ALIGNMENTS), 3, 3),
        "packed": boolean,
    },
    m=_SIZE,
    n=_SIZE,
    k=_SIZE,
)
