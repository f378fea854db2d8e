"""Wheels as a user installs them: an environment with torch alone, the core, wheels of data."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import core_wheel
import data_wheel
import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.pack.manifest import PackInfo
from tests import fake_driver, packs
from tests.abuse.builder import put
from tests.distribution.wheels import installed
from tests.distribution.wheels.installed import CUDA, NONE, ROOT, Scenario

import wheel_zip  # isort: skip


def pack(folder: Path, version: str = "1.0.0", **changes: Any) -> Path:
    """A good pack of some version, with kernels for the stand-in driver."""
    info = PackInfo("hgemm-packs-sm90a", version, "Apache-2.0", "2026-11-20T00:00:00Z")
    return packs.write_good(folder, fake_driver.image, pack=info, **changes).path


def test_the_wheel_has_the_pack_and_one_function(tmp_path: Path) -> None:
    source = pack(tmp_path / "pack")
    (source / "manifest.json.sigstore").write_text("a bundle")
    (source / "setup.py").write_text("no pack has this")
    wheel = data_wheel.build(source, tmp_path / "dist")
    assert wheel.name == "hgemm_packs_sm90a-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    module, info = "hgemm_packs_sm90a/", "hgemm_packs_sm90a-1.0.0.dist-info/"
    assert {name.removeprefix(module) for name in files if name.startswith(module)} == {
        *("__init__.py", "LICENSE", "REPORT.md"),
        *("manifest.json", "manifest.json.sigstore", "kernels.bin"),
    }
    for name in ("manifest.json", "manifest.json.sigstore", "kernels.bin"):
        assert files[module + name] == (source / name).read_bytes()
    assert files[info + "entry_points.txt"].decode().split() == [
        "[hgemm_packs.providers]",
        *("sm90a", "=", "hgemm_packs_sm90a:folder"),
    ]
    metadata = message_from_bytes(files[info + "METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("hgemm-packs-sm90a", "1.0.0")
    assert metadata.get_all("Requires-Dist") == ["hgemm-packs"]
    digest = hashlib.sha256((source / "manifest.json").read_bytes()).hexdigest()
    assert f"the\nrest: `{digest}`." in metadata.get_payload()
    gain, best = 1.12 ** (2 / 3), (1.12**2 * 11.2 / 11.5) ** (1 / 3)  # two wins of three problems
    line = f"| all | 3 | 2 | {gain:.3f} | {gain:.3f} | {best:.3f} | 1.120 |"
    assert line in files[module + "REPORT.md"].decode()


def test_the_same_pack_is_the_same_wheel(tmp_path: Path) -> None:
    first = data_wheel.build(pack(tmp_path / "one"), tmp_path / "dist")
    other = pack(tmp_path / "elsewhere" / "two")
    for file in other.iterdir():
        file.chmod(0o600)
    second = data_wheel.build(other, tmp_path / "elsewhere" / "dist")
    assert first.read_bytes() == second.read_bytes()


def test_another_architecture_is_another_package(tmp_path: Path) -> None:
    wheel = data_wheel.build(pack(tmp_path / "pack", arch="sm_80"), tmp_path)
    assert wheel.name == "hgemm_packs_sm80-1.0.0-py3-none-any.whl"


@pytest.mark.parametrize("version", ["1.0-final", "v1", "1.0+local", "01.0", "1.0RC1", "one"])
def test_a_version_that_python_does_not_know_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"wheel_name: sm_90a .* cannot be a wheel's name"):
        data_wheel.build(pack(tmp_path / "pack", version), tmp_path / "dist")


@pytest.mark.parametrize("version", ["2.10.0", "1.0rc1", "1.0.post2", "1.0.dev3"])
def test_a_version_as_python_writes_it_names_the_wheel(version: str, tmp_path: Path) -> None:
    wheel = data_wheel.build(pack(tmp_path / "pack", version), tmp_path / "dist")
    assert wheel.name == f"hgemm_packs_sm90a-{version}-py3-none-any.whl"


def test_a_pack_that_does_not_open_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pack(tmp_path / "pack")
    (source / "kernels.bin").write_bytes(b"short")
    monkeypatch.setattr(sys, "argv", ["data_wheel", str(source), "--out", str(tmp_path / "dist")])
    assert data_wheel.main() == 2
    assert capsys.readouterr().err.startswith(
        "data_wheel: blob_size: 5 bytes; the manifest declares"
    )
    assert not (tmp_path / "dist").exists()


def test_rewriting_takes_time_order_and_modes_out_of_a_wheel(tmp_path: Path) -> None:
    files = {"a/_C.abi3.so": b"elf", "a/__init__.py": b"", "a-1.dist-info/METADATA": b"Name: a\n"}
    wheels = [tmp_path / "a-1-one.whl", tmp_path / "a-1-two.whl"]
    for wheel, names in zip(wheels, (list(files), list(files)[::-1]), strict=True):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in names:
                info = zipfile.ZipInfo(name, (2026, 11, 20 + len(wheel.name) % 3, 1, 2, 4))
                info.external_attr = (0o100600 if names[0] == name else 0o100777) << 16
                archive.writestr(info, files[name])
            archive.writestr("a-1.dist-info/RECORD", "stale")
        wheel_zip.rewrite(wheel)
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        modes = {i.filename: oct(i.external_attr >> 16) for i in archive.infolist()}
        assert modes["a/_C.abi3.so"] == "0o100755" and modes["a/__init__.py"] == "0o100644"
        assert {name: archive.read(name) for name in files} == files
        record = archive.read("a-1.dist-info/RECORD").decode().splitlines()
    # The empty file's hash is known to everybody.
    empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert record[1] == f"a/__init__.py,sha256={empty},0"
    assert record[-1] == "a-1.dist-info/RECORD,,"


def place(wheel: Path, site: Path) -> Path:
    """Install a wheel of data: nothing but files. Its pack's folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site / "hgemm_packs_sm90a"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of torch and the core wheel, compiled here."""
    folder = tmp_path_factory.mktemp("user")
    python = installed.environment(folder / "env")
    installed.install(python, core_wheel.compile_wheel(folder, ROOT))
    return python


