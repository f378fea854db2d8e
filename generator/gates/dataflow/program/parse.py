"""The text of PTX -> instructions, as far as NVRTC and inline assembly write it.

Called by `gate`. Knows no instruction by name: an operand is a register, a number, a symbol, an
address or a vector of them, and the rules say what an instruction makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)")
_SYMBOL = re.compile(
    r"\.(shared|global|const|local)\s+(?:\.align\s+\d+\s+)?\.[bufs](\d+)\s+([\w$]+)"
    r"(?:\[(\d*)\])?"
)
_STATEMENT = re.compile(
    r"\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[\w$]+):(?!:)"
    r"|(?P<text>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_DECLARED = re.compile(r"([%\w$]+)(?:<(\d+)>)?")
_PIECE = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]]+")
_NUMBER = re.compile(r"-?(?:0[xX][\da-fA-F]+|0[fF][\da-fA-F]{8}|0[dD][\da-fA-F]{16}|\d+)U?")
_VIRTUAL: Final = re.compile(r"%(?:(?:p|rs|r|rd|f|fd|h|hh|rq)\d+|SPL?)")


class Unreadable(ValueError):
    """Text that is no PTX of one kernel, or PTX that this parser does not know; the message says
    which."""


@dataclass(frozen=True, slots=True)
class Operand:
    """`kind`: register, special (register), number, symbol, address, vector, pair (a|b) or sink
    (_). An address has what is added up, a tensor's coordinates among it."""

    kind: str
    name: str = ""
    value: int = 0
    parts: tuple[Operand, ...] = ()

    def registers(self) -> tuple[str, ...]:
        """Every register in it."""
        if self.kind == "register":
            return (self.name,)
        if not self.parts:
            return ()
        return tuple(name for part in self.parts for name in part.registers())

    def renamed(self, name: Callable[[str], str]) -> Operand:
        """The same with other names of registers."""
        if self.kind == "register":
            found = name(self.name)
            return self if found == self.name else Operand("register", found)
        if not self.parts:
            return self
        return Operand(self.kind, self.name, self.value, tuple(x.renamed(name) for x in self.parts))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `opcode` is its dotted words; `guard` the predicate that it runs under, or
    whose opposite where it is `negated`. `before` is what a result was that is added to: wgmma
    names its sums once."""

    index: int
    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str
    negated: bool
    text: str
    before: Operand | None = None


#: Instructions whose first operand is no result.
_WITHOUT_RESULT: Final = frozenset(
    ("bra", "exit", "nanosleep", "setmaxnreg", "ret", "cp", "st", "red", "stmatrix", "prefetch")
)


def written(ins: Instruction) -> Operand | None:
    """The operand that an instruction writes, None where it writes none."""
    if not ins.operands or ins.operands[0].kind not in ("register", "vector", "pair"):
        return None
    if ins.opcode[0] in _WITHOUT_RESULT:
        return None
    if ins.opcode[0] in ("bar", "barrier") and "red" not in ins.opcode:
        return None
    return ins.operands[0]


def inputs(ins: Instruction) -> Iterator[str]:
    """Registers that an instruction reads, its guard among them; not the sums that it adds to in
    place."""
    to = written(ins)
    if ins.guard:
        yield ins.guard
    for operand in ins.operands:
        if operand is not to:
            yield from operand.registers()


@dataclass(slots=True)
class Kernel:
    """One entry: instructions in their order, labels as the index of what follows them, symbols
    with their state space and `sizes` in bytes, parameters in their order. `joins`: a reader's name
    for a register -> the names of the writes that it may read (see `webs`)."""

    symbol: str
    params: tuple[str, ...] = ()
    symbols: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    joins: dict[str, tuple[str, ...]] = field(default_factory=dict)


def parse(text: str) -> Kernel:
    """The one kernel of a PTX module. Raises Unreadable."""
    text = _COMMENT.sub("", text)
    if re.search(r"^\s*(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.func\b", text, re.MULTILINE):
        raise Unreadable("a function that is called")
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1:
        raise Unreadable(f"{len(entries)} entries, not one")
    entry = entries[0]
    kernel = Kernel(entry[1], tuple(_PARAM.findall(entry[2])))
    for found in _SYMBOL.finditer(text, 0, entry.start()):
        _declare(kernel, found)
    _read_body(kernel, text, entry.end())
    return kernel


def _declare(kernel: Kernel, symbol: re.Match[str]) -> None:
    """Note a symbol with its size in bytes, 0 where the launch decides it."""
    space, bits, name, count = symbol.groups()
    kernel.symbols[name] = space
    kernel.sizes[name] = int(bits) // 8 * (1 if count is None else int(count or 0))


def _read_body(kernel: Kernel, text: str, at: int) -> None:
    scopes: list[dict[str, str]] = [{}]
    opened = 1
    while True:
        match = _STATEMENT.match(text, at)
        if match is None:
            raise Unreadable(f"{text[at : at + 40].strip()!r}")
        at = match.end()
        if match["open"]:
            opened += 1
            scopes.append({"": str(opened)})
        elif match["close"]:
            scopes.pop()
            if not scopes:
                return
        elif match["label"]:
            kernel.labels[_scoped(match["label"], scopes, declare=True)] = len(kernel.instructions)
        elif statement := match["text"].strip():
            _read_statement(kernel, statement, scopes)


def _scoped(name: str, scopes: list[dict[str, str]], declare: bool = False) -> str:
    """A name as the innermost scope that declares it knows it: inline assembly declares the same
    names again and again."""
    if declare and len(scopes) > 1:
        scopes[-1][name] = f"{name}@{scopes[-1]['']}"
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return name


def _read_statement(kernel: Kernel, text: str, scopes: list[dict[str, str]]) -> None:
    if text.startswith("."):
        if text.startswith(".reg"):
            if len(scopes) > 1:
                for name, count in _DECLARED.findall(text.split(None, 2)[2]):
                    names = [f"{name}{i}" for i in range(int(count))] if count else [name]
                    for each in names:
                        scopes[-1][each] = f"%{each}@{scopes[-1]['']}"
        elif symbol := _SYMBOL.match(text):
            _declare(kernel, symbol)
        elif not text.startswith((".pragma", ".loc", ".file")):
            raise Unreadable(text[:60])
        return
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise Unreadable(text[:60])
    guard = _register(match[2], scopes) if match[2] else ""
    operands = tuple(_operand(piece, scopes) for piece in _pieces(match[4]))
    kernel.instructions.append(
        Instruction(
            len(kernel.instructions),
            tuple(match[3].split(".")),
            operands,
            guard,
            match[1] == "!",
            re.sub(r"\s+", " ", text),
            operands[0] if match[3].startswith("wgmma.mma_async") else None,
        )
    )


def _pieces(text: str) -> Sequence[str]:
    """Operands between commas that stand in no bracket; an address may have a name before it."""
    pieces: list[str] = []
    for piece in _PIECE.findall(text):
        if piece.strip():
            pieces.append(piece.strip())
    return pieces


def _register(name: str, scopes: list[dict[str, str]]) -> str:
    return name if _VIRTUAL.fullmatch(name) else _scoped(name, scopes)


def _operand(text: str, scopes: list[dict[str, str]]) -> Operand:
    if _VIRTUAL.fullmatch(text):
        return Operand("register", text)
    if text[0] in "[{":
        inner = text[1:-1]
        if text[0] == "[":
            inner = inner.replace("+-", "+ -").replace("+", ",")
        parts = tuple(_operand(piece, scopes) for piece in _pieces_deep(inner))
        return Operand("address" if text[0] == "[" else "vector", parts=parts)
    if "|" in text:
        return Operand("pair", parts=tuple(_operand(x.strip(), scopes) for x in text.split("|")))
    if text[0] == "!":
        return _operand(text[1:].strip(), scopes)
    if text == "_":
        return Operand("sink")
    if _NUMBER.fullmatch(text):
        return Operand("number", value=number(text))
    if text[0] == "%":
        return Operand("special", text)
    scoped = _scoped(text, scopes)
    return Operand("register" if scoped[0] == "%" else "symbol", scoped)


def _pieces_deep(text: str) -> list[str]:
    """Pieces of an address: what is in braces within it counts as its own."""
    return [
        piece.strip()
        for piece in text.replace("{", ",").replace("}", ",").split(",")
        if piece.strip()
    ]


def number(text: str) -> int:
    """The bits of a number, of a floating-point one as well."""
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("-").rstrip("U")
    if digits[:2] in ("0f", "0F", "0d", "0D"):
        return int(digits[2:], 16)
    return sign * int(digits, 0) if not re.fullmatch(r"0\d+", digits) else sign * int(digits, 8)
