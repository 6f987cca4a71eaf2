"""Rows of a dataset -> token inputs: the two rows that are traced, and the held-out ones that everything is checked on.

What is captured decides what the graph is: a batch of one freezes the batch axis, a mask of ones is dropped from the
graph, two axes of one size may be tied together. So a capture set is made by rule, and refused where it breaks one.
All arrays are int64 of shape (batch, length).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np

from hub_exporter.catalogue import axes_of
from hub_exporter.errors import DatasetError
from hub_exporter.records import CaptureSpec, Row

USUAL = 8
"""Tokens of a prompt that is preferred: both of its pieces have four, and some graphs take no fewer."""

Inputs = dict[str, np.ndarray]
Side = Literal["left", "right"]

CAPTURE_LIMIT = 33
"""Tokens of a captured row: more costs time and shows the trace nothing new."""
LONG = 97
"""Tokens of the long held-out case: beyond every captured length, and beyond the 64 at which the engine caps an axis of
an ExecuTorch graph that has no bound."""


def capture_limit(config: Any) -> int:
    """Tokens of a captured row at most.

    A sliding window must not be full: the trace would then see a cache that was cut to it, of another length than the
    text, and the graph would demand one.
    """
    window = getattr(config.get_text_config(), "sliding_window", None)
    return max(min(CAPTURE_LIMIT, window - 2), 5) if window else CAPTURE_LIMIT


def capture_inputs(tokenizer: Any, rows: Sequence[Row], side: Side, limit: int = CAPTURE_LIMIT) -> Inputs:
    """The padded batch that is traced: two rows of different length, the longer one of an odd number of tokens.

    Raises DatasetError when the rows cannot make such a batch.
    """
    by_length = sorted(rows, key=lambda row: len(_encode(tokenizer, row, limit)["input_ids"]))
    short, long = _encode(tokenizer, by_length[0], limit), _encode(tokenizer, by_length[-1], limit)
    if len(long["input_ids"]) % 2 == 0:
        long = _encode(tokenizer, by_length[-1], len(long["input_ids"]) - 1)
    if len(short["input_ids"]) >= len(long["input_ids"]):
        short = _encode(tokenizer, by_length[0], max(len(long["input_ids"]) - 2, 3))
    inputs = _pad(tokenizer, [short, long], side)
    problem = broken_rule(inputs, side)
    if problem:
        raise DatasetError(
            f"The capture rows {', '.join(f'`{row.id}`' for row in rows)} would mislead the trace: {problem}",
            hint="Give rows of at least five tokens and of different lengths with `--dataset`",
        )
    return inputs


def broken_rule(inputs: Inputs, side: Side) -> str | None:
    """Which rule of a capture set `inputs` breaks, in words; `None` if it keeps them all."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    batch, length = ids.shape
    if 1 in ids.shape:
        return f"an axis of size 1 becomes a constant (batch {batch}, length {length})"
    if batch == length:
        return f"batch and length are both {batch}, so that the trace may take them for one axis"
    if mask is None:
        return "there is no attention mask, so that padding would be read as text"
    if mask.all():
        return "no row is padded: a mask of ones is dropped from the graph"
    padded_end = mask[:, 0] if side == "left" else mask[:, -1]
    if padded_end.all():
        return f"the padding is not on the {side}, where this model pads"
    if len(set(mask.sum(axis=1).tolist())) < 2:
        return "all rows have the same length"
    return None


def sizes_of(inputs: Inputs) -> dict[str, int]:
    """Axis -> size of all inputs together, the batch first."""
    sizes: dict[str, int] = {}
    for name, value in sorted(inputs.items(), key=lambda item: -item[1].ndim):
        sizes |= dict(zip(axes_of(name, value.ndim, inputs), value.shape, strict=False))
    return sizes


def broken_axes(inputs: Inputs, free: Collection[str]) -> str | None:
    """Which rule of a capture set a batch of pictures, sounds or series breaks, in words; `None` if it keeps them all.

    `free` are the names of the axes that are to have other sizes too.
    """
    known: dict[int, str] = {}
    for axis, size in sizes_of(inputs).items():
        if axis in free and size == 1:
            return f"an axis of size 1 becomes a constant ({axis})"
        if axis in free and size in known:
            return f"{known[size]} and {axis} are both {size}, so that the trace may take them for one axis"
        known |= {size: axis} if axis in free else {}
    for name, value in inputs.items():
        varies = any(axis in free for axis in axes_of(name, value.ndim, inputs)[1:])
        if name.endswith("_mask") and varies and value.all():
            return f"nothing is padded: a `{name}` of ones is dropped from the graph"
    return None


