"""What the ELF of a cubin says of itself: architecture, entries, parameters, registers, memory.

Read by the binary gate and for the facts of a build. Attribute and flag numbers are those that
ptxas 13.0 writes (ELF ABI 8). Never looks at instructions; that is `sass`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

ABI_VERSION = 8
EM_CUDA = "EM_CUDA"
#: ptxas counts the first KiB of shared memory, which is the system's, into the section of an entry.
RESERVED_SMEM_BYTES = 1024

# .nv.info records: format, attribute, then two bytes or a length and that many.
_SIZED = 4
_FRAME, _STACK, _REGISTERS = 0x11, 0x12, 0x2F
_MAX_THREADS, _EXACT_THREADS, _PARAM, _PARAM_BANK = 0x05, 0x10, 0x17, 0x0A


class CubinError(ValueError):
    """Bytes that are no cubin as the pinned compiler writes them."""


@dataclass(frozen=True, slots=True)
class CubinEntry:
    """One kernel of a cubin; `threads` is the most that its launch bounds allow, None without."""

    name: str
    params: tuple[int, ...]  # bytes of each, in order
    param_base: int  # where in constant bank 0 they begin; below are the driver's values
    registers: int
    frame_bytes: int  # local memory a thread: stack frame and spills
    static_smem_bytes: int
    threads: int | None


@dataclass(frozen=True, slots=True)
class Cubin:
    """A linked image. `variables` are in global memory, constants included; `externals` are
    undefined symbols; `sections` are the names of all."""

    sm: int
    entries: tuple[CubinEntry, ...]
    functions: tuple[str, ...]  # with code of their own, entries included
    variables: tuple[str, ...]
    externals: tuple[str, ...]
    sections: tuple[str, ...]
    code_relocations: int


def read_cubin(data: bytes) -> Cubin:
    """Parse a cubin. Raises CubinError when it is none, or of another ELF ABI."""
    try:
        return _read(ELFFile(io.BytesIO(data)))
    except (ELFError, struct.error, AttributeError, UnicodeDecodeError) as error:
        raise CubinError(f"not a readable ELF: {error}") from error


def _read(elf: ELFFile) -> Cubin:
    head = elf.header
    if head["e_machine"] != EM_CUDA:
        raise CubinError(f"machine {head['e_machine']}, not a GPU's")
    if head["e_ident"]["EI_ABIVERSION"] != ABI_VERSION:
        raise CubinError(f"ELF ABI {head['e_ident']['EI_ABIVERSION']}, not {ABI_VERSION}")
    sections = [section for section in elf.iter_sections() if section.name]
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        raise CubinError("no symbols")
    symbols = [s for s in table.iter_symbols() if s.name]
    named = {section.name: section for section in sections}
    names = [s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC" and _is_defined(s)]
    entries = [name for name in names if f".nv.info.{name}" in named]
    common = named.get(".nv.info")
    by_symbol = _by_symbol(common.data() if common else b"", table)
    return Cubin(
        sm=head["e_flags"] >> 8 & 0xFF,
        entries=tuple(_entry(name, named, by_symbol.get(name, {})) for name in entries),
        functions=tuple(names),
        variables=tuple(
            s.name
            for s in symbols
            if s["st_info"]["type"] == "STT_OBJECT" and _is_defined(s) and _is_global(elf, s)
        ),
        externals=tuple(
            s.name for s in symbols if not _is_defined(s) and s["st_info"]["bind"] != "STB_WEAK"
        ),
        sections=tuple(section.name for section in sections),
        code_relocations=sum(
            section.num_relocations()
            for section in sections
            if isinstance(section, RelocationSection) and ".text." in section.name
        ),
    )


def _is_defined(symbol: Any) -> bool:
    return bool(symbol["st_shndx"] != "SHN_UNDEF")


def _is_global(elf: ELFFile, symbol: Any) -> bool:
    index = symbol["st_shndx"]
    return not isinstance(index, int) or ".nv.constant" not in elf.get_section(index).name


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of each record of an .nv.info section."""
    at = 0
    while at + 4 <= len(data):
        sized, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if sized == _SIZED:
            yield attribute, data[at : at + value]
            at += value
        else:
            yield attribute, struct.pack("<H", value)


def _by_symbol(data: bytes, table: SymbolTableSection) -> dict[str, dict[int, int]]:
    """name of a function -> attribute -> value, of the records that carry (symbol, value)."""
    found: dict[str, dict[int, int]] = {}
    for attribute, value in _records(data):
        if len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            found.setdefault(table.get_symbol(symbol).name, {})[attribute] = number
    return found


def _entry(name: str, named: dict[str, Any], numbers: dict[int, int]) -> CubinEntry:
    params: dict[int, int] = {}
    threads: int | None = None
    base = 0
    for attribute, value in _records(named[f".nv.info.{name}"].data()):
        if attribute == _PARAM:
            ordinal, packed = struct.unpack_from("<4xH2xI", value)
            params[ordinal] = packed >> 18
        elif attribute == _PARAM_BANK:
            base = struct.unpack_from("<4xH", value)[0]
        elif attribute in (_MAX_THREADS, _EXACT_THREADS):
            x, y, z = struct.unpack("<III", value)
            threads = x * y * z
    shared = named.get(f".nv.shared.{name}")
    smem = shared["sh_size"] - RESERVED_SMEM_BYTES if shared else 0
    return CubinEntry(
        name=name,
        params=tuple(size for _, size in sorted(params.items())),
        param_base=base,
        registers=numbers.get(_REGISTERS, 0),
        frame_bytes=max(numbers.get(_FRAME, 0), numbers.get(_STACK, 0)),
        static_smem_bytes=smem,
        threads=threads,
    )
