"""One request to an OpenAI-compatible server, by the package `openai`, and an answer or a failure.

Called by `Chat`, which repeats what may go better the next time. A body is read here, field by
field: a server is a stranger, and what it sends may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.words import Answer, ChatError, Reply, Request, Usage

MISSING = "openai is missing: pip install 'hgemm-packs[llm]'"
#: Bytes of one answer that are believed; samples of thousands of tokens are far smaller.
MOST_BYTES = 8 << 20
OTHER_ROOM = "max_completion_tokens"
FORMAT = "response_format"
#: Seconds that an answer may take: a small model on a busy CPU has taken three minutes, and whoever
#: gives up and asks again waits behind the answer that nobody reads.
PATIENCE_S = 600.0
#: Statuses after which the same request may be answered.
AGAIN = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `again` says that the next try may have one, `wait_s` what the server asked for,
    `unheard` that the server may have worked, and billed, all the same."""

    words: str
    again: bool
    wait_s: float = 0.0
    unheard: bool = False


class Transport(Protocol):
    """Who carries a request to a model. Tests and scripted models are transports too."""

    def send(self, request: Request) -> Answer | Failure:
        """One try. Raises nothing for what a server does."""
        ...


class Server:
    """An OpenAI-compatible server, such as "http://127.0.0.1:8000/v1". Raises ModuleNotFoundError
    with the extra's name, ValueError for an address that is none or holds a password."""

    def __init__(self, base_url: str, key: Key, *, timeout_s: float = PATIENCE_S) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the server's address begins with http:// or https://")
        if parts.username or parts.password or parts.query:
            raise ValueError("the server's address holds no password: OPENAI_API_KEY has the key")
        try:
            import openai
        except ModuleNotFoundError:
            raise ModuleNotFoundError(MISSING, name="openai") from None
        self._openai = openai
        self._room = "max_tokens"  # some models know it by another name
        self._schemas = "json_schema"  # some servers know those of "json_object" alone
        self._key = key
        self._client = openai.OpenAI(
            base_url=base_url, api_key=key.reveal(), timeout=timeout_s, max_retries=0
        )

    def send(self, request: Request) -> Answer | Failure:
        """One try; see Transport."""
        arguments: dict[str, Any] = {
            "model": request.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "n": request.n,
            "temperature": request.temperature,
            "seed": request.seed,
            self._room: request.max_tokens,
        }
        if request.schema is not None:
            arguments[FORMAT] = _format(self._schemas, dict(request.schema))
        try:
            raw = self._client.chat.completions.with_raw_response.create(**arguments)
            return read(raw.http_response.content, self._key)
        except self._openai.APIStatusError as error:
            text = self._key.hide(error.response.text)
            status, body = error.status_code, text[:200]
            # What was sent counts: another thread may have learnt meanwhile. The status does not:
            # llama-cpp-python has 500 for a request that it cannot read.
            sent = arguments.get(FORMAT, {})
            if sent.get("type") == "json_schema" and FORMAT in text:
                self._schemas = "json_object"
                return Failure("the server wants another form of schemas", again=True)
            if status == 400 and OTHER_ROOM in body and OTHER_ROOM not in arguments:
                self._room = OTHER_ROOM
                return Failure("the server wants another name of max_tokens", again=True)
            return Failure(
                f"the server answered {status}: {' '.join(body.split())}",
                again=status in AGAIN or status >= 500,
                wait_s=_asked_to_wait(error.response.headers),
            )
        except self._openai.APITimeoutError:
            return Failure("the server did not answer in time", again=True, unheard=True)
        except self._openai.APIConnectionError as error:
            cause = type(error.__cause__ or error).__name__
            refused = "Connect" in cause
            return Failure(f"no connection ({cause})", again=True, unheard=not refused)
        except (self._openai.OpenAIError, ValueError) as error:
            # The error's own words may quote the header.
            return Failure(f"no request could be made ({type(error).__name__})", again=False)


def _format(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as the protocol has it, or as servers had it before the protocol did."""
    if kind == "json_object":
        return {"type": kind, "schema": schema}
    return {"type": kind, kind: {"name": "answer", "schema": schema, "strict": True}}


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    """Seconds of Retry-After, where that is a number; dates are rare and not read."""
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def read(body: bytes, key: Key) -> Answer | Failure:
    """The answer in the body of a chat completion, without the key that it may repeat. What is
    missing or of another kind is a failure that may be tried again."""
    try:
        if len(body) > MOST_BYTES:
            raise ChatError(f"{len(body)} bytes")
        document = json.loads(key.hide(body.decode()))
        replies = tuple(_reply(choice) for choice in document["choices"])
        if not replies:
            raise ChatError("no choices")
    except (ChatError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        words = f"{type(error).__name__}: {str(error)[:80]}"
        return Failure(f"the answer is no chat completion ({key.hide(words)})", True, unheard=True)
    return Answer(replies, _usage(document.get("usage")))


def _reply(choice: Mapping[str, Any]) -> Reply:
    message = choice["message"]
    text, refusal = message.get("content"), message.get("refusal")
    for value in (text, refusal):
        if value is not None and not isinstance(value, str):
            raise TypeError("content that is no text")
    return Reply(text or "", str(choice.get("finish_reason") or "stop"), refusal or "")


def _usage(document: Any) -> Usage:
    """What the server says; `assumed` where it says nothing that is a count."""
    counts = document if isinstance(document, dict) else {}
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(prompt) is int and type(completion) is int and min(prompt, completion) >= 0:
        return Usage(prompt, completion)
    return Usage(assumed=True)