def held_out_cases(tokenizer: Any, spec: CaptureSpec, captured: Inputs, side: Side, limit: int) -> dict[str, Inputs]:
    """Inputs that the trace never saw, by the name of the case: other batches, lengths and sides of padding.

    `limit` is the longest input that the model or a backend takes, in tokens.
    """
    rows = spec.held_out
    one, three = [_encode(tokenizer, rows[0], limit)], [_encode(tokenizer, row, limit) for row in rows[1:4]]
    pair = [_encode(tokenizer, row, limit) for row in rows[4:6]]
    batch, length = captured["input_ids"].shape
    shaped = [_encode(tokenizer, row, length) for row in rows[:batch]]
    return {
        "batch 1": _pad(tokenizer, one, side),
        "batch 1, short": _pad(tokenizer, [_encode(tokenizer, rows[1], 4)], side),
        "batch 3, right-padded": _pad(tokenizer, three, "right"),
        "batch 3, left-padded": _pad(tokenizer, three, "left"),
        "batch 2, long": _pad(tokenizer, [_lengthen(pair[0], min(LONG, limit)), pair[1]], side),
        "held-out rows in the captured shape": _pad(tokenizer, shaped, side, length),
    }


def prompts(tokenizer: Any, spec: CaptureSpec, limit: int) -> list[Inputs]:
    """Three held-out prompts of different length, each a batch of one without padding."""
    encoded = [_encode(tokenizer, row, limit) for row in spec.held_out]
    by_length = {len(ids["input_ids"]): ids for ids in encoded if len(ids["input_ids"]) >= 3}
    lengths = sorted(by_length)
    usual = [length for length in lengths if length >= USUAL]
    chosen = [by_length[length] for length in (usual if len(usual) >= 3 else lengths)[:3]]
    if len(chosen) < 3:
        raise DatasetError(
            f"The held-out rows make {len(chosen)} prompts of different length, three are needed",
            hint="Give a dataset with rows of different lengths",
        )
    return [_pad(tokenizer, [ids], "left") for ids in chosen]


def stack(tokenizer: Any, batches: Sequence[Inputs], side: Side) -> Inputs:
    """Unpadded batches of one as one padded batch."""
    return _pad(tokenizer, [{key: value[0].tolist() for key, value in batch.items()} for batch in batches], side)


def positions(mask: np.ndarray) -> np.ndarray:
    """Position of every token as `generate` counts it: from 0 at the first real one, padding stays at 0."""
    counted: np.ndarray = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    return counted.astype(np.int64)


def _encode(tokenizer: Any, row: Row, limit: int) -> dict[str, list[int]]:
    values = row.values
    if "messages" in values and getattr(tokenizer, "chat_template", None):
        text = tokenizer.apply_chat_template(values["messages"], tokenize=False, add_generation_prompt=True)
        return dict(tokenizer(text, add_special_tokens=False, truncation=True, max_length=limit))
    if "messages" in values:
        text, pair = str(values["messages"][0]["content"]), None
    else:
        text, pair = values["text"], values.get("text_pair")
    return dict(tokenizer(text, pair, truncation=True, max_length=limit))


def _lengthen(encoded: dict[str, list[int]], length: int) -> dict[str, list[int]]:
    """The row repeated up to `length` tokens: long inputs without asking the dataset for long rows."""
    times = -(-length // len(encoded["input_ids"]))
    return {key: (value * times)[:length] for key, value in encoded.items()}


def _pad(tokenizer: Any, rows: Sequence[dict[str, list[int]]], side: Side, length: int | None = None) -> Inputs:
    width = length or max(len(row["input_ids"]) for row in rows)
    filler = {"input_ids": tokenizer.pad_token_id or 0}
    padded: Inputs = {}
    for key in rows[0]:
        fill = filler.get(key, 0)
        lines = [[fill] * (width - len(row[key])) for row in rows]
        joined = [pad + row[key] if side == "left" else row[key] + pad for pad, row in zip(lines, rows, strict=True)]
        padded[key] = np.asarray(joined, dtype=np.int64)
    if "attention_mask" not in padded:
        raise DatasetError("The tokenizer makes no attention mask", hint="Set `model_input_names` in its configuration")
    return padded
