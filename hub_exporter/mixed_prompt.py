"""A prompt of texts with pictures or sounds in it, on its way into exported files: what is done between the graphs.

The encoders are fed with what the processor made, what they give goes to the places of the placeholder tokens, and each
token gets the position and the kind that the language model was trained with. All of it is plain numpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby

import numpy as np

from hub_exporter.capture import Inputs, positions

FEATURES = {"image_encoder": "image_features", "audio_encoder": "audio_features"}
"""Component -> the name of what it gives: (items, tokens of one, hidden size), or all tokens in a row."""

ANSWERS_ARE_KIND_ONE = ("paligemma",)
"""Model types whose `token_type_ids` say 1 of the answer; to the others 1 is a picture and 0 is text."""


def first_position(model_type: str) -> int:
    """Where the first token of a text stands."""
    return int(model_type == "paligemma")


class MixedPrompt:
    """One batch. `inputs` is all that the processor made of it, with `input_ids` and `attention_mask` int64 (batch,
    length); `placeholders` names the token that stands for a piece of what each encoder reads."""

    def __init__(self, inputs: Inputs, placeholders: Mapping[str, int], model_type: str):
        self._inputs, self._placeholders = inputs, placeholders
        self._ids, self._mask = inputs["input_ids"], inputs["attention_mask"]
        self._first = first_position(model_type)
        self._kind_of_answer = int(model_type in ANSWERS_ARE_KIND_ONE)
        self._features: Inputs = {}
        self._merged = self._grid_positions() if "image_grid_thw" in inputs else None

    def to_encode(self, at_once: int | None = None) -> Iterator[tuple[str, Inputs]]:
        """(component, what it is fed with), `at_once` items at most; pictures of a grid one by one."""
        if "image_grid_thw" in self._inputs:
            yield from (("image_encoder", {"pixel_values": picture}) for picture in self._grids())
        elif "pixel_values" in self._inputs:
            yield from (("image_encoder", part) for part in _parts(self._pictures(), at_once))
        if "input_features" in self._inputs:
            names = ("input_features", "input_features_mask", "feature_attention_mask")
            sounds = {name: self._inputs[name] for name in names if name in self._inputs}
            yield from (("audio_encoder", part) for part in _parts(sounds, at_once))

    def encoded(self, component: str, features: np.ndarray) -> None:
        """Keep what an encoder gave, in the order of `to_encode`."""
        before = [self._features[component]] if component in self._features else []
        self._features[component] = np.concatenate([*before, features])

    def text(self, ids: np.ndarray, past: int) -> np.ndarray:
        """The tokens behind `past` ones as the embedding takes them: a placeholder may lie beyond its vocabulary."""
        return np.where(self._placed(past, ids.shape[1]) >= 0, 0, ids)

    def merge(self, embedded: np.ndarray, past: int) -> np.ndarray:
        """The embeddings (batch, length, hidden size) of the tokens behind `past` ones, with the features in them."""
        merged = embedded.copy()
        for component, features in self._features.items():
            index = self._placed(past, embedded.shape[1], component)
            merged[index >= 0] = self._in_a_row(component, features)[index[index >= 0]]
        return merged

    def beside(self, mask: np.ndarray, length: int) -> Inputs:
        """What `length` new tokens are told beside their embeddings; `mask` (batch, total) covers the past too."""
        told = {"position_ids": self._positions(mask, length)}
        if "token_type_ids" in self._inputs:
            kinds = self._inputs["token_type_ids"]
            answer = np.full((len(kinds), max(mask.shape[1] - kinds.shape[1], 0)), self._kind_of_answer, kinds.dtype)
            told["token_type_ids"] = np.concatenate([kinds, answer], axis=1)[:, : mask.shape[1]]
        return told

    # ── Encoders ──

    def _pictures(self) -> Inputs:
        """Pictures one behind the other; tiles of several pictures come padded to one number with tiles of zeros."""
        pictures = {name: v for name, v in self._inputs.items() if name in ("pixel_values", "pixel_attention_mask")}
        if pictures["pixel_values"].ndim < 5:
            return pictures
        tiles = {name: value.reshape(-1, *value.shape[2:]) for name, value in pictures.items()}
        real = tiles["pixel_values"].any(axis=(1, 2, 3))
        return {name: value[real] for name, value in tiles.items()}

    def _grids(self) -> Iterator[np.ndarray]:
        """Each picture as (rows, columns, numbers of the patches that become one token)."""
        patches, share, begun = self._inputs["pixel_values"], self._share(), 0
        for frames, rows, columns in self._inputs["image_grid_thw"]:
            count = frames * rows * columns
            yield patches[begun : begun + count].reshape(rows // share, columns // share, -1)
            begun += count

    def _share(self) -> int:
        """Patches of a grid, along each side, that become one token."""
        patches = int(self._inputs["image_grid_thw"].prod(axis=1).sum())
        tokens = int((self._ids == self._placeholders["image_encoder"]).sum())
        return math.isqrt(patches // tokens)

    # ── Places ──

    def _placed(self, past: int, length: int, component: str | None = None) -> np.ndarray:
        """For each of `length` tokens behind `past` ones the number of its placeholder, -1 for any other token."""
        wanted = self._placeholders if component is None else {component: self._placeholders[component]}
        places = np.isin(self._ids, list(wanted.values()))
        numbers = np.where(places, np.cumsum(places).reshape(places.shape) - 1, -1)
        found = np.full((len(numbers), length), -1)
        known = numbers[:, past : past + length]
        found[:, : known.shape[1]] = known
        return found

    def _in_a_row(self, component: str, features: np.ndarray) -> np.ndarray:
        """Features (tokens, hidden size): of sounds that were padded, as many as the text has places for them."""
        places = self._ids == self._placeholders[component]
        if features.ndim == 2 or features.shape[0] * features.shape[1] == places.sum():
            return features.reshape(-1, features.shape[-1])
        runs = [len(list(run)) for row in places for real, run in groupby(row) if real]
        return np.concatenate([one[:count] for one, count in zip(features, runs, strict=True)])

    def _positions(self, mask: np.ndarray, length: int) -> np.ndarray:
        """(batch, length); or (3, batch, length), in time and along both sides of a picture."""
        counted = positions(mask)[:, -length:] + self._first
        if self._merged is None:
            return counted
        known, ahead = self._merged
        past = mask.shape[1] - length
        begun = known[:, :, past : past + length]
        answer = np.broadcast_to(counted + ahead[:, None], (3, *counted.shape))
        return np.concatenate([begun, answer[:, :, begun.shape[2] :]], axis=2)

    def _grid_positions(self) -> tuple[np.ndarray, np.ndarray]:
        """The prompt's (3, batch, length), and (batch) by how much the answer's differ from its count of tokens.

        A text goes on in all three, a picture in two of them at once: the text behind it at its longer side.
        """
        found, ahead = np.zeros((3, *self._ids.shape), np.int64), np.zeros(len(self._ids), np.int64)
        grids, share = iter(self._inputs["image_grid_thw"]), self._share()
        for row, (ids, mask) in enumerate(zip(self._ids, self._mask, strict=True)):
            real = np.flatnonzero(mask)
            begun = at = 0
            while begun < len(real):
                size = np.ones(3, np.int64)
                if ids[real[begun]] == self._placeholders["image_encoder"]:
                    size = next(grids) // (1, share, share)
                block = np.indices(tuple(size)).reshape(3, -1) + at
                found[:, row, real[begun : begun + block.shape[1]]] = block
                begun, at = begun + block.shape[1], at + int(size[1:].max())
            ahead[row] = at - len(real)
        return found, ahead


def alone(inputs: Inputs) -> list[Inputs]:
    """Each row of a batch by itself. Patches of pictures lie one behind the other: one picture in each row is meant."""
    ends = np.cumsum(inputs["image_grid_thw"].prod(axis=1)) if "image_grid_thw" in inputs else None
    rows = []
    for row in range(max(len(value) for name, value in inputs.items() if ends is None or name != "pixel_values")):
        of = {name: value[row : row + 1] for name, value in inputs.items()}
        if ends is not None:
            of["pixel_values"] = np.split(inputs["pixel_values"], ends)[row]
        rows.append(of)
    return rows


def _parts(inputs: Inputs, at_once: int | None) -> Iterator[Inputs]:
    items = len(next(iter(inputs.values())))
    for begun in range(0, items, at_once or items):
        yield {name: value[begun : begun + (at_once or items)] for name, value in inputs.items()}
