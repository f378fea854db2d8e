"""The four documents of FlashInfer-Trace, read without forgiving anything.

A definition says what is computed, a workload names the sizes of one case, a solution is an
implementation, a trace what it did on a workload. Called by `problems`, which takes definitions and
workloads in, and by `trace_set`, which reads what it wrote itself. A document that flashinfer-bench
would refuse is refused; so is an unknown field, since it may change what is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hgemm_packs.errors import PackError
from hgemm_packs.pack.strict_json import (
    Check,
    boolean,
    integer,
    listing,
    mapping,
    nullable,
    number,
    one_of,
    read_json,
    record,
    text,
)
from hgemm_packs.tuning.shapes import LARGEST_SIDE

MAX_DOCUMENT_BYTES = 1 << 20
MAX_SOLUTION_BYTES = 1 << 26
MAX_LINE_BYTES = 1 << 20
MAX_LINES = 100_000
#: A reference of a product has a few lines; a parser of Python is asked about no more.
MAX_REFERENCE = 8192

DTYPES = (
    *("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1"),
    *("int64", "int32", "int16", "int8", "bool"),
)
LANGUAGES = ("python", "triton", "cpp", "cuda", "tilelang")
PASSED, WRONG = "PASSED", "INCORRECT_NUMERICAL"
STATUSES = (
    *(PASSED, "INCORRECT_SHAPE", WRONG, "INCORRECT_DTYPE"),
    *("RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"),
)


class Axis(NamedTuple):
    """A side of tensors: its value, or None where a workload says it."""

    value: int | None


class Tensor(NamedTuple):
    """Names of its axes, none for a scalar, and its type in torch's words."""

    shape: tuple[str, ...] | None
    dtype: str


class Definition(NamedTuple):
    """What is computed: `reference` is Python code whose `run` takes the inputs in their order."""

    name: str
    op_type: str
    axes: Mapping[str, Axis]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    reference: str
    constraints: tuple[str, ...] = ()


class Workload(NamedTuple):
    """Sizes of the variable axes, and what each input holds."""

    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]
    uuid: str


class Solution(NamedTuple):
    """An implementation: source texts by path, and which function of them is called."""

    name: str
    definition: str
    author: str
    spec: Mapping[str, Any]
    sources: Mapping[str, str]


class Evaluation(NamedTuple):
    """What a solution did on a workload. A number that nobody measured is NaN."""

    status: str
    environment: Mapping[str, Any]
    timestamp: str
    correctness: Mapping[str, Any] | None
    performance: Mapping[str, float] | None


class Trace(NamedTuple):
    """A line: a workload alone, or with a solution and its evaluation."""

    definition: str
    workload: Workload
    solution: str | None
    evaluation: Evaluation | None


NAME = text(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}", "bad_name")
#: Of a definition, in front of which a solution puts its author.
DEFINED = text(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,149}", "bad_name")
WORDS = text(r"[^\x00]{1,4096}", "bad_text")
ANY_WORDS = text(r"(?s:[^\x00]{0,65536})", "bad_text")
CODE = text(r"(?s:[^\x00]{1,4194304})", "bad_text")
_SIDE = integer(0, LARGEST_SIDE)


def _axis(value: Any) -> Axis:
    kind = value.get("type") if type(value) is dict else None
    if kind == "var":
        record(dict, {"description": nullable(ANY_WORDS)}, type=one_of("var"))(value)
        return Axis(None)
    fields = {"type": one_of("const", "var"), "value": _SIDE}
    return Axis(record(dict, {"description": nullable(ANY_WORDS)}, **fields)(value)["value"])


_TENSOR = record(
    lambda shape, dtype, description=None: Tensor(shape, dtype),
    {"description": nullable(ANY_WORDS)},
    shape=nullable(listing(NAME, 0, 16)),
    dtype=one_of(*DTYPES),
)
_TENSORS = mapping(NAME, _TENSOR, 64)


def _define(
    tags: object = None, description: object = None, constraints: Any = (), **fields: Any
) -> Definition:
    found = Definition(**fields, constraints=constraints or ())
    both = sorted(found.inputs.keys() & found.outputs.keys())
    if both:
        raise PackError("duplicate_name", f"{both[0]!a} is an input and an output")
    for name, tensor in {**found.inputs, **found.outputs}.items():
        for axis in tensor.shape or ():
            if axis not in found.axes:
                raise PackError("unknown_axis", f"{name!a} has an axis {axis!a} of no size")
    return found


DEFINITION = record(
    _define,
    {
        "tags": listing(WORDS, 0, 256),
        "description": nullable(ANY_WORDS),
        "constraints": nullable(listing(WORDS, 0, 64)),
    },
    name=DEFINED,
    op_type=NAME,
    axes=mapping(NAME, _axis, 64),
    inputs=_TENSORS,
    outputs=_TENSORS,
    reference=text(rf"(?s:[^\x00]{{1,{MAX_REFERENCE}}})", "bad_text"),
)


def _scalar(value: Any) -> Any:
    return value if type(value) in (bool, int) else number(-math.inf, math.inf)(value)


_INPUTS: Mapping[str, Check] = {
    "random": record(dict, type=one_of("random")),
    "scalar": record(dict, type=one_of("scalar"), value=_scalar),
    "safetensors": record(dict, type=one_of("safetensors"), path=WORDS, tensor_key=WORDS),
}


