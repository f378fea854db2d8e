"""Whom a user trusts beside the shipped registry: hashes, sigstore identities and public keys.

Read by `trust` from one TOML file, and extended by the words of a call or a command line. A policy
only ever names what is accepted; it has no word for accepting everything.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import PackError, TrustError
from ..pack.manifest_fields import SHA256
from ..pack.strict_json import listing, record, text
from ..settings import settings

#: The issuer that stands behind every identity that is a workflow on GitHub.
GITHUB = "https://token.actions.githubusercontent.com"
MAX_ENTRIES = 1000
MAX_POLICY_BYTES = 1 << 20

_IDENTITY = text(r"[!-~]{1,512}")
_ISSUER = text(r"https://[!-~]{1,504}")
_FILE = text(r"[^\0]{1,4096}")


@dataclass(frozen=True, slots=True)
class Signer:
    """A sigstore identity: who issued it, and the e-mail address or workflow URI@ref it says."""

    issuer: str
    identity: str

    def __str__(self) -> str:
        return f"sigstore:{self.issuer} {self.identity}"


@dataclass(frozen=True, slots=True)
class Key:
    """A public key: the bytes of a PEM file as they were when it was checked, and its path for
    messages. What is in the file later vouches for nothing."""

    path: Path
    pem: bytes

    @classmethod
    def read(cls, path: Path) -> Key:
        """The key in a file that nobody else can write to; whether it is one is looked at when a
        signature is. Raises PackError."""
        return cls(path, _read_own(path, MAX_POLICY_BYTES))


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """What is accepted: sha256 of manifests, sigstore signers, public keys."""

    sha256: frozenset[str] = frozenset()
    signers: tuple[Signer, ...] = ()
    keys: tuple[Key, ...] = ()

    @classmethod
    def load(cls) -> TrustPolicy:
        """The user's policy file: $HGEMM_PACKS_POLICY, else <config>/hgemm_packs/policy.toml.

        A file that is not named and does not exist is an empty policy. Raises TrustError for one
        that cannot be read, has an unknown field, or that others can write to.
        """
        named = settings().policy
        path = named or _default()
        if path is None or (named is None and not os.path.lexists(path)):
            return cls()
        try:
            policy: TrustPolicy
            policy, keys = _DOCUMENT(_read_toml(path))
            return replace(policy, keys=tuple(Key.read(path.parent / key) for key in keys))
        except PackError as error:
            raise TrustError("bad_policy", f"{path}: {error.detail}", error.where) from None

    def extend(self, words: Iterable[str]) -> TrustPolicy:
        """This policy and what `words` name, each one of: `sha256:HEX`, `key:PATH` (PEM),
        `sigstore:ISSUER IDENTITY`, or `sigstore:https://github.com/...@REF` (a workflow).

        Raises TrustError for any other word, and for a str in place of a list of words.
        """
        if isinstance(words, str):  # its letters would be taken for words
            raise TrustError("bad_word", f"{words!r}: a list of words is wanted")
        policy = self
        for word in words:
            try:
                policy = policy._and(word)
            except PackError as error:
                raise TrustError("bad_word", f"{word!r}: {error.detail}") from None
        return policy

    def _and(self, word: str) -> TrustPolicy:
        kind, _, value = word.partition(":")
        if kind == "sha256":
            return replace(self, sha256=self.sha256 | {SHA256(value)})
        if kind == "key":
            return replace(self, keys=(*self.keys, Key.read(Path(_FILE(value)))))
        if kind == "sigstore":
            issuer, _, identity = value.rpartition(" ")
            if not issuer and identity.startswith("https://github.com/"):
                issuer = GITHUB
            signer = Signer(_ISSUER(issuer), _IDENTITY(identity))
            return replace(self, signers=(*self.signers, signer))
        raise PackError("bad_word", "not sha256:HEX, key:PATH or sigstore:[ISSUER ]IDENTITY")


#: A Signer in a document, here and in the registry.
SIGNER = record(Signer, issuer=_ISSUER, identity=_IDENTITY)


def _policy(
    sha256: tuple[str, ...] = (), sigstore: tuple[Signer, ...] = (), keys: tuple[str, ...] = ()
) -> tuple[TrustPolicy, tuple[str, ...]]:
    return TrustPolicy(frozenset(sha256), sigstore), keys


_DOCUMENT = record(
    _policy,
    {
        "sha256": listing(SHA256, 0, MAX_ENTRIES),
        "sigstore": listing(SIGNER, 0, MAX_ENTRIES),
        "keys": listing(_FILE, 0, MAX_ENTRIES),
    },
)


def _default() -> Path | None:
    """None for a user without a home."""
    shared = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".config") / "hgemm_packs" / "policy.toml"
    except RuntimeError:
        return None


def _read_toml(path: Path) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError:
            raise PackError("bad_policy", "TOML needs hgemm-packs[hub] on Python 3.10") from None
    try:
        return tomllib.loads(_read_own(path, MAX_POLICY_BYTES).decode())
    except (ValueError, RecursionError) as error:  # tomllib does not name every refusal itself
        raise PackError("bad_policy", f"not TOML: {str(error)[:200]}") from None


def _read_own(path: Path, limit: int) -> bytes:
    """A file that only this user or root can write to: whoever else could, decides what runs."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            facts = os.fstat(f.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
                raise PackError("bad_policy", f"{path} is not a file of at most {limit} bytes")
            if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o022:
                raise PackError("bad_policy", f"others can write to {path}")
            return f.read(limit)
    except OSError as error:
        raise PackError("bad_policy", f"{path}: {error.strerror}") from None
