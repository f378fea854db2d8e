"""What can go wrong between a Hub and a cache: one case each, with the outcome that is right.

Run by test_hub_faults.py with little patience and by benchmarks/distribution/hub_faults.py with
more. `run` says whether the outcome was that and the cache as it was before, and whether a fetch
works afterwards.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from hgemm_packs.distribution import signatures
from hgemm_packs.errors import PackError
from tests.distribution.hub.acts import (
    advertise,
    cut,
    drip,
    drip_head,
    endless,
    flipped,
    hang_up,
    no_ranges,
    send,
    silent,
    wrong_range,
)
from tests.distribution.hub.server import Act, Handler
from tests.distribution.trust.sigstore_world import write_key
from tests.distribution.world import BLOB, BOB, MANIFEST, SIGNATURE, World, read, sha_of, tree

INFO = "/revision/main"


@dataclass(frozen=True)
class Case:
    """`spoil` makes it wrong. `code` is that of the error, "" where the fetch must succeed; `says`
    stands in the message."""

    name: str
    spoil: Callable[[World], None]
    code: str = ""
    says: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a case did; `handled` is the verdict."""

    name: str
    wanted: str
    code: str
    message: str
    requests: int
    seconds: float
    cache_intact: bool
    works_afterwards: bool
    handled: bool


def run(case: Case, world: World) -> Outcome:
    """Spoil, fetch, look; then mend the server and fetch again."""
    before = tree(world.root)
    good, spec, allow, token = world.commit, world.spec, list(world.allow), world.token
    case.spoil(world)
    code = message = ""
    start, asked = time.monotonic(), sum(world.server.asked.values())
    try:
        path = world.fetch()
        right = read(path) == world.files
    except (PackError, OSError, ValueError) as error:
        code, message = getattr(error, "code", type(error).__name__), str(error)
        right = True
    seconds = time.monotonic() - start
    requests = sum(world.server.asked.values()) - asked
    after = tree(world.root)
    intact = after.items() >= before.items() and (bool(case.code) == (after == before))
    intact = intact and not any((world.root / "v1" / "temp").iterdir())
    world.server.faults.clear()
    if world.staged.is_symlink():  # the one thing that its owner must mend
        world.staged.unlink()
    world.spec, world.allow, world.token, world.repo.private = spec, allow, token, False
    world.repo.branches["main"] = good
    afterwards = read(world.fetch()) == world.files
    handled = code == case.code and case.says in message and right and intact and afterwards
    return Outcome(
        case.name,
        case.code,
        code,
        message,
        requests,
        round(seconds, 2),
        intact,
        afterwards,
        handled,
    )


def at(path: str, act: Act, times: int = 1_000_000) -> Callable[[World], None]:
    """A server that answers so."""
    return lambda world: world.fault(path, act, times)


def then(*steps: Callable[[World], None]) -> Callable[[World], None]:
    """All of these, in order."""

    def spoil(world: World) -> None:
        for step in steps:
            step(world)

    return spoil


def info(**changes: object) -> Callable[[World], None]:
    """What the Hub says of the branch, changed."""

    def spoil(world: World) -> None:
        names = [{"rfilename": name} for name in world.files]
        said = {"sha": world.commit, "siblings": names} | changes
        world.fault(INFO, send(200, json.dumps(said).encode()))

    return spoil


def other_commit_behind_a_commit(world: World) -> None:
    asked, world.spec = world.commit, f"{world.spec}@{world.commit}"
    world.change(blob=world.other[BLOB])
    said = {"sha": world.commit, "siblings": []}
    world.fault(f"/revision/{asked}", send(200, json.dumps(said).encode()))


def branch_moves_meanwhile(world: World) -> None:
    def act(handler: Handler, content: bytes) -> bool:
        world.repo.commit({**world.files, **world.other})
        return False

    world.fault("/" + MANIFEST, act, 1)


def signed_by_another(world: World) -> None:
    place = world.private_key.parent / "good"
    signatures.sign_key(place, write_key(world.private_key.parent, "mallory")[0])
    world.change(signature=(place / SIGNATURE).read_bytes())


def torn_part(world: World) -> None:
    world.staged.mkdir(parents=True, mode=0o700)
    world.staged.parent.chmod(0o700)
    (world.staged / BLOB).write_bytes(b"\xff" * 1000)


