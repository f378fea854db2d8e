"""The text of PTX -> instructions, as far as NVRTC and inline assembly write it.

Called by `gate`. Knows no instruction by name: an operand is a register, a number, a symbol, an
address or a vector of them, and the rules say what an instruction makes of it.
"""

from __future__ import annotations

import re
import struct
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
_REGISTERS = re.compile(r"\.reg((?:\s*\.\w+)+)\s+(.*)", re.DOTALL)
_DECLARED = re.compile(r"([%\w$]+)(?:<(\d+)>)?")
_PIECE = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]]+")
_NUMBER = re.compile(r"-?(?:0[xX][\da-fA-F]+|0[fF][\da-fA-F]{8}|0[dD][\da-fA-F]{16}|\d+)U?")
_DECIMAL = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
_VIRTUAL: Final = re.compile(r"%(?:(?:p|rs|r|rd|f|fd|h|hh|rq)\d+|SPL?)")
#: Registers that nobody declares. A name that is none of these is a register of the source's own.
_SPECIAL: Final = re.compile(
    r"%(?:(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)(?:\.[xyzw])?|(?:n?smid|gridid|n?warpid)"
    r"|laneid|lanemask_(?:eq|l[te]|g[te])|cluster_n?ctarank|is_explicit_cluster|clock(?:64|_hi)?"
    r"|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|envreg\d+|\w*_?smem_\w+|current_graph_exec)"
)
_MOST: Final = 3.4028234663852886e38  # in float32
_NAMED: Final = frozenset(("WARP_SZ",))  # constants


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
    types: dict[str, str] = field(default_factory=dict)  # of registers

    def type_of(self, register: str) -> str:
        """What a register was declared as, one of the compiler's own by its letters."""
        name = register.partition("#")[0]
        return self.types.get(name) or self.types.get(name.rstrip("0123456789"), "")


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
    _check_names(kernel)
    return kernel


def _declare(kernel: Kernel, symbol: re.Match[str]) -> None:
    """Note a symbol with its size in bytes, 0 where the launch decides it."""
    space, bits, name, count = symbol.groups()
    kernel.symbols[name] = space
    kernel.sizes[name] = int(bits) // 8 * (1 if count is None else int(count or 0))


def _read_body(kernel: Kernel, text: str, at: int) -> None:
    labels = _labels(text, at)
    scopes: list[dict[str, str]] = [{}]
    opened = 1
    while True:
        match = _STATEMENT.match(text, at)
        if match is None:
            raise Unreadable(f"{text[at : at + 40].strip()!r}")
        at = match.end()
        if match["open"]:
            opened += 1
            names = {name: f"{name}@{opened}" for name in labels.get(opened, ())}
            scopes.append({"": str(opened), **names})
        elif match["close"]:
            scopes.pop()
            if not scopes:
                return
        elif match["label"]:
            kernel.labels[_scoped(match["label"], scopes)] = len(kernel.instructions)
        elif statement := match["text"].strip():
            _read_statement(kernel, statement, scopes)


def _labels(text: str, at: int) -> dict[int, list[str]]:
    """Labels of scopes within the kernel's, by the scope's number: a branch may stand before its
    label."""
    found: dict[int, list[str]] = {}
    scopes, opened = [1], 1
    while scopes:
        match = _STATEMENT.match(text, at)
        if match is None:
            return found
        at = match.end()
        if match["open"]:
            opened += 1
            scopes.append(opened)
        elif match["close"]:
            scopes.pop()
        elif match["label"] and len(scopes) > 1:
            found.setdefault(scopes[-1], []).append(match["label"])
    return found


def _scoped(name: str, scopes: list[dict[str, str]]) -> str:
    """A name as the innermost scope that declares it knows it: inline assembly declares the same
    names again and again."""
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return name


def _declare_registers(kernel: Kernel, text: str, scopes: list[dict[str, str]]) -> None:
    """Note registers that are not the compiler's own. Raises Unreadable for those of several parts,
    and for the compiler's names in a scope within the kernel's, where they are others."""
    found = _REGISTERS.fullmatch(text)
    if found is None or re.search(r"\.v[248]\b", found[1]):
        raise Unreadable(text[:60])
    kind = found[1].strip().removeprefix(".")
    for name, count in _DECLARED.findall(found[2]):
        if _VIRTUAL.fullmatch(f"{name}0" if count else name):
            if len(scopes) > 1:
                raise Unreadable(f"{name}, a name of the compiler's, in {text[:40]!r}")
            kernel.types[name] = kind
            continue
        for each in [f"{name}{i}" for i in range(int(count))] if count else [name]:
            scopes[-1][each] = f"%{each}@{scopes[-1].get('', '1')}"
            kernel.types[scopes[-1][each]] = kind


def _read_statement(kernel: Kernel, text: str, scopes: list[dict[str, str]]) -> None:
    if text.startswith("."):
        if text.startswith(".reg"):
            _declare_registers(kernel, text, scopes)
        elif symbol := _SYMBOL.match(text):
            _declare(kernel, symbol)
        elif not text.startswith((".pragma", ".loc", ".file")):
            raise Unreadable(text[:60])
        return
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise Unreadable(text[:60])
    guard = _register(match[2], scopes) if match[2] else ""
    if guard and guard[0] != "%":
        raise Unreadable(f"the name {guard}")
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
    if _DECIMAL.fullmatch(text):
        return Operand("number", value=_decimal(text))
    scoped = _scoped(text, scopes)
    if scoped != text and scoped[0] == "%":
        return Operand("register", scoped)
    if text[0] == "%":
        if not _SPECIAL.fullmatch(text):
            raise Unreadable(f"the register {text}")
        return Operand("special", text)
    return Operand("symbol", scoped)


def _check_names(kernel: Kernel) -> None:
    """Raise Unreadable for a name that is no parameter, symbol or label."""
    known = {*kernel.params, *kernel.symbols, *kernel.labels, *_NAMED}
    for ins in kernel.instructions:
        for operand in ins.operands:
            for each in (operand, *operand.parts):
                if each.kind == "symbol" and each.name not in known:
                    raise Unreadable(f"the name {each.name}")


def _pieces_deep(text: str) -> list[str]:
    """Pieces of an address: what is in braces within it counts as its own."""
    return [
        piece.strip()
        for piece in text.replace("{", ",").replace("}", ",").split(",")
        if piece.strip()
    ]


def _decimal(text: str) -> int:
    """The bits in float32 of a number with a point, of which none is zero but that of zero."""
    exact = float(text)
    (bits,) = struct.unpack("<I", struct.pack("<f", max(min(exact, _MOST), -_MOST)))
    return int(bits) or int(exact != 0)


def number(text: str) -> int:
    """The bits of a number, of a floating-point one as well."""
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("-").rstrip("U")
    if digits[:2] in ("0f", "0F", "0d", "0D"):
        return int(digits[2:], 16)
    return sign * int(digits, 0) if not re.fullmatch(r"0\d+", digits) else sign * int(digits, 8)
