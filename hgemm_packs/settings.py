"""The environment variables, read once per process, the switches of a process, and the project's
logger.

HGEMM_PACKS_OFF     1: torch runs every call, and no pack is searched
HGEMM_PACKS_PATH    pack directories, joined by os.pathsep (":"), searched before installed ones
HGEMM_PACKS_CACHE   root of the cache (default: $XDG_CACHE_HOME/hgemm_packs)
HGEMM_PACKS_LOG     a level name; sends the project's log to stderr
HGEMM_PACKS_STRICT  1: raise FallbackError where a fallback would be used
HGEMM_PACKS_PREDICT  0: no kernel runs a problem that was not measured
HGEMM_PACKS_SIBLINGS  1: predictions for another card of the architecture serve where none is for it
HGEMM_PACKS_POLICY  the policy file (default: $XDG_CONFIG_HOME/hgemm_packs/policy.toml)
HGEMM_PACKS_SELFTEST  1: the first use of each kernel is compared with torch
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
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
    off: bool
    policy: Path | None
    selftest: bool
    predict: bool
    siblings: bool


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
        off=_flag("HGEMM_PACKS_OFF"),
        policy=Path(env["HGEMM_PACKS_POLICY"]) if env.get("HGEMM_PACKS_POLICY") else None,
        selftest=_flag("HGEMM_PACKS_SELFTEST"),
        predict=env.get("HGEMM_PACKS_PREDICT") != "0",
        siblings=_flag("HGEMM_PACKS_SIBLINGS"),
    )


_switch_lock = threading.Lock()
_disabled = False  # by disable()
_blocks = 0  # of disabled(), in all threads, that have begun and not ended
_environment = False  # HGEMM_PACKS_OFF, once it has been read
_invariant_blocks = 0  # of options(batch_invariant=True), in the same way
_tell: Callable[[bool, bool], object] = max  # until `on_switch`, nobody is told


def is_off() -> bool:
    """Whether torch runs every call."""
    return _environment or _disabled or _blocks > 0


def is_invariant() -> bool:
    """Whether products are batch-invariant or raise."""
    return _invariant_blocks > 0


def on_switch(tell: Callable[[bool, bool], object]) -> None:
    """Have `tell` called with `is_off()` and `is_invariant()` at each change: by `launcher`, which
    tells C."""
    global _tell
    _tell = tell
    _switch()


def read_switch() -> None:
    """Read HGEMM_PACKS_OFF, at the first call and where settings are read again."""
    global _environment
    _environment = settings().off
    _switch()


def disable() -> None:
    """Let torch run every call of `matmul` and of `hgemm_packs.nn.Linear`, until `resume()`.

    The switch holds for the whole process: torch runs the next calls of all threads. Each such call
    is counted as the fallback `off`, and HGEMM_PACKS_STRICT does not raise for it. No pack is
    searched and no kernel is loaded. A loaded kernel stays loaded, and a captured CUDA graph keeps
    its kernels. HGEMM_PACKS_OFF=1 does the same from the first call on.

    Raises nothing, also when called twice.

    Example:

        hgemm_packs.disable()
        y = matmul(x, w)  # torch.matmul(x, w)
        hgemm_packs.resume()
    """
    global _disabled
    _disabled = True
    _switch()


def resume() -> None:
    """Let calls get kernels again after `disable()`.

    `resume()` does not end a block of `disabled()`, in any thread, nor HGEMM_PACKS_OFF=1.

    Raises nothing, also where nothing is disabled.

    Example:

        hgemm_packs.disable()
        hgemm_packs.resume()
    """
    global _disabled
    _disabled = False
    _switch()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Let torch run every call inside a `with` block, as between `disable()` and `resume()`.

    The block holds for the whole process: torch runs the calls of other threads, too. Blocks may be
    nested, and blocks of several threads may overlap. Calls get kernels again when the last block
    has ended, by an exception or not. An earlier `disable()` stays in force after the block.

    Example:

        with hgemm_packs.disabled():
            expected = model(x)  # torch alone
    """
    global _blocks
    with _switch_lock:
        _blocks += 1
    _switch()
    try:
        yield
    finally:
        with _switch_lock:
            _blocks -= 1
        _switch()


@contextlib.contextmanager
def options(*, batch_invariant: bool) -> Iterator[None]:
    """A block in which each row of a product has the same bits however many rows there are.

    With `batch_invariant=True` a row of C follows from its row of A and from B alone: neither M,
    nor where the row is, nor the other rows change a bit of it. All kernels of the mode add up the
    whole of K in one float32 accumulator, in order; which of them runs depends on M, for speed.
    Such kernels run `matmul`, the layers of `hgemm_packs.nn`, `linear` and, under `enable()`, what
    torch itself multiplies by mm and bmm, [M, K] @ [K, N] and [..., K] @ [K, N] of float16 or
    bfloat16, for every M and also where no table has a row. Where a gradient is recorded, backward
    multiplies by `matmul`. A bias, an activation and a residual are torch's elementwise operations
    on the rounded product, at every M. Outside the mode a call repeats bit by bit, too: every
    kernel of a pack does. But another M may get another kernel, with other bits.

    No product is torch's in the mode. A call raises `hgemm_packs.errors.InvariantError`, a
    RuntimeError, where no kernel of the mode runs it: operands that are not float16 or bfloat16 on
    one CUDA device, vectors, batches of matrices, empty matrices, N or K that is no multiple of 8,
    addresses that are not 16-byte aligned, strides that are not packed, an `out` that a kernel
    cannot write, autocast, kernels that are switched off. Under `enable()` torch's mm and bmm raise
    torch's own RuntimeError, and so do its sums, addmm and baddbmm, hence torch.nn.Linear with a
    bias. Left as they are there: operators that another library has replaced, and products that
    torch.compile generated. Compiled code breaks its graph at calls of ours, which then run as they
    do eagerly.

    A captured CUDA graph keeps the kernels that it was captured with, so capture it in the mode,
    after `warmup` in the mode: a capture loads nothing, and raises. The first call reads the whole
    table of a pack, and the first call of each shape asks Python for its kernel.

    The block is of the whole process, of other threads too. Blocks may be nested, and blocks of
    several threads may overlap; the mode ends with the last, by an exception or not. A block with
    `batch_invariant=False` changes nothing, nor does it end the mode of another block.

    Example:

        with hgemm_packs.options(batch_invariant=True), torch.inference_mode():
            one, all = layer(x[5:6]), layer(x)
        assert torch.equal(one[0], all[5])
    """
    global _invariant_blocks
    with _switch_lock:
        _invariant_blocks += batch_invariant
    _switch()
    try:
        yield
    finally:
        with _switch_lock:
            _invariant_blocks -= batch_invariant
        _switch()


def _switch() -> None:
    with _switch_lock:
        _tell(is_off(), is_invariant())


def _flag(name: str) -> bool:
    """1 is yes. Who writes yes or true would wait in vain, so that anything else is said."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        LOGGER.warning("%s=%s is neither 0 nor 1; 0 is used", name, value)
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
