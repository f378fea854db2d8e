"""Kernels that were never compiled, for devices that never run them.

Made by the simulation, the replay and tests. A fake kernel has the fields that its genome gives it
and, in place of a cubin, the header of one and a few bytes.
"""

from __future__ import annotations

import hashlib
import struct

from hgemm_packs.generator.core.spec import Choice, CompiledKernel
from hgemm_packs.generator.families import family

REGISTERS = 128
# ELF of 64 bits and ABI 8; linked, for a GPU; no sections; flags of the architecture.
_HEADER = struct.Struct("<4s5B7xHHI24xI12x")


def fake_cubin(code: bytes, arch: str = "sm_90a") -> bytes:
    """`code` behind the header that ptxas 13.0 writes: all of a cubin that opening a pack sees."""
    flags = 0x6000004 | int(arch.removeprefix("sm_").rstrip("af")) << 8
    return _HEADER.pack(b"\x7fELF", 2, 1, 1, 0x41, 8, 2, 190, 1, flags) + code


def fake_kernel(choice: Choice) -> CompiledKernel:
    """What building the choice would give, but for the machine code; the id is the sha256 of the
    bytes, as it is for a real one. Raises InvalidGenome."""
    cubin = fake_cubin(choice.key.encode())
    made = {"id": hashlib.sha256(cubin).hexdigest(), "regs": REGISTERS}
    return CompiledKernel({**family(choice.family).fields(choice.genome), **made}, cubin)


def choice_of(kernel: CompiledKernel) -> Choice:
    """The choice that a kernel, built or fake, was made from. Raises KeyError for one without a
    genome."""
    return Choice.of(kernel.fields["family"], dict(kernel.fields["genome"]))
