"""manifests/schema.json and the hand-written checks accept and refuse the same manifests."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.pack import manifest_fields, prediction_fields
from hgemm_packs.pack.strict_json import record
from tests import packs, predictions
from tests.abuse.case import Case
from tests.abuse.cases import CASES

SCHEMA = json.loads((Path(__file__).parents[2] / "manifests" / "schema.json").read_text())

# A schema cannot tell 1.0 from 1; our integers are never written with a point.
_STRICT = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda checker, value: type(value) is int
)
VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=_STRICT)(
    SCHEMA
)
CHECK = record(
    dict,
    manifest_fields.OPTIONAL_FIELDS | {"predictors": prediction_fields.PREDICTORS},
    **manifest_fields.FIELDS,
)


def by_hand(document: Any) -> str:
    """Code of refusal by types and bounds alone, or "" for an accepted document."""
    try:
        CHECK(document)
    except PackError as error:
        return error.code
    return ""


def agree(document: Any) -> bool:
    """Whether both accept or both refuse; the schema's verdict is returned."""
    accepted = VALIDATOR.is_valid(document)
    assert accepted == (by_hand(document) == ""), f"schema {accepted}, code {by_hand(document)!r}"
    return bool(accepted)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("schema") / "good"
    predictions.write(folder).close()
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    # One of each: every field still occurs, and spoiling each place takes seconds, not minutes.
    kernel = document["kernels"][1]
    kernel["tma"], kernel["param_sizes"] = kernel["tma"][:1], kernel["param_sizes"][:1]
    document["kernels"], document["table"] = [kernel], document["table"][:1]
    row = document["table"][0]
    fields = ("m", "n", "k", "layout", "dtype", "kernel", "profile", "hot", "cold", "pairs", "date")
    document["grouped"] = [{name: copy.deepcopy(row[name]) for name in fields} | {"groups": 32}]
    return document


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_good_manifest_passes_both(good: dict[str, Any]) -> None:
    assert agree(good)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.schema], ids=lambda case: case.name
)
def test_abuse_that_a_schema_can_express_is_refused_by_both(case: Case, tmp_path: Path) -> None:
    packs.write_good(tmp_path / "bad").close()
    case.change(tmp_path / "bad")
    assert not agree(json.loads((tmp_path / "bad" / "manifest.json").read_text()))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, containers included."""
    yield path
    inside: Any = ()
    if isinstance(value, (dict, list)):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield from places(inner, (*path, key))


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    spoiled = copy.deepcopy(document)
    place: Any = spoiled
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return spoiled


WRONG = (
    *(None, True, False, 0, 1, -1, 3, 33, 257, 2**31, 2**40 + 1, 2**63, 0.5, 1.0, -0.5, 1e12),
    *(
        "",
        "a",
        "../a",
        "a b",
        "\x7f",
        "é",
        "f16",
        "nn",
        "f" * 64,
        "F" * 64,
        "2026-11-20",
        "x" * 300,
    ),
    *([], [1], [1, 1], [1, 1, 1], ["a"], [None], {}, {"a": 1}, {"m": {}}, {"../a": 1}),
)


def test_both_agree_on_every_value_in_every_place(good: dict[str, Any]) -> None:
    verdicts = [agree(put(good, path, value)) for path in places(good) if path for value in WRONG]
    assert len(verdicts) > 4000
    assert 0.02 < sum(verdicts) / len(verdicts) < 0.5


def test_both_agree_on_a_missing_and_an_added_field_of_every_object(good: dict[str, Any]) -> None:
    for path in places(good):
        if not path or "genome" in path:
            continue
        parent: Any = good
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, dict):
            without = {name: value for name, value in parent.items() if name != path[-1]}
            added = parent | {"another": 1}
            optional = path in (("grouped",), ("predictors",))
            for changed in (added, *([] if optional else [without])):
                spoiled = put(good, path[:-1], changed) if path[:-1] else changed
                assert not agree(spoiled), path


def limits(schema: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every numeric field of the good manifest's shape with its part of the schema."""
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    for name, inner in schema.get("properties", {}).items():
        yield from limits(inner, (*path, name))
    if "items" in schema:
        yield from limits(schema["items"], (*path, 0))
    if "minimum" in schema:
        yield path, schema


def test_both_have_the_same_bounds(good: dict[str, Any]) -> None:
    seen = 0
    for path, part in limits(SCHEMA):
        low, high = part["minimum"], part["maximum"]
        step = part.get("multipleOf", 1) if part["type"] == "integer" else 0
        below = low - step if step else math.nextafter(low, -math.inf)
        above = high + step if step else math.nextafter(high, math.inf)
        assert agree(put(good, path, low)) and agree(put(good, path, high)), path
        assert not agree(put(good, path, below)) and not agree(put(good, path, above)), path
        seen += 1
    assert seen > 30


COUNTS = {"roots": 512, "feature": 65535, "number": 65535, "right": 65535}


def test_both_have_the_same_counts(good: dict[str, Any]) -> None:
    for path, low, high in (
        (("device_profiles",), 1, 64),
        (("toolchain", "flags"), 0, 64),
        (("kernels",), 0, 4096),
        (("grouped",), 1, 192),
        (("kernels", 0, "tma"), 0, 3),
        (("kernels", 0, "param_sizes"), 1, 16),
        (("kernels", 0, "cluster"), 3, 3),
        (("predictors",), 0, 16),
        (("predictors", 0, "families"), 1, 32),
        (("predictors", 0, "candidates"), 1, 1024),
        (("predictors", 0, "candidates", 0, "numbers"), 19, 17),
        *((("predictors", 0, "ours", name), 1, most) for name, most in COUNTS.items()),
    ):
        item = good
        for key in path:
            item = item[key]
        assert agree(put(good, path, [item[0]] * low)), path
        assert not agree(put(good, path, [item[0]] * (high + 1))), path
        if low:
            assert not agree(put(good, path, [item[0]] * (low - 1))), path
    assert agree(put(good, ("kernels", 0, "genome"), {f"g{i}": i for i in range(64)}))
    assert not agree(put(good, ("kernels", 0, "genome"), {f"g{i}": i for i in range(65)}))
