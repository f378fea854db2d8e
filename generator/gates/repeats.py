"""The part of the numeric gate that launches again: other operands at the same addresses, a
captured launch replayed, two launches at once.

Called by `numeric`. What a kernel keeps from an earlier launch, in C or anywhere else, is wrong
here. On a CPU a replay is a second call and streams are one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from hgemm_packs.generator.gates.checker import Checker, size, storage_bits

MANY_ELEMENTS, MANY_LAUNCHES = 4096, 6


def _operands(run: Checker, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    e = run.entry
    m, n = run.shape(2 * e.grid.tile_m + 5, 2 * e.grid.tile_n + 8)
    k = size(e.k, k)
    return run.store(run.normal(m, k), run.normal(k, n))


def _somewhere(run: Checker, matrix: torch.Tensor) -> tuple[int, int]:
    i, j = (
        int(torch.randint(size, (1,), generator=run.generator, device=run.device))
        for size in matrix.shape
    )
    return i, j


def check_rewritten(run: Checker) -> None:
    """The same addresses and sizes with one element changed, then with all, then with another
    addend: C and the workspace start as the launch before left them."""
    a, b = _operands(run, 136)
    place = run.place(a, b)
    run.product("rewritten", a, b, into=place)
    for matrix in (a, b):
        matrix[_somewhere(run, matrix)] = 24.0
        run.keep(a, b)
        run.product("rewritten", a, b, into=place)
    for matrix in (a, b):
        matrix.copy_(run.normal(*matrix.shape))
    run.keep(a, b)
    run.product("rewritten", a, b, into=place)
    if run.adds:
        run.rewrite_addend()
        run.keep(a, b)
        run.product("rewritten addend", a, b, into=place)


def capture_work(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """What does all of `work` again each time it is called; nothing is done before."""
    if device.type != "cuda":
        return work
    graph = torch.cuda.CUDAGraph()
    stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return graph.replay


def check_replay(run: Checker) -> None:
    """Two captured launches on the same operands, which a plain copy rewrites between them: no
    other kernel runs, so that whatever the first left anywhere is still there for the second."""
    a, b = _operands(run, 264)
    now = [storage_bits(matrix) for matrix in (a, b)]
    for matrix in (a, b):
        matrix.copy_(run.normal(*matrix.shape))
    later = [bits.clone() for bits in now]
    exact_later = run.reference(a, b)
    first, second = run.place(a, b), run.place(a, b)
    run.prepare(first[1])

    def work() -> None:
        run.queue(a, b, first[1])
        for bits, new in zip(now, later, strict=True):
            bits.copy_(new)
        run.queue(a, b, second[1])

    replay = capture_work(work, run.device)
    run.held.append(replay)
    run.keep()  # the addend, which is not rewritten
    run.inputs += zip(now, later, strict=True)
    for _ in range(2):
        for matrix in (a, b):
            matrix.copy_(run.normal(*matrix.shape))
        exact = run.reference(a, b)
        replay()
        run.judge("replay", a, b, first, *exact)
        run.judge("replay", a, b, second, *exact_later)


def check_steady(run: Checker) -> None:
    """Many elements, many launches: sums whose order is left to chance show in the last bit."""
    e, tiles = run.entry, 4
    while tiles * tiles * e.grid.tile_m * e.grid.tile_n < MANY_ELEMENTS:
        tiles += 1
    m, n = run.shape(tiles * e.grid.tile_m, tiles * e.grid.tile_n)
    k = size(e.k, 1032)
    run.product("steady", *run.store(run.normal(m, k), run.normal(k, n)), runs=MANY_LAUNCHES)


def check_streams(run: Checker) -> None:
    """Two products at once do not meet."""
    jobs = []
    for k in (1032, 1544):
        a, b = _operands(run, k)
        jobs.append((a, b, run.place(a, b)))
    run.keep(*(matrix for a, b, _ in jobs for matrix in (a, b)))
    on_gpu = run.device.type == "cuda"
    launches = [run.launch, run.twin()]
    for _, _, (_, c) in jobs:
        run.prepare(c)
    streams = [torch.cuda.Stream(run.device) if on_gpu else None for _ in jobs]
    for stream in streams:
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(run.device))
    for _ in range(3):
        for stream, launch, (a, b, place) in zip(streams, launches, jobs, strict=True):
            with torch.cuda.stream(stream) if on_gpu else contextlib.nullcontext():
                run.queue_by(launch, a, b, place[1])
    for stream in streams:
        if stream is not None:
            torch.cuda.current_stream(run.device).wait_stream(stream)
    for a, b, place in jobs:
        run.judge("streams", a, b, place, *run.reference(a, b))
