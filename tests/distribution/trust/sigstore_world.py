"""A sigstore of the test's own: certificate authority, certificate log and signature log, with the
root of trust that names them. What it issues is checked by sigstore's real verifier, offline.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import struct
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER = "https://token.actions.githubusercontent.com"
IDENTITY = "https://github.com/owner/packs/.github/workflows/release.yml@refs/tags/v1"
SIGNED_AT = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)

_ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_SCT_OID = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_SHA256 = ec.ECDSA(hashes.SHA256())


class World:
    """One complete sigstore; two of them do not trust each other."""

    def __init__(self) -> None:
        self.authority, self.certificate_log, self.log = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self.root = self._root()

    def sign(
        self,
        data: bytes,
        *,
        identity: str = IDENTITY,
        issuer: str = ISSUER,
        logged_at: datetime = SIGNED_AT,
    ) -> dict[str, Any]:
        """A bundle for `data`. Certificates live ten minutes from SIGNED_AT; `logged_at` is when
        the log says that it saw the signature."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, identity, issuer)
        signature, digest = key.sign(data, _SHA256), hashlib.sha256(data)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        body = _canonical(
            {
                "apiVersion": "0.0.1",
                "kind": "hashedrekord",
                "spec": {
                    "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
                    "signature": {"content": _b64(signature), "publicKey": {"content": _b64(pem)}},
                },
            }
        )
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _b64(_der(certificate))},
                "tlogEntries": [self._entry(body, int(logged_at.timestamp()))],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _b64(digest.digest())},
                "signature": _b64(signature),
            },
        }

    def trusted_root(self, path: Path) -> Path:
        """Write what a verifier must know of this world."""
        valid = {"start": "2026-01-01T00:00:00Z"}
        path.write_text(
            json.dumps(
                {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [_instance(self.log, valid)],
                    "ctlogs": [_instance(self.certificate_log, valid)],
                    "certificateAuthorities": [
                        {
                            "subject": {"organization": "test", "commonName": "test"},
                            "uri": "https://authority.invalid",
                            "certChain": {"certificates": [{"rawBytes": _b64(_der(self.root))}]},
                            "validFor": valid,
                        }
                    ],
                }
            )
        )
        return path

    def _root(self) -> x509.Certificate:
        builder = self._builder(self.authority.public_key(), SIGNED_AT - timedelta(days=30), 3650)
        return (
            builder.subject_name(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(self.authority, hashes.SHA256())
        )

    def _certificate(
        self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str
    ) -> x509.Certificate:
        """A short-lived certificate that the certificate log has promised to publish."""
        authority = self.authority.public_key()
        builder = (
            self._builder(key.public_key(), SIGNED_AT, 10 / 1440)
            .subject_name(x509.Name([]))
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]),
                critical=True,
            )
            .add_extension(x509.UnrecognizedExtension(_ISSUER_OID, issuer.encode()), critical=False)
        )
        unlogged = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        promise = self._promise(unlogged)
        return builder.add_extension(
            x509.UnrecognizedExtension(_SCT_OID, promise), critical=False
        ).sign(self.authority, hashes.SHA256())

    def _promise(self, certificate: bytes) -> bytes:
        """The certificate log's signed timestamp (RFC 6962) as the extension wants it."""
        moment = int(SIGNED_AT.timestamp() * 1000)
        entry = _key_id(self.authority) + len(certificate).to_bytes(3, "big") + certificate
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + entry + struct.pack("!H", 0)
        signature = self.certificate_log.sign(signed, _SHA256)
        stamp = struct.pack("!B32sQH", 0, _key_id(self.certificate_log), moment, 0)
        stamp += struct.pack("!BBH", 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        return b"\x04" + bytes([len(listed)]) + listed

    def _entry(self, body: bytes, moment: int) -> dict[str, Any]:
        """The entry of a log that holds nothing else: its leaf is its root."""
        log_id, leaf = _key_id(self.log), hashlib.sha256(b"\0" + body).digest()
        promised = {"body": _b64(body), "integratedTime": moment}
        promised |= {"logID": log_id.hex(), "logIndex": 0}
        note = f"log.invalid\n1\n{_b64(leaf)}\n"
        signed = _b64(log_id[:4] + self.log.sign(note.encode(), _SHA256))
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log_id)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(moment),
            "inclusionPromise": {
                "signedEntryTimestamp": _b64(self.log.sign(_canonical(promised), _SHA256))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(leaf),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 log.invalid {signed}\n"},
            },
            "canonicalizedBody": _b64(body),
        }

    _name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])

    def _builder(
        self, key: ec.EllipticCurvePublicKey, start: datetime, days: float
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


@functools.cache
def world() -> World:
    """The sigstore that tests trust; made once."""
    return World()


def write_key(folder: Path, name: str) -> tuple[Path, Path]:
    """A new key pair as PEM files: private, public."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    public.chmod(0o644)  # whatever this machine's umask is
    return private, public


def _usage(**wanted: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    names += ("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in names})


def _instance(key: ec.EllipticCurvePrivateKey, valid: dict[str, str]) -> dict[str, Any]:
    return {
        "baseUrl": "https://log.invalid",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": _b64(_public(key)),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": valid,
        },
        "logId": {"keyId": _b64(_key_id(key))},
    }


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
