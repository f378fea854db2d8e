"""Whom a user trusts beside the shipped registry: hashes, sigstore identities and public keys.

Read by `trust` from one TOML file, and extended by the words of a call or a command line. A policy
only ever names what is accepted; it has no word for accepting everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Signer:
    """A sigstore identity: who issued it, and the e-mail address or workflow URI@ref it says."""

    issuer: str
    identity: str

    def __str__(self) -> str:
        return f"sigstore:{self.issuer} {self.identity}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is accepted: sha256 of manifests, sigstore signers, public keys (PEM files)."""

    sha256: frozenset[str] = frozenset()
    signers: tuple[Signer, ...] = ()
    keys: tuple[Path, ...] = ()

    @classmethod
    def load(cls) -> Policy:
        """The user's policy file: $HGEMM_PACKS_POLICY, else <config>/hgemm_packs/policy.toml.

        A file that is not named and does not exist is an empty policy. Raises TrustError for one
        that cannot be read, has an unknown field, or that others can write to.
        """
        raise NotImplementedError

    def allowing(self, words: Iterable[str]) -> Policy:
        """This policy and what `words` name, each one of: `sha256:HEX`, `key:PATH` (PEM),
        `sigstore:ISSUER IDENTITY`, or `sigstore:https://github.com/...@REF` (a workflow).

        Raises TrustError for any other word.
        """
        raise NotImplementedError
