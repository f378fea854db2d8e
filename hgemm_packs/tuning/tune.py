"""`tune`: a table for the GPU at hand, on the shapes that a program uses.

Called by users and by the command line. What is wanted `wanted` says, what is measured and in which
order `session`; this finds the device and the packs, shows what happens, and sees to it that the
process uses the table at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from .. import launcher, profiles, select
from ..errors import PackError, TuneError
from ..pack.folder import Pack
from ..pack.local.place import make_folder
from ..problem import DeviceInfo, Problem
from ..settings import disabled, is_off, read_switch, settings
from .bench import Bench, GpuBench
from .session import Gain, Session, Show, hold
from .wanted import TOKENS, find_wanted


class Tuned(NamedTuple):
    """What a tuning found: `gains` of the problems that were measured now, the problems that were
    `left` for want of time, those that are `unfit` with the reason, and how many were `known`. The
    table is in `folder`."""

    gains: tuple[Gain, ...]
    left: tuple[Problem, ...]
    unfit: Mapping[Problem, str]
    known: int
    folder: Path
    seconds: float

    @property
    def won(self) -> tuple[Gain, ...]:
        """Those that a kernel runs from now on."""
        return tuple(each for each in self.gains if each.kernel is not None)

    @property
    def speedup(self) -> float:
        """The geometric mean of torch's time over what runs now, caches hot, of `gains`."""
        ratios = [each.row.hot.speedup if each.kernel else 1.0 for each in self.gains]
        return geometric_mean(ratios) if ratios else 1.0

    def __str__(self) -> str:
        said = [
            f"{len(self.gains)} problems measured in {self.seconds:.0f} s: a kernel runs "
            f"{len(self.won)} of them, torch the others; {self.speedup:.3f}x torch over all"
        ]
        if self.known:
            said.append(f"{self.known} problems had a row")
        if self.left:
            said.append(f"{len(self.left)} problems are left: the same call goes on with them")
        reasons = sorted(set(self.unfit.values()))
        said += [
            f"{sum(why == each for each in self.unfit.values())} problems: {why}" for why in reasons
        ]
        return "\n".join(said)


def tune(
    model_or_shapes: object,
    seconds: float = 60.0,
    *,
    tokens: Sequence[int] = TOKENS,
    again: bool = False,
    show: Show | None = None,
) -> Tuned:
    """Measure the kernels of the packs against torch on your shapes, on the current CUDA device,
    and use the fastest of each shape from now on, in this process and in later ones.

    `model_or_shapes` is a torch.nn.Module, whose linear layers are tuned at each number of
    `tokens`; a recording of `record_shapes`; a path of a recording, of a TOML of shapes or of a
    config.json; or an iterable of (M, N, K), (M, N, K, layout) or (M, N, K, layout, dtype), such
    as (64, 4096, 4096, "nt", torch.bfloat16). Nothing is compiled.

    At most `seconds` are spent, and the rest of one problem. Shapes on which the program spends
    most time come first. Shapes that have a row for this GPU model are left out, unless `again`.
    Every result is on disk before the next begins: the same call, given again, goes on where one
    was stopped or killed. Two processes that tune one GPU model take turns.

    The results are a pack of this machine in the cache, which is asked before all others. A row
    needs what every row needs: a win over torch in a second measurement, hot and cold, beyond the
    noise. Where torch is faster torch stays. After an upgrade of torch, cuBLAS or the driver the
    rows are set aside, and the next call measures these first. It is also the way to the first
    table of a GPU model that no pack was measured on.

    While it runs, torch runs every other product of the process. A CUDA graph that was captured
    before keeps its kernels. `show(done, of, found)` is called
    after each problem; without one a line is printed.

    Returns a `Tuned`, whose str() says what was gained. Raises `hgemm_packs.errors.TuneError`, a
    RuntimeError, where there is no CUDA device, no pack for it, no cache or nothing to measure, and
    where a kernel has taken the device with it; TypeError, ValueError, PackError or OSError for
    what cannot be read.

    Example:

        with hgemm_packs.record_shapes() as seen, torch.inference_mode():
            model(tokens)
        print(hgemm_packs.tune(seen, seconds=60))
    """
    import torch

    if not torch.cuda.is_available():
        raise TuneError("tune measures on a CUDA device, and torch sees none here")
    index = torch.cuda.current_device()
    with torch.cuda.device(index):
        try:
            return tune_device(
                model_or_shapes, seconds, index, lambda: GpuBench(index), tokens, again, show
            )
        finally:
            torch.cuda.empty_cache()  # the program may want what operands took


def tune_device(
    model_or_shapes: object,
    seconds: float,
    index: int,
    open_bench: Callable[[], Bench],
    tokens: Sequence[int] = TOKENS,
    again: bool = False,
    show: Show | None = None,
) -> Tuned:
    """The same of device `index`, measured by what `open_bench` opens."""
    if not seconds > 0:
        raise ValueError(f"seconds={seconds!r} is not above 0")
    wanted = find_wanted(model_or_shapes, tokens)
    root = settings().cache
    if root is None:
        raise TuneError("there is no cache to keep a table in: set HGEMM_PACKS_CACHE")
    read_switch()
    if is_off():
        raise TuneError("kernels are switched off: HGEMM_PACKS_OFF=1 or disable()")
    try:
        device = launcher.device_info(index)
    except RuntimeError as error:
        raise TuneError(str(error)) from error
    packs = _packs(device)
    if not wanted:
        raise TuneError("there is nothing to measure: no shape of float16 or bfloat16 was given")
    folder = make_folder(root, device.name, device.sm_count)
    began = time.monotonic()
    with hold(root, folder), disabled():
        session = Session(folder, device, packs, open_bench(), seconds)
        try:
            outcome = session.run(wanted, again, show or _print_line)
        finally:
            try:
                session.close()
            finally:
                select.renew_local()
                launcher.reset_table()
    took_s = time.monotonic() - began
    return Tuned(*outcome, folder=folder, seconds=took_s)


def _packs(device: DeviceInfo) -> list[Pack]:
    """The packs whose kernels run on a device, whatever they were measured on."""
    found, reasons = [], []
    for pack in select.find_packs().packs:
        if pack.local:
            continue
        foreign = profiles.find_foreign(pack.manifest, device)
        try:
            if foreign is None:
                pack.manifest.check()
                found.append(pack)
            else:
                reasons.append(foreign.text)
        except PackError as error:
            select.refuse(pack, error)
    if not found:
        reasons += [each.text for each in select.find_packs().reasons(not reasons)]
        raise TuneError(
            f"no pack here has kernels for {device.name} ({device.arch}): {'; '.join(reasons)}"
        )
    return found


def _print_line(done: int, of: int, found: Gain | None) -> None:
    if found is None:
        return
    hot = found.row.hot
    runs = f"{hot.us:.2f} us, {hot.speedup:.3f}x" if found.kernel else "torch stays"
    print(f"{done}/{of}  {found.problem}: torch {hot.torch_us:.2f} us, {runs}", file=sys.stderr)
