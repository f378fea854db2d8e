"""An installed package has what a checkout has: nothing is forgotten in pyproject.toml, and what is
wrong with a wheel is found before it is published.
"""

from __future__ import annotations

import re
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import check_wheels
import pytest

from hgemm_packs.cli.build import targets
from hgemm_packs.tuning.shapes import tomllib

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_folder_of_python_code_is_packaged() -> None:
    # The generator lives beside the runtime and is mapped into it, so setuptools cannot find its
    # folders by itself: one that is not listed works in a checkout and is missing from the wheel.
    config = PROJECT["tool"]["setuptools"]
    for top, package in (("hgemm_packs", "hgemm_packs"), ("generator", "hgemm_packs.generator")):
        for init in (REPOSITORY / top).rglob("__init__.py"):
            below = init.parent.relative_to(REPOSITORY / top).parts
            name = ".".join((package, *below))
            assert name in config["packages"]
            assert config["package-dir"][name] == init.parent.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("pattern", ["csrc/kernels/*/*.cuh", "manifests/*/*.toml"])
def test_data_is_where_the_package_data_patterns_look(pattern: str) -> None:
    suffix = Path(pattern).suffix
    root = REPOSITORY / Path(pattern).parents[1]
    assert set(REPOSITORY.glob(pattern)) == set(root.rglob(f"*{suffix}")) != set()


def test_both_files_of_a_free_source_are_packaged() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hgemm_packs.generator.kernels"]
    there = (REPOSITORY / "csrc/kernels/free").iterdir()
    for name in ["any.cu", "any.json", *(file.name for file in there if file.suffix != ".md")]:
        assert any(Path(f"free/{name}").match(each) for each in patterns), name


def test_every_file_of_a_source_document_is_packaged() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hgemm_packs.generator.manifests"]
    documents = [file.parent for file in (REPOSITORY / "manifests").glob("sm_*/*/pack.json")]
    assert documents
    for folder in documents:
        for file in folder.iterdir():
            name = file.relative_to(REPOSITORY / "manifests").as_posix()
            assert any(Path(name).match(each) for each in patterns if each.count("/") == 2), name


def test_every_data_file_of_the_runtime_is_packaged() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    built = {".py", ".pyc", ".so"}
    files = [file for file in (REPOSITORY / "hgemm_packs").rglob("*") if file.is_file()]
    data = {file.relative_to(REPOSITORY) for file in files if file.suffix not in built}
    for file in data:
        package = ".".join(file.parent.parts)
        assert any(fnmatch(file.name, each) for each in patterns[package]), file
    assert {"hgemm_packs/py.typed", "hgemm_packs/distribution/registry.json"} <= {
        file.as_posix() for file in data
    }


def test_every_pack_is_an_extra_without_a_version() -> None:
    # Equal versions of core and data were what broke others: launcher_abi decides.
    extras = PROJECT["project"]["optional-dependencies"]
    arches = {file.parents[1].name for file in (REPOSITORY / "manifests").glob("sm_*/*/pack.json")}
    packs = {name: wants for name, wants in extras.items() if re.fullmatch(r"sm\d+[af]?", name)}
    assert packs == {
        arch.replace("_", ""): [f"hgemm-packs-{arch.replace('_', '')}"] for arch in arches
    }
    assert PROJECT["project"]["dependencies"] == []


def test_what_builds_on_an_extra_of_ours_names_one() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"hub", "verify", "generator", "llm", "rl", "ray"} <= extras.keys()
    own = [re.findall(r"^hgemm-packs\[(\w+)\]$", want) for each in extras.values() for want in each]
    assert {name for names in own for name in names} == {"generator"}


def test_actions_that_can_publish_are_pinned_by_commit() -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert len(used) >= 8
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (b"\0libc.so.6\0/proc/self/maps\0", "none in 1 extensions"),
        (b"\0/home/somebody/csrc/launcher/matmul.c\0", "names /home/somebody/csrc/launcher"),
    ],
)
def test_a_folder_of_the_builder_is_found(library: bytes, said: str, tmp_path: Path) -> None:
    wheel = tmp_path / "hgemm_packs-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hgemm_packs/_C.abi3.so", library)
    try:
        found = check_wheels.paths(wheel)
    except check_wheels.Failed as error:
        found = str(error)
    assert said in found


def test_the_core_has_two_megabytes_and_a_pack_a_hundred(tmp_path: Path) -> None:
    for name, most in (("hgemm_packs-1.whl", 2 << 20), ("hgemm_packs_sm90a-1.whl", 100 << 20)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(most - 1)
        assert check_wheels.size(tmp_path / name) == f"{most - 1} bytes"
        with (tmp_path / name).open("wb") as file:
            file.truncate(most)
        with pytest.raises(check_wheels.Failed, match=f"{most} bytes, not below {most}"):
            check_wheels.size(tmp_path / name)


def test_what_a_tool_finds_stops_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "hgemm_packs_sm90a-1-py3-none-any.whl"
    wheel.write_bytes(b"no zip")
    monkeypatch.setattr(check_wheels, "contents", lambda wheel: "OK")
    monkeypatch.setattr(
        check_wheels, "twine", lambda wheel: check_wheels._tool(wheel, "zipfile", "-t")
    )
    assert check_wheels.main([str(wheel)]) == 1
    assert "FAILED zipfile: " in capsys.readouterr().err
    assert check_wheels.main([]) == 2


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["h200"], {"": ["h200"]}),
        (["h200", "h200_grouped"], {"": ["h200"], "_grouped": ["h200_grouped"]}),
        (["h100", "h200"], {"": ["h100", "h200"]}),
        (
            ["h100", "h100_grouped", "h200", "h200_batched", "h200_grouped"],
            {
                "": ["h100", "h200"],
                "_grouped": ["h100_grouped", "h200_grouped"],
                "_batched": ["h200_batched"],
            },
        ),
    ],
)
def test_a_document_that_adds_to_another_leaves_its_pack_where_it_was(
    names: list[str], expected: dict[str, list[str]]
) -> None:
    """The tables of all cards are of one pack."""
    folder = Path("manifests/sm_90a")
    found = targets([folder / name for name in names], Path("out/sm_90a"))
    assert found == {
        Path(f"out/sm_90a{added}"): [folder / name for name in each]
        for added, each in expected.items()
    }
