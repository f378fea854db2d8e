"""The layers of a model from its config.json, as Transformers writes it.

Read by `plan` and by `tune`. Nothing of the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import PackError
from ..pack.strict_json import read_json
from . import shapes

#: What a config.json calls the type of its weights.
TORCH_DTYPES = {"float16": "f16", "bfloat16": "bf16"}


def read(path: Path, tokens: Sequence[int]) -> tuple[shapes.Shapes, str | None]:
    """The layers that follow from a config.json at these numbers of tokens, and the type that it
    says the weights have, if it is f16 or bf16. Raises PackError, which names the file, OSError."""
    try:
        config: Any = read_json(path.read_bytes())
    except PackError as error:
        raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None
    if not isinstance(config, dict):
        raise PackError("wrong_type", "not a config.json: the file holds no object", str(path))
    if isinstance(config.get("text_config"), dict):  # of a model that also sees
        config = {**config, **config["text_config"]}
    known = shapes.HEADS | shapes.LATENT | shapes.WIDTHS
    fields = {name: config[name] for name in known if type(config.get(name)) is int}
    latent = "kv_lora_rank" in fields
    heads = fields.get("num_attention_heads")
    if heads and not latent:
        fields.setdefault("num_key_value_heads", heads)
        if "hidden_size" in fields:
            fields.setdefault("head_dim", fields["hidden_size"] // heads)
    extra = ""
    if latent and "q_lora_rank" not in fields:  # one weight for q, as DeepSeek V2 Lite has it
        extra = _without_q_rank(fields)
        fields = {name: fields[name] for name in fields if name in shapes.WIDTHS}
    unwanted = shapes.HEADS - shapes.LATENT if latent else shapes.LATENT - shapes.HEADS
    text = "\n".join(f"{name} = {size}" for name, size in fields.items() if name not in unwanted)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    try:
        found = shapes.parse(
            f"m = {list(tokens)}\n[[model]]\nname = {json.dumps(name)}\n{text}\n{extra}"
        )
    except PackError as error:
        detail = f"{error.detail}: fields of its layers are missing"
        raise PackError(error.code, detail, str(path)) from None
    torch_dtype = config.get("torch_dtype", config.get("dtype"))
    return found, TORCH_DTYPES.get(str(torch_dtype))


def _without_q_rank(fields: dict[str, int]) -> str:
    """The layers of latent attention whose q comes from the hidden state at once, as TOML."""
    try:
        heads, rank, hidden = (
            fields[name] for name in ("num_attention_heads", "kv_lora_rank", "hidden_size")
        )
        nope, rope, v = (fields[f"{n}_head_dim"] for n in ("qk_nope", "qk_rope", "v"))
    except KeyError:
        return ""
    layers = {
        "q": (heads * (nope + rope), hidden),
        "kv_a": (rank + rope, hidden),
        "kv_b": (heads * (nope + v), rank),
        "o": (hidden, heads * v),
    }
    return "\n".join(
        f'[[model.layer]]\nname = "{name}"\nn = {n}\nk = {k}' for name, (n, k) in layers.items()
    )
