"""The policy file, the words of a call and the registry: what they accept, and all they refuse."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import trust
from hgemm_packs.distribution.trust import Key, Pin, Signer, TrustPolicy
from hgemm_packs.errors import TrustError
from tests.distribution.trust.sigstore_world import IDENTITY, ISSUER, write_key

pytestmark = pytest.mark.usefixtures("clean_process")

HEX = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's policy is; nothing is there yet."""
    path = tmp_path / "config" / "hgemm_packs" / "policy.toml"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return path


def code() -> str:
    with pytest.raises(TrustError) as error:
        TrustPolicy.load()
    return error.value.code


def test_no_file_trusts_nobody(file: Path) -> None:
    assert TrustPolicy.load() == TrustPolicy(frozenset(), (), ())


def test_a_whole_policy(file: Path) -> None:
    _, public = write_key(file.parent, "team")
    file.write_text(
        f'sha256 = ["{HEX}"]\nkeys = ["team.pem"]\n'
        f'[[sigstore]]\nissuer = "{ISSUER}"\nidentity = "{IDENTITY}"\n'
    )
    expected = TrustPolicy(frozenset({HEX}), (Signer(ISSUER, IDENTITY),), (Key.read(public),))
    assert TrustPolicy.load() == expected


def test_the_named_file_counts_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f'sha256 = ["{HEX}"]\n')
    (tmp_path / "named.toml").write_text(f'sha256 = ["{"a" * 64}"]\n')
    monkeypatch.setenv("HGEMM_PACKS_POLICY", str(tmp_path / "named.toml"))
    assert TrustPolicy.load().sha256 == {"a" * 64}


def test_a_named_file_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGEMM_PACKS_POLICY", str(tmp_path / "none.toml"))
    assert code() == "bad_policy"


def test_a_user_without_a_home_has_an_empty_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", nobody)
    assert TrustPolicy.load() == TrustPolicy()


@pytest.mark.parametrize(
    "text",
    [
        "verify = false",
        "verify = true",
        "insecure = true",
        "allow_all = true",
        'trust_remote_code = "yes"',
        "[registry]\nenabled = false",
        f'sha256 = ["{HEX}"]\nallow_unsigned = true',
    ],
)
def test_nothing_switches_verification_off(file: Path, text: str) -> None:
    """There is no such word, so a policy with one is refused as a whole."""
    file.write_text(text + "\n")
    with pytest.raises(TrustError, match="is an unknown field") as error:
        TrustPolicy.load()
    assert error.value.code == "bad_policy"


