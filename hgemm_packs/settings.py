"""The environment variables, read once per process, and the project's logger.

HGEMM_PACKS_PATH    pack directories, joined by os.pathsep, searched first
HGEMM_PACKS_CACHE   root of the cache (default: $XDG_CACHE_HOME/hgemm_packs)
HGEMM_PACKS_LOG     a level name; sends the project's log to stderr
HGEMM_PACKS_STRICT  1: raise FallbackError where a fallback would be used
HGEMM_PACKS_POLICY  the policy file (default: $XDG_CONFIG_HOME/hgemm_packs/policy.toml)
HGEMM_PACKS_SELFTEST  1: the first use of each kernel is compared with torch
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LOGGER = logging.getLogger("hgemm_packs")


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the environment at first use."""

    path: tuple[Path, ...]
    cache: Path | None
    log: str
    strict: bool
    policy: Path | None
    selftest: bool


@cache
def settings() -> Settings:
    """Read the environment; later changes are not seen (tests call `settings.cache_clear`)."""
    env = os.environ
    log = env.get("HGEMM_PACKS_LOG", "").upper()
    _configure_log(log)  # before anything below is said
    listed = env.get("HGEMM_PACKS_PATH", "")
    return Settings(
        path=tuple(Path(part) for part in listed.split(os.pathsep) if part),
        cache=_cache_root(),
        log=log,
        strict=_flag("HGEMM_PACKS_STRICT"),
        policy=Path(env["HGEMM_PACKS_POLICY"]) if env.get("HGEMM_PACKS_POLICY") else None,
        selftest=_flag("HGEMM_PACKS_SELFTEST"),
    )


def _flag(name: str) -> bool:
    """1 is yes. Who writes yes or true would wait in vain, so that anything else is said."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        LOGGER.warning("%s=%s is neither 0 nor 1, and taken for 0", name, value)
    return value == "1"


def _cache_root() -> Path | None:
    """None for a user without a home, as containers have them: they have no cache."""
    named = os.environ.get("HGEMM_PACKS_CACHE")
    if named:
        return Path(named)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "hgemm_packs"
    except RuntimeError:
        return None


def _configure_log(level: str) -> None:
    """Send the log to stderr at `level`; an unknown level is reported, never an error in a call."""
    if not level:
        return
    try:
        LOGGER.setLevel(level)
    except ValueError:
        LOGGER.warning("HGEMM_PACKS_LOG=%s is not a logging level", level)
        return
    if not LOGGER.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
        LOGGER.addHandler(handler)
