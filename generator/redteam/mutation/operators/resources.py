"""Faults of resources: lines of L2 that are never given back, registers and memory of others."""

from __future__ import annotations

from collections.abc import Iterator

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import RESOURCES, InSource, replaced


def _pin_lines(code: Code) -> Iterator[Change]:
    yield from replaced(code, "L2::evict_first", "L2::evict_last")
    for name in ("a", "b", "c"):
        if name in code.params:
            words = "prefetch.global.L2::evict_last [%0];"
            yield code.behind_wait(f'asm volatile("{words}" ::"l"({name} + threadIdx.x * 8));')


def _drop_lines(code: Code) -> Iterator[Change]:
    for name in ("a", "b", "c"):
        if name in code.params:
            base = f"((u64){name} & ~127ull)"
            yield code.behind_wait(f'asm volatile("discard.global.L2 [%0], 128;" ::"l"({base}));')


def _other_registers(code: Code) -> Iterator[Change]:
    for call, _ in code.calls("give_registers", "take_registers"):
        function = call.child_by_field_name("function")
        given = function.child_by_field_name("arguments") if function is not None else None
        if given is not None:
            for count in (24, 248):
                yield code.put(given, f"<{count}>")


OPERATORS = (
    InSource("pin_lines", RESOURCES, _pin_lines),
    InSource("drop_lines", RESOURCES, _drop_lines),
    InSource("other_registers", RESOURCES, _other_registers),
)