def drivers(folder: Path) -> dict[str, str]:
    """Stand-ins: the H200's driver, one of CUDA 12.4, one of an A100."""
    flags = {
        "h200": (),
        "old": ("-DFAKE_DRIVER_VERSION=12040",),
        "a100": ("-DFAKE_MAJOR=8",),
    }
    return {
        name: str(fake_driver.compile_driver(folder / f"{name}.so", *each))
        for name, each in flags.items()
    }


def test_matmul_in_an_environment_with_torch_alone(python: Path, tmp_path: Path) -> None:
    """One environment, a fresh process each: the pack is used where it fits; elsewhere torch runs,
    one warning says why, and values are right. `launcher_abi` alone decides about other wheels."""
    sites = {}
    for version, abi in (("1.0.0", 4), ("0.9.0", 4), ("2.0.0", 4), ("0.5.0", 3), ("3.0.0", 8)):
        source = pack(tmp_path / f"pack-{version}", version)
        folder = place(data_wheel.build(source, tmp_path), tmp_path / version)
        put(abi, "launcher_abi")(folder)
        sites[version] = str(folder.parent)
    driver = drivers(tmp_path)
    hit = {"hits": 2, "launches": 2, "fallbacks": 1, "fallback not_measured": 1}

    def fallback(reason: str) -> dict[str, int]:
        return {"hits": 0, "launches": 0, "fallbacks": 3, f"fallback {reason}": 3}

    nothing = "every matmul goes to torch: "
    made_for = nothing + "hgemm-packs-sm90a 1.0.0: "
    expected = {
        Scenario(driver["h200"], site=sites["1.0.0"]): (hit, ["1.0.0"], None),
        Scenario(driver["h200"], site=sites["0.9.0"]): (hit, ["0.9.0"], None),
        Scenario(driver["h200"], site=sites["2.0.0"]): (hit, ["2.0.0"], None),
        Scenario(driver["h200"]): (
            *(fallback("no_pack"), []),
            nothing + "no pack is installed",
        ),
        Scenario(NONE, CUDA, sites["1.0.0"]): (
            *(fallback("device"), ["1.0.0"]),
            nothing + "libno-such-driver.so.1 cannot be opened",
        ),
        Scenario(NONE, site=sites["1.0.0"]): (
            *(fallback("no_device"), ["1.0.0"]),
            nothing + "libno-such-driver.so.1 cannot be opened",
        ),
        Scenario(driver["old"], site=sites["1.0.0"]): (
            *(fallback("driver"), ["1.0.0"]),
            made_for + "the pack needs a driver for CUDA 13.0, the driver here is for CUDA 12.4",
        ),
        Scenario(driver["a100"], site=sites["1.0.0"]): (
            *(fallback("arch"), ["1.0.0"]),
            made_for + "the pack is made for sm_90a, the device is sm_80",
        ),
    } | {
        Scenario(driver["h200"], site=sites[version]): (
            *(fallback("launcher_abi"), []),
            f"pack ignored: {sites[version]}/hgemm_packs_sm90a: launcher_abi at launcher_abi: "
            f"made for launcher ABI {abi}, this launcher has 7",
        )
        for version, abi in (("0.5.0", 3), ("3.0.0", 8))
    }
    seen = installed.run(python, expected, tmp_path)
    for each, (scenario, (counters, found, warning)) in zip(seen, expected.items(), strict=True):
        assert each["right"], scenario
        assert each["counters"] == counters, scenario
        assert each["packs"] == found, scenario
        assert each["warnings"] == ([warning] if warning else []), scenario
        assert Path(each["place"]).is_relative_to(python.parents[1])


def test_the_environment_has_torch_alone(python: Path) -> None:
    """Else the test above shows nothing."""
    absent = "import importlib.util as u; print(*(name for name in {} if u.find_spec(name)))"
    names = ["torch", "hgemm_packs", "pytest", "rich", "typer", "huggingface_hub", "tests"]
    done = subprocess.run(
        [str(python), "-c", absent.format(names)], cwd="/", capture_output=True, text=True
    )
    assert done.stdout.split() == ["torch", "hgemm_packs"], done.stderr
