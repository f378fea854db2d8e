"""A pack as a kernel of Hugging Face's `kernels`, loaded by that very library from a local path."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import select
from hgemm_packs.distribution import kernels_layout
from hgemm_packs.errors import PackError
from hgemm_packs.nn import StatelessLinear
from hgemm_packs.pack.folder import BLOB_NAME, MANIFEST_NAME
from hgemm_packs.pack.receipts import read_receipt
from tests import packs, reference

kernels = pytest.importorskip("kernels")
pytestmark = pytest.mark.usefixtures("clean_process")
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Path]:
    packs.write_good(tmp_path / "pack").close()
    kernels_layout.export(tmp_path / "pack", tmp_path / "repo")
    yield tmp_path / "repo"
    kernels.importer._loaded_kernels.clear()


def variant(repo: Path) -> Path:
    return repo / "build" / kernels_layout.VARIANT


def manifest_sha256(repo: Path) -> str:
    return hashlib.sha256((variant(repo) / MANIFEST_NAME).read_bytes()).hexdigest()


def linear(dtype: torch.dtype, *, bias: bool) -> torch.nn.Linear:
    torch.manual_seed(1)
    return torch.nn.Linear(96, 80, bias=bias, dtype=dtype)


def kernelized(layer: torch.nn.Linear, repo: Path) -> Any:
    """The layer with its forward replaced as users do it, on the CPU."""

    class Replaceable(torch.nn.Linear):
        pass

    kernels.replace_kernel_forward_from_hub(Replaceable, "Linear")
    layer.__class__ = Replaceable
    offer = kernels.LocalLayerRepository(repo, layer_name="Linear")
    with kernels.use_kernel_mapping({"Linear": {"cpu": offer}}):
        kernels.kernelize(layer, mode=kernels.Mode.INFERENCE, device="cpu", use_fallback=False)
    assert layer.forward.__func__ is StatelessLinear.forward
    return layer


def test_the_layout_is_what_the_library_reads(repo: Path) -> None:
    from kernels._rust import Digest, DigestAlgorithm

    metadata = kernels.Metadata.read_from_file(variant(repo) / "metadata.json")
    assert (str(metadata.name), metadata.version, metadata.license) == (
        "test-pack",
        1,
        "Apache-2.0",
    )
    assert metadata.id == f"_test_pack_{manifest_sha256(repo)[:16]}"
    assert metadata.backend.archs == ["9.0a"]
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant(repo)))
    for name in (MANIFEST_NAME, BLOB_NAME):
        packed = (repo.parent / "pack" / name).read_bytes()
        assert (variant(repo) / name).read_bytes() == packed


def test_the_same_pack_gives_the_same_bytes(repo: Path, tmp_path: Path) -> None:
    again = kernels_layout.export(tmp_path / "pack", tmp_path / "again")
    mine = {path.name: path.read_bytes() for path in variant(repo).iterdir()}
    assert mine == {path.name: path.read_bytes() for path in again.iterdir()}
    with pytest.raises(FileExistsError):
        kernels_layout.export(tmp_path / "pack", tmp_path / "again")


@DTYPES
def test_a_local_kernel_is_a_pack_in_use_and_a_matmul(repo: Path, dtype: torch.dtype) -> None:
    module = kernels.get_local_kernel(repo)
    assert module.pack.manifest_sha256 == manifest_sha256(repo)
    assert select.find_packs().packs[0].manifest_sha256 == manifest_sha256(repo)
    a, b = reference.normal(33, 40, 65, "nt", dtype)
    reference.assert_product(module.matmul(a, b), a, b)


def test_get_kernel_finds_it_by_the_local_override(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"someone/packs={repo}")
    kernels.load._parse_local_kernel_overrides.cache_clear()
    module = kernels.get_kernel("someone/packs", version=1)
    assert module.pack.manifest_sha256 == manifest_sha256(repo)
    kernels.load._parse_local_kernel_overrides.cache_clear()


@DTYPES
@pytest.mark.parametrize("shape", [(96,), (7, 96), (2, 3, 96), (0, 96)], ids=str)
def test_the_layer_is_the_product_in_float64(
    repo: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    layer = kernelized(linear(dtype, bias=False), repo)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    with torch.inference_mode():
        y = layer(x)
    assert y.shape == (*shape[:-1], 80)
    reference.assert_product(y.reshape(-1, 80), x.reshape(-1, 96), layer.weight.detach().t())


@DTYPES
def test_a_bias_is_added_and_gradients_flow(repo: Path, dtype: torch.dtype) -> None:
    plain, layer = linear(dtype, bias=True), kernelized(linear(dtype, bias=True), repo)
    x = torch.randn((5, 96), generator=torch.Generator().manual_seed(3)).to(dtype)
    exact = x.double() @ layer.weight.double().t() + layer.bias.double()
    torch.testing.assert_close(layer(x).double(), exact, rtol=2**-7, atol=1e-3)
    bare, bare_plain = kernelized(linear(dtype, bias=False), repo), linear(dtype, bias=False)
    for mine, theirs in ((layer, plain), (bare, bare_plain)):
        for each in (mine, theirs):
            each(x).float().square().sum().backward()
        assert torch.equal(mine.weight.grad, theirs.weight.grad)
        assert mine.weight.grad.abs().max() > 0


def test_links_as_the_hub_caches_them_are_copied_once(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's cache has links to blobs in place of files, and a pack of links is refused."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for path in list(variant(repo).iterdir()):
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.move(path, blob)
        path.symlink_to(blob)
    root, sha = tmp_path / "no-cache", manifest_sha256(repo)
    pack = kernels.get_local_kernel(repo).pack
    assert pack.path == root / "v1" / "packs" / sha
    receipt = read_receipt(root, sha)
    assert receipt is not None
    assert receipt.authority == "sha256"
    kernels.importer._loaded_kernels.clear()
    monkeypatch.setattr(shutil, "copyfile", None)
    assert kernels.get_local_kernel(repo).pack.path == pack.path


def test_a_damaged_receipt_of_a_copied_pack_is_mended(repo: Path, tmp_path: Path) -> None:
    for path in list(variant(repo).iterdir()):
        blob = tmp_path / f"blob-{path.name}"
        shutil.move(path, blob)
        path.symlink_to(blob)
    root, sha = tmp_path / "no-cache", manifest_sha256(repo)
    kernels.get_local_kernel(repo)
    receipt = root / "v1" / "receipts" / f"{sha}.json"
    whole = receipt.read_bytes()
    receipt.write_bytes(whole[:-9])
    kernels.importer._loaded_kernels.clear()
    assert kernels.get_local_kernel(repo).pack.manifest_sha256 == sha
    assert read_receipt(root, sha) is not None


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("name", "code"), [(MANIFEST_NAME, "manifest_hash"), (BLOB_NAME, "kernel_hash")]
)
def test_a_changed_pack_is_refused_and_not_used(
    repo: Path, tmp_path: Path, name: str, code: str, linked: bool
) -> None:
    path = variant(repo) / name
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    if linked:
        shutil.move(path, tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError) as caught:
        pack = kernels.get_local_kernel(repo).pack
        pack.image(pack.manifest.kernels[0])  # of a blob that is not copied, when it is used
    nobody_allowed_it = linked and name == MANIFEST_NAME
    assert caught.value.code == ("no_authority" if nobody_allowed_it else code)
    assert (select.find_packs().packs == ()) == (linked or name == MANIFEST_NAME)


def test_without_hgemm_packs_the_error_says_what_to_install(repo: Path) -> None:
    program = (
        "import sys, kernels\n"
        "sys.modules['hgemm_packs'] = None\n"
        "try:\n"
        f"    kernels.get_local_kernel(__import__('pathlib').Path({str(repo)!r}))\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install --upgrade hgemm-packs" in done.stdout, done.stderr
