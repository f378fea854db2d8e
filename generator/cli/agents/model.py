"""Options of verbs that may ask a language model, and the chat that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError
from hgemm_packs.generator.llm.budget import Budget, Prices
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.files import Cache, Player, Recorder
from hgemm_packs.generator.llm.key import find_key
from hgemm_packs.generator.llm.server import Server

ServerOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="An OpenAI-compatible server, as http://127.0.0.1:8000/v1."),
]
ModelOption = Annotated[str | None, typer.Option(help="The model's name at the server.")]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The server's key. Default: OPENAI_API_KEY, where it is set."
    ),
]
TokensOption = Annotated[
    int | None, typer.Option(min=1, help="Tokens, prompts included, that may be spent.")
]
MoneyOption = Annotated[
    float | None, typer.Option(min=0.0, help="Money that may be spent, by --price.")
]
PriceOption = Annotated[
    str, typer.Option(metavar="IN,OUT", help="Price of a million tokens read, and written.")
]
RecordOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the whole conversation here.")
]
ReplayOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Answers of a recorded conversation, in a server's place."),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say."""

    server: str | None = None
    model: str | None = None
    key_file: Path | None = None
    tokens: int | None = None
    money: float | None = None
    price: str = "0,0"
    record: Path | None = None
    replay: Path | None = None


def open_chat(asked: Asked, folder: Path, *, dry: bool = False) -> Chat | None:
    """The chat of a run in a folder, which holds its cache and its ledger; None where no model is
    named. A `dry` one asks nobody. Raises UserError."""
    if asked.server is None and asked.replay is None:
        given = (asked.model, asked.tokens, asked.money, asked.record, asked.key_file)
        if any(each is not None for each in given):
            raise UserError("name a --server, or a conversation to --replay")
        return None
    if asked.server is not None and asked.replay is not None:
        raise UserError("--replay takes the place of --server")
    if asked.model is None:
        raise UserError("name the --model")
    prices = read_prices(asked.price)
    if asked.money is not None and not prices.prompt and not prices.completion:
        raise UserError("--money wants --price")
    try:
        if dry:
            return Chat(None, asked.model)
        if asked.replay is not None:
            return Chat(None, asked.model, player=Player(asked.replay))
        assert asked.server is not None
        key = find_key(asked.key_file)
        return Chat(
            Server(asked.server, key),
            asked.model,
            key,
            Budget(
                tokens=asked.tokens,
                money=asked.money,
                prices=prices,
                ledger=folder / "spent.jsonl",
            ),
            Cache(folder / "answers"),
            Recorder(asked.record) if asked.record else None,
        )
    except ModuleNotFoundError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def read_prices(text: str) -> Prices:
    """What --price says. Raises UserError."""
    try:
        prompt, completion = (float(word) for word in text.split(","))
    except ValueError:
        raise UserError(f"--price is two numbers, as 0.5,2; not {text!r}") from None
    if not (0 <= prompt < float("inf") and 0 <= completion < float("inf")):
        raise UserError("--price is of no less than nothing")
    return Prices(prompt, completion)
