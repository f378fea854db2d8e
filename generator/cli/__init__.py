"""`hgemm-packs generate`: options, progress and exit codes. The work is in the modules it names.

Called by the command line of the runtime, which knows this package by name only. Exit codes: 0
done, 1 a check failed or nothing was won, 2 something asked for cannot be done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hgemm_packs.cli.console import NO_TORCH, UserError
from hgemm_packs.errors import PackError
from hgemm_packs.generator.campaigns.campaign import Hopeless
from hgemm_packs.generator.cli import (
    agents,
    checks,
    fit,
    follow,
    measure,
    merge,
    refine,
    remeasure,
    results,
    resume,
    rows,
    search,
    tables,
)
from hgemm_packs.generator.cli.app import app
from hgemm_packs.generator.compile.compiler import BuildError
from hgemm_packs.generator.compile.sass import SassError
from hgemm_packs.generator.gates.isolation import IsolationError
from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.store.run_folder import StoreError
from hgemm_packs.generator.workers.seats import DevicesLost, SeatLost

#: A wrong request, or a machine that lacks something: a line to the user, not a trace.
MENDABLE = (
    *(
        BuildError,
        DevicesLost,
        Hopeless,
        IsolationError,
        LockHeld,
        PackError,
        SassError,
        SeatLost,
        StoreError,
    ),
    *(sqlite3.OperationalError, ValueError),  # a full disk, among others
)

__all__ = [
    "agents",
    "app",
    "checks",
    "fit",
    "follow",
    "measure",
    "merge",
    "refine",
    "remeasure",
    "results",
    "resume",
    "rows",
    "run",
    "search",
    "tables",
]


def run(arguments: Sequence[str]) -> None:
    """Run the command line below `hgemm-packs generate`, then leave the process. Raises UserError
    for what the caller can mend."""
    try:
        app(list(arguments), prog_name="hgemm-packs generate")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(NO_TORCH) from error
    except MENDABLE as error:
        raise UserError(str(error)) from error
