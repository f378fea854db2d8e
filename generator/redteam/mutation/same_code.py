"""Whether two cubins run the same instructions, whatever else lies in them.

Called by `judge` and `facts`. A constant that no instruction reads is in a cubin as long as the
source names it, and its name, its place and what points to it go with it.
"""

from __future__ import annotations

import io
from typing import Final

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from hgemm_packs.generator.compile import sass
from hgemm_packs.generator.compile.cubin import read_cubin

PARAMETERS: Final = "0x0"  # the constant bank of what a launch is given


def run_the_same(one: bytes, other: bytes) -> bool:
    """Whether two cubins are the same byte by byte, or have the same instructions, registers,
    shared memory and parameters and read no memory that a cubin brings."""
    if one == other:
        return True
    read = [read_cubin(each) for each in (one, other)]
    return (
        _instructions(one) == _instructions(other)
        and read[0].entries == read[1].entries
        and not any(each.code_relocations for each in read)
        and set(sass.census(one).banks) <= {PARAMETERS}
    )


def _instructions(cubin: bytes) -> dict[str, bytes]:
    """The bytes of each function, by the name of its section."""
    return {
        section.name: section.data()
        for section in ELFFile(io.BytesIO(cubin)).iter_sections()
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
    }
