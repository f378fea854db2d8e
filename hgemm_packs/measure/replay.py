"""Timed replays of a CUDA graph of back-to-back calls, on one side stream per device.

Called by `timing` and by the generator's screening. A replay measures device time without the
host's share; nothing here chooses buffers, lengths or orders.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import torch

from .operands import Operands
from .telemetry import Telemetry

#: Queues c = a @ b on the current stream; must be capturable in a CUDA graph after one warm call.
Arm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]

#: Keeps the GPU busy (about 15 us) while the first replay of a block is queued behind it.
HEAD_START_CYCLES = 25_000


class Stage:
    """What all measurements of one device share: the side stream, the L2 flush, the telemetry."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        self.stream = torch.cuda.Stream(device)
        self.telemetry = Telemetry(device)
        words = 3 * self.l2_bytes // 4
        self._lines = torch.ones(words, dtype=torch.float32, device=torch.device("cuda", device))
        self._sink = torch.empty((), dtype=torch.float32, device=self._lines.device)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Work inside runs on the side stream, after everything queued so far."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def flush(self) -> None:
        """Fill L2 with lines nobody uses. Reading leaves them clean, so that no write-back is
        charged to the arm that runs next."""
        torch.sum(self._lines, dim=0, out=self._sink)


@functools.cache
def stage(device: int) -> Stage:
    """The stage of a CUDA device, made once: streams and their cuBLAS workspaces are dear."""
    return Stage(device)


class Single:
    """One eager call of an arm on `one`, timed like a replay; for calls that are long against the
    launch, or to see how long they are. Inside `Stage.active()`."""

    def __init__(self, arm: Arm, one: Operands) -> None:
        self._arm, self._one = arm, one
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        # Events come into being when first recorded: not while the head start runs out.
        self._start.record()
        self._end.record()

    def queue(self) -> None:
        """Queue one timed call; read it with `us()` after the stream was synchronised."""
        self._start.record()
        self._arm(self._one.a, self._one.b, self._one.c)
        self._end.record()

    def us(self) -> float:
        """Microseconds of the last queued call, a launch included."""
        return float(self._start.elapsed_time(self._end)) * 1000.0


class Replay:
    """A CUDA graph of `calls` back-to-back calls of an arm, rotating over `sets`.

    Must be built and replayed inside `Stage.active()`. The arm is warmed up first, on the same
    stream, so that modules, plans and workspaces exist before capture begins.
    """

    def __init__(self, arm: Arm, sets: Sequence[Operands], calls: int) -> None:
        self.calls = calls
        self._graph = torch.cuda.CUDAGraph()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        arm(sets[0].a, sets[0].b, sets[0].c)
        # torch.cuda.graph() would collect garbage and empty the allocator each time, which costs
        # more than a screen; arms allocate nothing, so the bare capture is enough.
        self._graph.capture_begin(capture_error_mode="thread_local")
        try:
            for i in range(calls):
                one = sets[i % len(sets)]
                arm(one.a, one.b, one.c)
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self._graph.capture_end()
            raise
        self._graph.capture_end()
        self._graph.replay()

    def queue(self) -> None:
        """Queue one timed replay; read it with `us()` after the stream was synchronised."""
        self._start.record()
        self._graph.replay()
        self._end.record()

    def has_started(self) -> bool:
        """Whether the device has reached the last queued replay."""
        return bool(self._start.query())

    def us(self) -> float:
        """Microseconds per call of the last queued replay."""
        return float(self._start.elapsed_time(self._end)) * 1000.0 / self.calls

    def free(self) -> None:
        self._graph.reset()


def queue_block(replays: Sequence[Replay | Single], flushed: bool, at: Stage) -> None:
    """Queue one timed replay of each, in this order, without waiting for any."""
    torch.cuda._sleep(HEAD_START_CYCLES)
    for replay in replays:
        if flushed:
            at.flush()
        replay.queue()
