"""How a dialogue of turns is written for a model: one chat template for every model trained here.

An answer is a call of the environment's one tool, `propose`; trl finds it by RESPONSE. The words
are those of ChatML, which most small models know. Rules of actions are not written: the archive
teaches them.
"""

from __future__ import annotations

import json
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"
CALL, CALLED = "<tool_call>", "</tool_call>"
SPECIAL = (START, END, CALL, CALLED)
TOOL = "propose"

#: Jinja, as transformers has chat templates. Earlier messages are written alike whatever follows.
TEMPLATE = (
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') }}"
    "{%- for call in m['tool_calls'] or [] %}"
    "{%- set f = call['function'] if 'function' in call else call %}"
    "{{- '<tool_call>' + {'name': f['name'], 'arguments': f['arguments']} | tojson(separators="
    "(',', ':')) + '</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
#: How transformers reads an answer back.
RESPONSE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": f"{START}assistant\n",
    "fields": {
        "tool_calls": {
            "open": CALL,
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def use_template(tokenizer: Any) -> Any:
    """Have a tokenizer of transformers write and read dialogues this way; returns it."""
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = RESPONSE
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def call_text(action: str) -> str:
    """The answer that proposes an action, as the template writes it."""
    call = {"name": TOOL, "arguments": json.loads(action)}
    return f"{CALL}{json.dumps(call, separators=(',', ':'))}{CALLED}{END}"


def call_message(action: str) -> dict[str, Any]:
    """The same as a message."""
    function = {"name": TOOL, "arguments": json.loads(action)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }


def called(text: str) -> str | None:
    """The action of an answer; None where it calls no tool. What is not JSON is an action too,
    which nobody can read.

    >>> called(call_text('{"family":"sm90_direct","genome":{"mi":1}}'))
    '{"family":"sm90_direct","genome":{"mi":1}}'
    """
    start = text.find(CALL)
    if start < 0:
        return None
    inside = text[start + len(CALL) :].split(CALLED)[0]
    try:
        call = json.loads(inside)
    except (ValueError, RecursionError):
        return inside
    if not isinstance(call, dict) or call.get("name") != TOOL:
        return None
    return json.dumps(call.get("arguments"), separators=(",", ":"))