def too_long_part(world: World) -> None:
    torn_part(world)
    (world.staged / BLOB).write_bytes(b"\xff" * 2 * len(world.files[BLOB]))


def paths_outside(world: World) -> None:
    evil = ("../evil", "/tmp/evil", "..\\evil", "a/../../../evil", "manifest.json/../../evil")
    code = ("setup.py", "__init__.py", "kernels.pkl", "build/kernel.so")
    world.commit = world.repo.commit(world.files | dict.fromkeys((*evil, *code), b"evil"))


def without_blob(world: World) -> None:
    moved = {f"pack/{name}": data for name, data in world.files.items()}
    world.commit = world.repo.commit(moved)


def staged_link(world: World) -> None:
    downloads = world.root / "v1" / "downloads"
    target = world.private_key.parent / "elsewhere"
    target.mkdir()
    downloads.mkdir(mode=0o700, exist_ok=True)
    os.symlink(target, world.staged)


def damaged(name: str) -> Callable[[World], None]:
    """The pack is in the cache already, with one bit of this file changed."""

    def spoil(world: World) -> None:
        path = world.fetch()
        receipts = world.root / "v1" / "receipts"
        broken = receipts / f"{path.name}.json" if name == "receipt" else path / name
        broken.write_bytes(flipped(broken.read_bytes()))

    return spoil


def private_for(token: str | None) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.repo.private, world.token = True, token

    return spoil


def swapped(world: World) -> None:
    """Another good pack in its place, with the signature of ours."""
    world.change(manifest=world.other[MANIFEST], blob=world.other[BLOB])


def only_the_hash_of(which: str) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        files = world.files if which == "ours" else world.other
        world.allow[:] = [f"sha256:{sha_of(files)}"]

    return spoil


def _many_names(count: int) -> list[dict[str, str]]:
    return [{"rfilename": f"{number:0100d}"} for number in range(count)]


