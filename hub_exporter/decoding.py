"""The greedy loop over written files: a prompt in, the logits of the next token out, then token after token.

Verification feeds it the tokens of `generate`, `hub-exporter generate` its own choices. Arrays of tokens are int64
(batch, length), logits float32 (batch, vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hub_exporter.backends import Arrays, Runner
from hub_exporter.capture import positions
from hub_exporter.mixed_prompt import MixedPrompt


class Loop:
    """One text, or one batch of texts, on its way through a runner. `start_token` is that of an encoder-decoder; by the
    `model_type` tokens are counted."""

    def __init__(self, runner: Runner, start_token: int | None = None, model_type: str = ""):
        self._runner, self._start_token, self._model_type = runner, start_token, model_type

    def begin(self, inputs: Arrays, chunks: Sequence[int] = ()) -> np.ndarray:
        """Read the prompt, the source or the pictures in `inputs`; a prompt in pieces of `chunks` tokens."""
        rows = len(inputs.get("input_ids", next(iter(inputs.values()))))
        self._inputs, self._text = inputs, np.zeros((rows, 0), np.int64)
        if self._runner.layout != "uncached":
            self._runner.start(rows)
        if self._runner.layout in ("encoder-decoder", "multimodal"):
            self._runner.encode(inputs)
        if self._start_token is not None:
            self._mask = np.zeros((rows, 0), np.int64)
            return self.go_on(np.full((rows, 1), self._start_token, np.int64))
        ids, mask, begun = inputs["input_ids"], inputs["attention_mask"], 0
        for size in chunks or (ids.shape[1],):
            self._mask = mask[:, : begun + size]
            answer = self._feed(ids[:, begun : begun + size])
            begun += size
        return answer

    def go_on(self, tokens: np.ndarray) -> np.ndarray:
        """Append the chosen tokens (batch, 1)."""
        self._mask = np.concatenate([self._mask, np.ones_like(tokens)], axis=1)
        return self._feed(tokens)

    def _feed(self, new: np.ndarray) -> np.ndarray:
        self._text = np.concatenate([self._text, new], axis=1)
        if self._runner.layout == "uncached":
            return self._runner.forward(self._all())["logits"][:, -1]
        return fed(self._runner, new, self._mask, positions(self._mask)[:, -new.shape[1] :])[:, -1]

    def _all(self) -> Arrays:
        """All of the text so far, for a graph without a cache."""
        if self._start_token is not None:
            return {**self._inputs, "decoder_input_ids": self._text}
        beside = MixedPrompt(self._inputs, {}, self._model_type).beside(self._mask, self._text.shape[1])
        return {**self._inputs, "input_ids": self._text, "attention_mask": self._mask, **beside}


def fed(runner: Runner, ids: np.ndarray, mask: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Logits (batch, length, vocabulary) of all new tokens, fed at once, or one by one to a graph that takes one.

    `mask` covers past tokens too.
    """
    if not runner.one_token:
        return runner.step(ids, mask, places)
    past, length = mask.shape[1] - ids.shape[1], ids.shape[1]
    steps = [runner.step(ids[:, n : n + 1], mask[:, : past + n + 1], places[:, n : n + 1]) for n in range(length)]
    return np.concatenate(steps, axis=1)