@pytest.mark.parametrize(
    "text",
    [
        'sha256 = ["*"]',
        'sha256 = [""]',
        f'sha256 = ["{HEX.upper()}"]',
        f'sha256 = "{HEX}"',
        "sha256 = true",
        "[sigstore]",
        "sigstore = ['*']",
        f"[[sigstore]]\nidentity = '{IDENTITY}'",
        f"[[sigstore]]\nissuer = '{ISSUER}'",
        f"[[sigstore]]\nissuer = ''\nidentity = '{IDENTITY}'",
        f"[[sigstore]]\nissuer = '{ISSUER}'\nidentity = ''",
        f"[[sigstore]]\nissuer = '{ISSUER}'\nidentity = '{IDENTITY}'\nregex = true",
        "keys = ['missing.pem']",
        "keys = ['.']",
        "keys = 'team.pem'",
        "sha256 = [",
        "\udcff",
    ],
)
def test_a_policy_that_is_none(file: Path, text: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert code() == "bad_policy"


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1" * 5000])
@pytest.mark.parametrize(
    "text", ["sha256 = {}", "sha256 = [{}]", "x = {}", "[[sigstore]]\nissuer = {}"]
)
def test_defect_15_a_policy_with_an_integer_that_python_does_not_print(
    file: Path, text: str, number: str
) -> None:
    file.write_text(text.format(number))
    assert code() == "bad_policy"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_policy_that_others_can_write(file: Path, mode: int) -> None:
    file.write_text("")
    assert TrustPolicy.load() == TrustPolicy()
    file.chmod(mode)
    assert code() == "bad_policy"


def test_a_key_that_others_can_write(file: Path) -> None:
    _, public = write_key(file.parent, "team")
    file.write_text('keys = ["team.pem"]\n')
    assert TrustPolicy.load().keys == (Key.read(public),)
    public.chmod(0o666)
    assert code() == "bad_policy"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_policy_of_somebody_else(file: Path) -> None:
    file.write_text("")
    os.chown(file, 65534, -1)
    assert code() == "bad_policy"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_policy_of_root_counts_for_every_user(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator's policy."""
    file.write_text(f'sha256 = ["{HEX}"]\n')
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert TrustPolicy.load().sha256 == {HEX}


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_policy_that_is_no_file(file: Path, make: Any) -> None:
    make(file)
    assert code() == "bad_policy"


def test_words_of_a_call(tmp_path: Path) -> None:
    _, public = write_key(tmp_path, "mine")
    start = TrustPolicy(frozenset({HEX}))
    words = ["sha256:" + "b" * 64, f"key:{public}", f"sigstore:{IDENTITY}"]
    words.append("sigstore:https://accounts.example me@example.org")
    signers = (Signer(ISSUER, IDENTITY), Signer("https://accounts.example", "me@example.org"))
    assert start.extend(words) == TrustPolicy(
        frozenset({HEX, "b" * 64}), signers, (Key.read(public),)
    )
    assert start.extend([]) == start
    assert start == TrustPolicy(frozenset({HEX}))


@pytest.mark.parametrize(
    "word",
    [
        "",
        "*",
        "all",
        HEX,
        "sha256:",
        "sha256:*",
        f"sha256:{HEX}0",
        "key:",
        "key:/missing.pem",
        "sigstore:",
        "sigstore:me@example.org",
        f"sigstore: {IDENTITY.replace('github', 'gitlab')}",
        f"sigstore:{ISSUER} ",
        "insecure:yes",
    ],
)
def test_a_word_that_names_nobody(word: str) -> None:
    with pytest.raises(TrustError) as error:
        TrustPolicy().extend([word])
    assert error.value.code == "bad_word"


def test_a_str_is_no_list_of_words() -> None:
    # allow="sha256:..." was refused with the words: 's' names nobody.
    with pytest.raises(TrustError, match="a list of words is wanted"):
        TrustPolicy().extend(f"sha256:{HEX}")


def test_the_examples_of_the_documentation(file: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "trust.md").read_text(encoding="utf-8")
    _, public = write_key(file.parent, "team")
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.S)
    file.write_text(example)
    repo_identity = IDENTITY.replace("owner/packs", "owner/repo")
    signer = Signer(ISSUER, repo_identity)
    assert TrustPolicy.load() == TrustPolicy(frozenset({HEX}), (signer,), (Key.read(public),))

    words = re.findall(r'allow=\["(.*?)"\]', page)
    words = [
        word.replace("0123...", HEX).replace("/etc/hgemm_packs", str(file.parent)) for word in words
    ]
    google = Signer("https://accounts.google.com", "me@example.org")
    expected = TrustPolicy(frozenset({HEX}), (signer, google), (Key.read(public),))
    assert TrustPolicy().extend(words) == expected


# --- the registry


@pytest.fixture
def registry_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry in place of the shipped one."""
    path = tmp_path / "registry.json"
    monkeypatch.setattr(trust, "REGISTRY", path)
    return path


@pytest.fixture(autouse=True)
def fresh_registry() -> Any:
    trust.registry.cache_clear()
    yield
    trust.registry.cache_clear()


ENTRY = {
    "name": "h200",
    "repo": "owner/h200",
    "revision": "c" * 40,
    "manifest_sha256": HEX,
    "signer": {"issuer": ISSUER, "identity": IDENTITY},
}


def write(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(json.dumps({"schema": "hgemm-packs-registry/1", "packs": entries}))


def test_the_shipped_registry_is_readable() -> None:
    """No pack is published yet; what is in it must be a pin all the same."""
    assert all(pin.name == name for name, pin in trust.registry().items())


def test_a_registry(registry_file: Path) -> None:
    write(registry_file, ENTRY, ENTRY | {"name": "other", "signer": None})
    signer = Signer(ISSUER, IDENTITY)
    assert trust.registry() == {
        "h200": Pin("h200", "owner/h200", "c" * 40, HEX, signer),
        "other": Pin("other", "owner/h200", "c" * 40, HEX, None),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "main"},
        {"revision": "c" * 39},
        {"manifest_sha256": "*"},
        {"repo": "owner"},
        {"repo": "../../etc/passwd"},
        {"repo": "owner/../x"},
        {"name": "../x"},
        {"signer": {"issuer": ISSUER}},
        {"verify": False},
    ],
)
def test_a_registry_with_an_entry_that_pins_nothing(
    registry_file: Path, change: dict[str, Any]
) -> None:
    write(registry_file, ENTRY | change)
    with pytest.raises(TrustError) as error:
        trust.registry()
    assert error.value.code == "bad_registry"


def test_a_registry_with_a_name_twice(registry_file: Path) -> None:
    write(registry_file, ENTRY, ENTRY | {"revision": "d" * 40})
    with pytest.raises(TrustError, match="twice"):
        trust.registry()


@pytest.mark.parametrize("content", [None, "", "{}", '{"packs":[]}'])
def test_a_damaged_registry(registry_file: Path, content: str | None) -> None:
    if content is not None:
        registry_file.write_text(content)
    with pytest.raises(TrustError) as error:
        trust.registry()
    assert error.value.code == "bad_registry"