NOTHING_MORE = send(416, Content_Range="bytes */0")
ENDS_HERE = send(416, Content_Range="bytes */1000")
DEEP = b'{"sha":' + b"[" * 200_000
PORTAL = b"<html><body>Please log in to the network</body></html>"
TWENTY_GB = 20 << 30
TRANSFER = (
    Case("cut once", at(BLOB, cut, 1)),
    Case("cut always", at(BLOB, cut), "truncated", "given up after"),
    Case("hangs up once", at(BLOB, hang_up, 1)),
    Case("hangs up always", at(BLOB, hang_up), "truncated", "given up after"),
    Case("429 once", at(BLOB, send(429, Retry_After="0"), 1)),
    Case("429 for the revision once", at(INFO, send(429, Retry_After="0"), 1)),
    Case("429 always", at(BLOB, send(429)), "rate_limited", "answers 429"),
    Case("429 for an hour", at(BLOB, send(429, Retry_After="3600")), "rate_limited", "3600 s"),
    Case(
        "429 until the Hub's window ends",
        at(INFO, send(429, RateLimit='"api";r=0;t=290')),
        "rate_limited",
        "wait 290 s",
    ),
    Case("503 once", at(MANIFEST, send(503), 1)),
    Case("503 always", at(MANIFEST, send(503)), "server_error", "answers 503"),
    Case("silent once", at(BLOB, silent, 1)),
    Case("silent always", at(BLOB, silent), "timeout", "nothing came"),
    Case("slow loris, body", at(BLOB, drip), "too_slow", "bytes in"),
    Case("slow loris, head", at(BLOB, drip_head), "too_slow", "no whole head"),
    Case("20 GB manifest", at(MANIFEST, advertise(TWENTY_GB)), "too_large", str(TWENTY_GB)),
    Case("20 GB blob", at(BLOB, advertise(TWENTY_GB)), "too_large", str(TWENTY_GB)),
    Case("20 GB signature", at(SIGNATURE, advertise(TWENTY_GB)), "too_large", str(TWENTY_GB)),
    Case("endless manifest", at(MANIFEST, endless), "too_large", "more than"),
    Case("endless blob", at(BLOB, endless), "too_large", "more than"),
    Case("blob shorter than its manifest says", at(BLOB, advertise(1000)), "wrong_size", "1000"),
    Case("compressed", at(BLOB, send(200, Content_Encoding="gzip")), "encoded", "compresses"),
    Case("resume without ranges", then(at(BLOB, cut, 1), at(BLOB, no_ranges, 1))),
    Case("nothing, as if all were there", at(BLOB, NOTHING_MORE), "bad_status", "(status 416)"),
    Case("no manifest, as if it were there", at(MANIFEST, NOTHING_MORE), "bad_status", "416"),
    Case("a shorter file is whole", then(torn_part, at(BLOB, ENDS_HERE)), "wrong_size", "1000"),
    Case("another range", then(at(BLOB, cut, 1), at(BLOB, wrong_range)), "bad_range", "from byte"),
    Case("redirects in a circle", at(BLOB, send(302, Location="?again")), "protocol", "redirect"),
    Case("redirect to a file", at(BLOB, send(302, Location="file:///etc/passwd")), "protocol"),
    Case(
        "log-in page of a network",
        at(INFO, send(200, PORTAL)),
        "bad_answer",
        "does not describe a revision",
    ),
    Case("torn part of an earlier download", torn_part),
    Case("too long part of an earlier download", too_long_part),
    Case("blob in the cache damaged", damaged(BLOB)),
    Case("manifest in the cache damaged", damaged(MANIFEST)),
    Case("receipt in the cache damaged", damaged("receipt")),
    Case("downloads lead elsewhere", staged_link, "CacheError", "symbolic link"),
)
REVISIONS = (
    Case("branch moves meanwhile", branch_moves_meanwhile),
    Case("other commit behind a commit", other_commit_behind_a_commit, "moved", "answers with"),
    Case("file of another commit", at(BLOB, send(200, X_Repo_Commit="f" * 40)), "moved", "ffff"),
    Case("a path for a commit", info(sha="../../../../etc"), "bad_answer", "is not a commit"),
    Case("no commit", info(sha=None), "bad_answer", "is not a commit"),
    Case(
        "nested without end",
        at(INFO, send(200, DEEP)),
        "bad_answer",
        "does not describe a revision",
    ),
    Case("a list of files without end", info(siblings=_many_names(90_000)), "too_large", "at most"),
    Case("no such revision", lambda w: setattr(w, "spec", w.spec + "@gone"), "no_revision"),
    Case("no such repository", lambda w: setattr(w, "spec", "alice/none"), "no_repo"),
    Case("private, no token", private_for(None), "no_repo", "private"),
    Case("private, another's token", private_for(BOB), "no_repo", "private"),
    Case("gated", at(INFO, send(403, X_Error_Code="GatedRepo")), "gated", "conditions"),
    Case("file gone", at(BLOB, send(404, X_Error_Code="EntryNotFound")), "no_file"),
)
CONTENT = (
    Case("wrong bytes in the blob", lambda w: w.change(blob=flipped(w.files[BLOB])), "kernel_hash"),
    Case(
        "wrong bytes in the manifest",
        lambda w: w.change(manifest=flipped(w.files[MANIFEST])),
        "bad_signature",
    ),
    Case("blob of another pack", lambda w: w.change(blob=w.other[BLOB]), "kernel_hash"),
    Case("swapped pack, our signature", swapped, "bad_signature", SIGNATURE),
    Case(
        "swapped pack, hash allowed is ours",
        then(swapped, only_the_hash_of("ours")),
        "no_authority",
        "nobody you trust",
    ),
    Case("swapped pack, no signature", then(swapped, lambda w: _unsigned(w)), "no_authority"),
    Case("hash allowed is another's", only_the_hash_of("other"), "no_authority", "nobody you"),
    Case("signed by another key", signed_by_another, "bad_signature", SIGNATURE),
    Case("signature gone", lambda w: w.change(signature=None), "no_authority", "nobody you trust"),
    Case("signature is noise", lambda w: w.change(signature=b"\xff" * 5000), "bad_signature"),
    Case("signature is nested", lambda w: w.change(signature=DEEP), "bad_signature"),
    Case("paths that lead outside, and code", paths_outside),
    Case("files in a folder below", without_blob, "missing_file", "is not a pack"),
)
CASES = (*TRANSFER, *REVISIONS, *CONTENT)


def _unsigned(world: World) -> None:
    world.commit = world.repo.commit({MANIFEST: world.other[MANIFEST], BLOB: world.other[BLOB]})
