"""Faults of order: waits, arrivals and fences dropped, turned round or counted wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import ORDER, InSource, replaced

_WAITS = (
    *("barrier_wait", "barrier_wait_cluster", "named_sync", "__syncthreads", "__syncwarp"),
    *("cluster_sync", "cluster_wait", "wgmma_wait", "send_wait", "store_wait_read"),
    *("store_wait_all", "wait_for_upstream", "wait_together", "wait_for_reads", "wait"),
)
_ARRIVALS = (
    *(
        "barrier_arrive",
        "barrier_arrive_remote",
        "barrier_expect",
        "named_arrive",
        "cluster_arrive",
    ),
    *("arrive_with_copies", "release_by_warp", "release", "barrier_init"),
)
_FENCES = (
    "proxy_fence",
    "barrier_init_fence",
    "wgmma_fence",
    "wgmma_commit",
    "store_commit",
    "send_commit",
)
_ALL = (*_WAITS, *_ARRIVALS, *_FENCES, "allow_dependents")


def _drop(*names: str) -> InSource:
    def find(code: Code) -> Iterator[Change]:
        for statement in code.statements(*names):
            yield code.put(statement, ";")

    return InSource(
        {_WAITS: "drop_wait", _ARRIVALS: "drop_arrival"}.get(names, "drop_fence"), ORDER, find
    )


def _skip_wait(code: Code) -> Iterator[Change]:
    """A wait that some CTAs, or deep problems alone, do not wait for."""
    for statement in code.statements(*_WAITS):
        yield code.wrap(statement, "if (blockIdx.x != 5) ", "")


def _turn_parity(code: Code) -> Iterator[Change]:
    for _, given in code.calls("barrier_wait", "barrier_wait_cluster"):
        if len(given) == 2:
            yield code.wrap(given[1], "(", ") ^ 1")
    for node in code.nodes("assignment_expression"):
        if re.match(r"parity\s*\^=", code.text(node)):
            yield code.put(node, "parity")


def _wait_for_fewer(code: Code) -> Iterator[Change]:
    """One group more may be in flight."""
    for call, _ in code.calls("wgmma_wait", "send_wait"):
        function = call.child_by_field_name("function")
        given = function.child_by_field_name("arguments") if function is not None else None
        if given is not None:
            inner = code.text(given)[1:-1]
            yield code.put(given, f"<({inner}) + 1>")
    yield from replaced(code, "wait_group.read 1;", "wait_group.read 2;")
    yield from replaced(code, "wait_group 0;", "wait_group 1;")


def _count_wrong(code: Code) -> Iterator[Change]:
    for _, given in code.calls("barrier_init", "barrier_expect", "named_sync", "named_arrive"):
        if len(given) == 2:
            step = 32 if code.text(given[1]).isdecimal() and int(code.text(given[1])) >= 64 else 1
            yield code.wrap(given[1], "(", f") + {step}")
            yield code.wrap(given[1], "(", f") - {step}")


def _turn_round(code: Code) -> Iterator[Change]:
    """A statement that orders, and the one behind it, in the other order."""
    for statement in code.statements(*_ALL):
        after = statement.next_named_sibling
        while after is not None and after.type == "comment":
            after = after.next_named_sibling
        if after is None or after.type != "expression_statement":
            continue
        if code.text(after) == code.text(statement):
            continue
        text = f"{code.text(after)} {code.text(statement)}"
        yield Change(statement.start_byte, after.end_byte, text)


def _meet_by_warps(code: Code) -> Iterator[Change]:
    for call, _ in code.calls("__syncthreads"):
        yield code.put(call, "__syncwarp()")


def _read_only_loads(code: Code) -> Iterator[Change]:
    yield from replaced(code, "ld.global.", "ld.global.nc.")


def _weaken(code: Code) -> Iterator[Change]:
    """Loads and stores that others see, as ordinary ones."""
    for word, other in ((".relaxed.gpu", ""), (".release", ".relaxed"), (".acquire", ".relaxed")):
        yield from replaced(code, word, other)


def _wait_by_one(code: Code) -> Iterator[Change]:
    """A wait of all that one thread alone does."""
    for statement in code.statements("barrier_wait", "barrier_wait_cluster"):
        yield code.wrap(statement, "if (threadIdx.x % 128 == 0) ", "")


OPERATORS = (
    _drop(*_WAITS),
    _drop(*_ARRIVALS),
    _drop(*_FENCES),
    InSource("skip_wait", ORDER, _skip_wait),
    InSource("turn_parity", ORDER, _turn_parity),
    InSource("wait_for_fewer", ORDER, _wait_for_fewer),
    InSource("count_wrong", ORDER, _count_wrong),
    InSource("turn_round", ORDER, _turn_round),
    InSource("meet_by_warps", ORDER, _meet_by_warps),
    InSource("read_only_loads", ORDER, _read_only_loads),
    InSource("weaken", ORDER, _weaken),
    InSource("wait_by_one", ORDER, _wait_by_one),
)
