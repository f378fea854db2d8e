"""What a pack is called that somebody measured on a machine of theirs: never as the project's are.

Asked by whoever writes such a pack. A name says nothing about trust; it is for a reader of `list`.
"""

from __future__ import annotations

import platform
import re

from ..errors import PackError
from ..pack.manifest_fields import NAME

#: How the names of the project's own packs begin.
OFFICIAL = "hgemm-packs-"


def of_machine(gpu: str) -> str:
    """After this machine and a GPU's name, as "local-node7-NVIDIA-H200"."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"local-{platform.node()}-{gpu}")
    return words[:128].strip("-")


def of_project(arch: str) -> str:
    """The project's own, for what is made of its committed measurements."""
    return OFFICIAL + arch.replace("_", "")


def check(name: str) -> str:
    """The name that a user wants for a pack. Raises ValueError for one that no pack may have, or
    that is like the project's."""
    try:
        NAME(name)
    except PackError as error:
        raise ValueError(f"{name!r} cannot be a pack's name: {error.detail}") from None
    if name.lower().startswith(OFFICIAL):
        raise ValueError(f"{name!r}: names that begin with {OFFICIAL!r} are the project's own")
    return name
