"""What an abusive pack is: what was done to a good one, and how it must be refused."""

from __future__ import annotations

from dataclasses import dataclass

from tests.abuse.builder import Change

#: When the pack is opened; when what is spoiled is wanted, for the good pack's problems; never
#: but by the check of all, since none of it is used.
OPEN, USE, WHOLE = "open", "use", "whole"


@dataclass(frozen=True)
class Case:
    """`change` spoils a good pack at the path it gets; the check of all of it must fail with
    `code`. `schema` says that manifests/schema.json alone must refuse the manifest, too; `seen`
    when a process that multiplies sees it, and `used` what it sees if not `code`."""

    name: str
    code: str
    change: Change
    seen: str = OPEN
    used: str = ""
    schema: bool = False
