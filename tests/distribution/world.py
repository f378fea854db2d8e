"""A Hub with one good signed pack, a cache that holds another one, and somebody who fetches.

What test_hub*.py and benchmarks/distribution/hub_faults.py start from; faults.py says what is then
made wrong.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hgemm_packs.distribution import cache, hub, signatures, trust
from hgemm_packs.pack.manifest import PackInfo
from tests import packs
from tests.distribution.hub.server import Act, Fault, Hub, Repo
from tests.distribution.trust.sigstore_world import write_key

REPO = "alice/pack"
ALICE, BOB = "token-alice", "token-bob"
BLOB, MANIFEST, SIGNATURE = "kernels.bin", "manifest.json", signatures.SIGNATURE_NAME


@dataclass
class World:
    """`files` are the pack's, `other` those of a good pack that nobody vouches for."""

    server: Hub
    repo: Repo
    commit: str
    files: dict[str, bytes]
    other: dict[str, bytes]
    root: Path
    private_key: Path
    allow: list[str]
    spec: str = REPO
    token: str | None = None

    def change(self, **files: bytes | None) -> None:
        """Move the branch to a commit with these files in place of the pack's, None for none. The
        names are those of the constants above."""
        named = {"blob": BLOB, "manifest": MANIFEST, "signature": SIGNATURE}
        changed = self.files | {named[name]: data for name, data in files.items() if data}
        for name in (named[name] for name, data in files.items() if data is None):
            del changed[name]
        self.commit = self.repo.commit(changed)

    def fault(self, path: str, act: Act, times: int = 1_000_000) -> None:
        """Answer requests for paths with this end in another way, the first `times`."""
        self.server.faults.append(Fault(path, act, times))

    def fetch(self) -> Path:
        """Fetch the pack from the server."""
        return hub.fetch(self.spec, allow=self.allow, token=self.token, endpoint=self.server.url)

    @property
    def staged(self) -> Path:
        """Where a download of the present commit waits to be finished."""
        key = hashlib.sha256(f"{self.server.url}\n{REPO}\n{self.commit}".encode()).hexdigest()
        return self.root / "v1" / "downloads" / key


def make_world(server: Hub, place: Path, cubin_bytes: int = 700) -> World:
    """A world with its files in `place`, in the cache that HGEMM_PACKS_CACHE names."""
    private, public = write_key(place, "alice")
    good, resident, other = (place / name for name in ("good", "resident", "other"))
    for folder, version in ((good, "1.0.0"), (resident, "0.9.0"), (other, "6.6.6")):
        info = PackInfo("test-pack", version, "Apache-2.0", "2026-11-20T00:00:00Z")
        packs.write_good(
            folder,
            lambda name, _, version=version: packs.fake_cubin(name + version, cubin_bytes),
            pack=info,
        ).close()
    signatures.sign_key(good, private)
    files = read(good)
    repo = server.repos[REPO] = Repo(private=False)
    server.accounts.update({ALICE: "alice", BOB: "bob"})
    root = cache.root()
    _keep(root, resident)
    world = World(server, repo, repo.commit(files), files, read(other), root, private, [])
    world.allow.append(f"key:{public}")
    return world


def read(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tree(root: Path) -> dict[str, bytes]:
    """Packs and receipts of a cache, to the byte."""
    found = [*(root / "v1" / "packs").rglob("*"), *(root / "v1" / "receipts").iterdir()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.is_file()}


def sha_of(files: dict[str, bytes]) -> str:
    """What a pack is called by."""
    return hashlib.sha256(files[MANIFEST]).hexdigest()


def _keep(root: Path, folder: Path) -> None:
    """Put a pack into the cache as one fetched before."""
    files = read(folder)

    def fill(temp: Path) -> None:
        for name, data in files.items():
            (temp / name).write_bytes(data)

    receipt = trust.verify(folder, policy=trust.TrustPolicy(), allow=[f"sha256:{sha_of(files)}"])
    trust.write_receipt(root, receipt)
    cache.add(sha_of(files), fill, root)
