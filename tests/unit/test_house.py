"""The house stands: imports point down, none go in circles, no room and no module is too large.

The order of the rooms is declared in tests/house.py. Each rule is also shown a small house that
breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import house
from tests.house import MOST_LINES, MOST_MODULES, REPOSITORY

#: What is held to a size.
TOPS = ("hgemm_packs", "generator", "benchmarks", "packaging", "tests")
STANDING = house.house()


def test_every_module_is_in_a_declared_room() -> None:
    assert len(STANDING.modules) > 200
    assert house.undeclared(STANDING) == []


def test_every_declared_room_is_there() -> None:
    lived_in = {house.room(module) for module in STANDING.modules}
    assert lived_in == set(house.ROOMS)
    named = {part for parts in house.ROOMS.values() for part in parts}
    assert named <= STANDING.modules.keys()


def test_imports_point_down() -> None:
    assert len(STANDING.arrows) > 500
    assert house.upward(STANDING) == []


def test_no_modules_and_no_rooms_import_each_other_in_a_circle() -> None:
    assert house.module_circles(STANDING) == []
    assert house.room_circles(STANDING) == []


def test_no_folder_has_too_many_modules() -> None:
    counts = house.folders(REPOSITORY, TOPS)
    assert {name: n for name, n in counts.items() if n > MOST_MODULES} == {}


def test_no_folder_of_c_has_too_many_files() -> None:
    counts = Counter(path.parent for path in (REPOSITORY / "csrc").rglob("*.c"))
    assert {name: n for name, n in counts.items() if n > MOST_MODULES} == {}
    assert counts[REPOSITORY / "csrc" / "launcher" / "torch"]  # those below it too


def test_no_module_is_too_long() -> None:
    long = {name for name, n in house.lengths(REPOSITORY, TOPS).items() if n > MOST_LINES}
    assert long == set()


#: A house of three rooms, the middle one with a room of its own in it.
ROOMS = {
    "ground": ("own.ground",),
    "middle/inner": ("own.middle.inner",),
    "middle": ("own.middle",),
    "top": ("own.top",),
}


def built(root: Path, texts: Mapping[str, str]) -> house.House:
    """A house whose modules, by their files below own/, have these texts."""
    for name, text in {"ground/words.py": "", "middle/__init__.py": "", **texts}.items():
        path = root / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return house.house(root, {"own": "own"})


DOWN = {
    "middle/step.py": "from own.ground.words import word\nfrom .inner import part\n",
    "middle/inner/part.py": "from ...ground import words\n",
    "top/door.py": "import own.middle.step, os\nfrom own import middle\n",
}


def test_a_house_that_stands(tmp_path: Path) -> None:
    found = built(tmp_path, DOWN)
    assert {(a.importer, a.imported) for a in found.arrows} == {
        ("own.middle.step", "own.ground.words"),
        ("own.middle.step", "own.middle.inner.part"),
        ("own.middle.inner.part", "own.ground.words"),
        ("own.top.door", "own.middle.step"),
        ("own.top.door", "own.middle"),
    }
    assert house.undeclared(found, ROOMS) == house.upward(found, ROOMS) == []
    assert house.module_circles(found) == house.room_circles(found, ROOMS) == []
    assert house.room("own.middle.inner.part", ROOMS) == "middle/inner"


@pytest.mark.parametrize(
    "text",
    [
        "from own.top import door\n",
        "import own.top.door\n",
        "from ..top.door import handle\n",
        "def open():\n    from ..top import door\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from own.top import door\n",
    ],
)
def test_an_arrow_that_runs_up_is_found(text: str, tmp_path: Path) -> None:
    found = built(tmp_path, {"top/door.py": "", "ground/words.py": text})
    (arrow,) = house.upward(found, ROOMS)
    assert (arrow.importer, arrow.imported) == ("own.ground.words", "own.top.door")


def test_a_room_within_a_room_is_one_of_its_own(tmp_path: Path) -> None:
    inner = {"middle/inner/part.py": "from own.middle import step\n", "middle/step.py": ""}
    (arrow,) = house.upward(built(tmp_path, inner), ROOMS)
    assert arrow == ("own.middle.inner.part", "own.middle.step", 1)


def test_circles_of_modules_and_of_rooms_are_found(tmp_path: Path) -> None:
    within = {
        "top/a.py": "from . import b\n",
        "top/b.py": "def later():\n    from .c import one\n",
        "top/c.py": "import own.top.a\n",
    }
    found = built(tmp_path / "within", within)
    assert house.upward(found, ROOMS) == house.room_circles(found, ROOMS) == []
    assert house.module_circles(found) == [["own.top.a", "own.top.b", "own.top.c"]]

    between = {
        "top/a.py": "from own.ground import words\n",
        "top/b.py": "",
        "ground/more.py": "from own.top import b\n",
    }
    found = built(tmp_path / "between", between)
    assert house.module_circles(found) == []
    assert house.room_circles(found, ROOMS) == [["ground", "top"]]


def test_a_room_that_nobody_declared_is_found(tmp_path: Path) -> None:
    found = built(tmp_path, {"attic/box.py": "", "loose.py": ""})
    assert house.undeclared(found, ROOMS) == ["own.attic.box", "own.loose"]


def test_folders_and_modules_are_measured(tmp_path: Path) -> None:
    built(tmp_path, {"top/long.py": "x = 1\n" * 351, "top/short.py": "x = 1\n", "top/x/a.py": ""})
    assert house.folders(tmp_path, ["own"]) == {
        "own/ground": 1,
        "own/middle": 1,
        "own/top": 2,
        "own/top/x": 1,
    }
    lengths = house.lengths(tmp_path, ["own"])
    assert (lengths["own/top/long.py"], lengths["own/top/short.py"]) == (351, 1)
