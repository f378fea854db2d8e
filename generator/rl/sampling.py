"""A model plays episodes: what it is worth on problems that it was not trained on.

Called by training, which asks after every so many steps. The random numbers are of the call alone:
what training draws next does not depend on whether anybody asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hgemm_packs.generator.rl.dialogue import TOOL, call_message, called
from hgemm_packs.generator.rl.episode import Episode

#: Episodes played at once.
AT_ONCE = 1024


def play(
    model: Any, tokenizer: Any, episodes: Sequence[Episode], seed: int, most_tokens: int
) -> None:
    """Have the model answer every episode to its end, drawn at temperature 1, an answer of
    `most_tokens` at most. An answer that calls no tool ends its episode."""
    import torch

    was_training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        for start in range(0, len(episodes), AT_ONCE):
            _play(model, tokenizer, episodes[start : start + AT_ONCE], most_tokens)
    model.train(was_training)


def _play(model: Any, tokenizer: Any, episodes: Sequence[Episode], most: int) -> None:
    said = [[{"role": "user", "content": episode.task}] for episode in episodes]
    open_ = list(range(len(episodes)))
    while open_:
        answers = _answer(model, tokenizer, [said[i] for i in open_], most)
        going_on = []
        for i, answer in zip(open_, answers, strict=True):
            action = called(answer)
            if action is None:
                continue
            reply = episodes[i].step(action)
            try:
                said[i].append(call_message(action))
            except ValueError:  # no JSON: such a dialogue cannot go on
                continue
            said[i].append({"role": "tool", "name": TOOL, "content": reply})
            if not episodes[i].over:
                going_on.append(i)
        open_ = going_on


def _answer(model: Any, tokenizer: Any, dialogues: Sequence[Sequence[Any]], most: int) -> list[str]:
    texts = [
        tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True)
        for each in dialogues
    ]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(
        model.device
    )
    made = model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=most,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    answers = made[:, inputs["input_ids"].shape[1] :]
    return [str(text) for text in tokenizer.batch_decode(answers, skip_special_tokens=False)]
