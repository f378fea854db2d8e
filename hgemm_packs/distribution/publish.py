"""Packs to a Hub: push a folder as one commit, list what is there.

Called by `packs` and the CLI on a publisher's machine. Only a pack that verifies and carries a
signature leaves it, under the fixed names and with a card made from its manifest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PackError
from ..pack.folder import BLOB_NAME, BUNDLE_NAME, CARD_NAME, SIGNATURE_NAME, Pack
from ..pack.receipts import HUB_NAME
from .card import PICTURE_NAME, TAG, card
from .remote import LIMITS, library
from .transfer import HubError

REPOSITORY = re.compile(rf"{HUB_NAME}/{HUB_NAME}")
_NAMES = (*LIMITS, BLOB_NAME)


@dataclass(frozen=True, slots=True)
class Listed:
    """A repository on the Hub with the tag of a pack. The repository is unchecked."""

    repo: str
    commit: str


def push(
    folder: str | os.PathLike[str],
    repo: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    private: bool = False,
    message: str | None = None,
    picture: bytes | None = None,
) -> str:
    """Push the pack in `folder` to the repository OWNER/NAME on the Hub, and return the commit.

    The repository is made if it does not exist. `picture` is a PNG for its card. A file of the
    earlier pack that the folder lacks is deleted in the repository: an old signature must not stay
    beside a new manifest.

    Raises ValueError for a bad `repo`, PackError for a folder that is not a pack or has no
    signature, HubError, OSError.

    Example:

        commit = packs.push("packs/sm_90a", "owner/name")
    """
    if not REPOSITORY.fullmatch(repo):
        raise ValueError(f"{repo[:200]!a} is not OWNER/NAME")
    place = Path(folder)
    pack = Pack.open_verified(place)
    pack.close()
    here = [name for name in _NAMES if (place / name).is_file()]
    for name, limit in LIMITS.items():
        if name in here and (place / name).stat().st_size > limit:
            raise PackError(
                "too_large", f"{name} has more than {limit} bytes, which no fetch accepts"
            )
    if not {BUNDLE_NAME, SIGNATURE_NAME} & set(here):
        raise PackError("unsigned", f"neither {BUNDLE_NAME} nor {SIGNATURE_NAME} is in {place}")
    hub = library()
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="hgemm_packs")
    info = pack.manifest.pack
    with _say_plainly(hub, repo):
        api.create_repo(repo, private=private, exist_ok=True)
        now = api.model_info(repo)
        there = {each.rfilename for each in now.siblings or ()}
        gone = [name for name in _NAMES if name in there and name not in here]
        page = {CARD_NAME: card(pack, repo, picture=picture is not None).encode()}
        if picture is not None:
            page[PICTURE_NAME] = picture
        elif PICTURE_NAME in there:
            gone.append(PICTURE_NAME)
        commit = api.create_commit(
            repo,
            [
                *(hub.CommitOperationAdd(name, str(place / name)) for name in here),
                *(hub.CommitOperationAdd(name, content) for name, content in page.items()),
                *(hub.CommitOperationDelete(name) for name in gone),
            ],
            commit_message=message or f"{info.name} {info.version} for {pack.manifest.arch}",
            parent_commit=now.sha,
        )
    return str(commit.oid)


def list_published(
    author: str | None = None, *, token: str | None = None, endpoint: str | None = None
) -> list[Listed]:
    """List the repositories on the Hub that have the tag of a pack, sorted by name.

    The repositories are unchecked. Raises HubError.

    Example:

        for each in packs.list_published("owner"):
            print(each.repo, each.commit)
    """
    hub = library()
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="hgemm_packs")
    with _say_plainly(hub, author or "the Hub"):
        found = list(api.list_models(filter=TAG, author=author))
    return sorted((Listed(each.id, str(each.sha)) for each in found), key=lambda each: each.repo)


@contextlib.contextmanager
def _say_plainly(hub: Any, what: str) -> Iterator[None]:
    """What huggingface_hub raises, as one line of ours."""
    import httpx2

    try:
        yield
    except hub.errors.HFValidationError as error:
        raise HubError("bad_repo", f"{what}: {error}") from None
    except hub.errors.OfflineModeIsEnabled:
        raise HubError("offline", f"{what}: HF_HUB_OFFLINE is set") from None
    except hub.errors.HfHubHTTPError as error:
        said = error.server_message or str(error).splitlines()[0]
        raise HubError("refused", f"{what}: the Hub refuses: {said}") from None
    except httpx2.HTTPError as error:
        raise HubError("unreachable", f"{what}: {type(error).__name__}: {error}") from None