def _input(value: Any) -> Any:
    kind = value.get("type") if type(value) is dict else None
    return _INPUTS[kind if type(kind) is str and kind in _INPUTS else "random"](value)


WORKLOAD = record(
    Workload, axes=mapping(NAME, _SIDE, 64), inputs=mapping(NAME, _input, 64), uuid=WORDS
)


def _error(value: Any) -> float:
    """A number of at least 0, or NaN and infinity as pydantic writes them."""
    return float(value) if value in ("NaN", "Infinity") else float(number(0, math.inf)(value))


_CORRECTNESS = record(
    dict,
    {"extra": nullable(mapping(WORDS, lambda value: value, 64))},
    max_relative_error=_error,
    max_absolute_error=_error,
)
_PERFORMANCE = record(
    dict,
    latency_ms=number(0.0, 1e9),
    reference_latency_ms=number(0.0, 1e9),
    speedup_factor=number(0.0, 1e9),
)


def _evaluate(
    status: str, correctness: Any = None, performance: Any = None, log: str = "", **fields: Any
) -> Evaluation:
    wants = (status in (PASSED, WRONG), status == PASSED)
    if wants != (correctness is not None, performance is not None):
        raise PackError("bad_value", f"errors or times do not fit {status}")
    return Evaluation(status, **fields, correctness=correctness, performance=performance)


EVALUATION = record(
    _evaluate,
    {
        "log": ANY_WORDS,
        "correctness": nullable(_CORRECTNESS),
        "performance": nullable(_PERFORMANCE),
    },
    status=one_of(*STATUSES),
    environment=record(dict, hardware=WORDS, libs=mapping(WORDS, WORDS, 64)),
    timestamp=WORDS,
)


def _trace(
    definition: str, workload: Workload, solution: str | None = None, evaluation: Any = None
) -> Trace:
    if (solution is None) != (evaluation is None):
        raise PackError("missing_field", "a solution without an evaluation, or the reverse")
    return Trace(definition, workload, solution, evaluation)


TRACE = record(
    _trace,
    {"solution": nullable(WORDS), "evaluation": nullable(EVALUATION)},
    definition=WORDS,
    workload=WORKLOAD,
)


def _path(value: Any) -> str:
    """A path that stays where it is put, on any system."""
    found: str = text(r"[\w.+-]+(/[\w.+-]+)*", "bad_path")(value)
    if any(part.strip(".") == "" for part in found.split("/")):
        raise PackError("bad_path", f"{found!a} leads out of its folder")
    return found


def _solve(sources: Any, description: object = None, **fields: Any) -> Solution:
    texts = dict(sources)
    if len(texts) < len(sources):
        raise PackError("duplicate_name", "two sources have one path", "sources")
    entry, mark, function = str(fields["spec"]["entry_point"]).partition("::")
    if not mark or entry not in texts or not re.fullmatch(r"\w+", function):
        raise PackError("bad_value", "no function of a source is named", "spec.entry_point")
    return Solution(**fields, sources=texts)


SOLUTION = record(
    _solve,
    {"description": nullable(ANY_WORDS)},
    name=NAME,
    definition=NAME,
    author=WORDS,
    spec=record(
        dict,
        {
            "dependencies": listing(WORDS, 0, 64),
            "destination_passing_style": boolean,
            "binding": nullable(one_of("tvm-ffi", "torch")),
        },
        language=one_of(*LANGUAGES),
        target_hardware=listing(WORDS, 1, 64),
        entry_point=WORDS,
    ),
    sources=listing(
        record(lambda path, content: (path, content), path=_path, content=CODE), 1, 1024
    ),
)


def _read(path: Path, most: int, check: Check) -> Any:
    with path.open("rb") as file:
        data = file.read(most + 1)
    try:
        if len(data) > most:
            raise PackError("too_large", f"more than {most} bytes")
        return check(read_json(data))
    except PackError as error:
        raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None


def read_definition(path: Path) -> Definition:
    """Read `definition.json`. Raises PackError, which names file and field, and OSError."""
    found: Definition = _read(path, MAX_DOCUMENT_BYTES, DEFINITION)
    return found


def read_document(path: Path) -> dict[str, Any]:
    """A definition as JSON has it, once it is known to be one. Raises what `read_definition`
    does."""
    found: dict[str, Any] = _read(
        path, MAX_DOCUMENT_BYTES, lambda value: (DEFINITION(value), value)[1]
    )
    return found


def read_solution(path: Path) -> Solution:
    """Read `solution.json`. Raises PackError, which names file and field, and OSError."""
    found: Solution = _read(path, MAX_SOLUTION_BYTES, SOLUTION)
    return found


def read_traces(path: Path) -> Iterator[Trace]:
    """The lines of `workload.jsonl` or of traces; empty lines are none. Raises PackError, which
    names file, line and field, and OSError."""
    checked: Callable[[Any], Trace] = TRACE
    with path.open("rb") as file:
        for count in range(1, MAX_LINES + 2):
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            try:
                if count > MAX_LINES or len(line) > MAX_LINE_BYTES:
                    raise PackError("too_large", f"over {MAX_LINES} lines or a line too long")
                if line.strip():
                    yield checked(read_json(line))
            except PackError as error:
                where = f"{path}:{count} {error.where}".rstrip()
                raise PackError(error.code, error.detail, where) from None
