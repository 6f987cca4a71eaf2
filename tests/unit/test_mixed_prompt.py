"""What happens between the graphs of a model that reads pictures or sounds in its text, on arrays made by hand."""

from __future__ import annotations

import numpy as np

from hub_exporter.capture import Inputs
from hub_exporter.mixed_prompt import MixedPrompt, alone

PICTURE, SOUND = 9, 8
MODEL = "made-up"


def prompt(inputs: Inputs, model_type: str = MODEL) -> MixedPrompt:
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", np.ones_like(ids))
    return MixedPrompt(
        {**inputs, "attention_mask": mask}, {"image_encoder": PICTURE, "audio_encoder": SOUND}, model_type
    )


def numbered(items: int, tokens: int) -> np.ndarray:
    """Features (items, tokens, 1) that count from 1."""
    return np.arange(1, items * tokens + 1, dtype=np.float32).reshape(items, tokens, 1)


def test_features_go_to_the_places_of_their_tokens_in_one_step_or_in_several() -> None:
    ids = np.array([[1, PICTURE, PICTURE, 2, 3], [0, 4, PICTURE, PICTURE, 5]])
    made = prompt({"input_ids": ids, "pixel_values": np.zeros((2, 3, 4, 4))})
    made.encoded("image_encoder", numbered(2, 2))
    blank = np.zeros((2, 5, 1), np.float32)

    assert made.merge(blank, 0)[..., 0].tolist() == [[0, 1, 2, 0, 0], [0, 0, 3, 4, 0]]
    assert made.merge(blank[:, :2], 0)[..., 0].tolist() == [[0, 1], [0, 0]]
    assert made.merge(blank[:, 2:], 2)[..., 0].tolist() == [[2, 0, 0], [3, 4, 0]]


def test_a_placeholder_that_the_model_says_is_a_word_like_others() -> None:
    ids = np.array([[1, PICTURE, 2]])
    made = prompt({"input_ids": ids, "pixel_values": np.zeros((1, 3, 4, 4))})
    made.encoded("image_encoder", numbered(1, 1))

    assert made.text(ids, 0).tolist() == [[1, 0, 2]]  # it may lie beyond the vocabulary
    assert made.text(np.array([[PICTURE]]), 3).tolist() == [[PICTURE]]
    assert made.merge(np.full((1, 1, 1), 7.0), 3).tolist() == [[[7.0]]]


def test_pictures_and_sounds_of_one_prompt_keep_apart() -> None:
    ids = np.array([[SOUND, PICTURE, SOUND, 1]])
    made = prompt({"input_ids": ids, "pixel_values": np.zeros((1, 3, 4, 4)), "input_features": np.zeros((2, 5, 6))})
    made.encoded("image_encoder", numbered(1, 1))
    made.encoded("audio_encoder", 10 * numbered(2, 1))

    assert [name for name, _ in made.to_encode()] == ["image_encoder", "audio_encoder"]
    assert made.merge(np.zeros((1, 4, 1), np.float32), 0)[0, :, 0].tolist() == [10, 1, 20, 0]


def test_of_a_padded_sound_only_what_the_text_has_places_for_is_taken() -> None:
    ids = np.array([[1, SOUND, SOUND, SOUND, 2], [3, 4, SOUND, SOUND, 5]])
    made = prompt({"input_ids": ids, "input_features": np.zeros((2, 4, 8))})
    made.encoded("audio_encoder", numbered(2, 4))

    merged = made.merge(np.zeros((2, 5, 1), np.float32), 0)[..., 0]
    assert merged.tolist() == [[0, 1, 2, 3, 0], [0, 0, 5, 6, 0]]


def test_tiles_that_only_fill_a_batch_are_not_encoded() -> None:
    pixels = np.ones((2, 3, 3, 4, 4), np.float32)
    pixels[1, 1:] = 0
    made = prompt(
        {
            "input_ids": np.array([[PICTURE] * 3, [0, 1, PICTURE]]),
            "pixel_values": pixels,
            "pixel_attention_mask": np.ones((2, 3, 4, 4), np.int64),
        }
    )

    ((name, all_at_once),) = made.to_encode()
    one_by_one = [given for _, given in made.to_encode(1)]

    assert name == "image_encoder"
    assert all_at_once["pixel_values"].shape == (4, 3, 4, 4)
    assert all_at_once["pixel_attention_mask"].shape == (4, 4, 4)
    assert [len(given["pixel_values"]) for given in one_by_one] == [1] * 4


def test_a_picture_of_a_grid_comes_in_its_own_shape_and_moves_the_text_behind_it_by_its_longer_side() -> None:
    ids = np.array([[1, 2, *[PICTURE] * 6, 3], [0, 0, 0, 0, 0, PICTURE, PICTURE, 4, 5]])
    mask = np.array([[1] * 9, [0] * 5 + [1] * 4])
    grids = np.array([[1, 4, 6], [1, 2, 4]])
    patches = np.arange(32)[:, None] * np.ones((1, 5))
    inputs = {"input_ids": ids, "attention_mask": mask, "pixel_values": patches, "image_grid_thw": grids}
    made = prompt(inputs)

    shapes = [given["pixel_values"].shape for _, given in made.to_encode()]
    assert shapes == [(2, 3, 20), (1, 2, 20)]
    told = made.beside(mask, 9)["position_ids"]
    assert told[:, 0].tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5],
        [0, 1, 2, 2, 2, 3, 3, 3, 5],
        [0, 1, 2, 3, 4, 2, 3, 4, 5],
    ]
    assert told[:, 1, 5:].tolist() == [[0, 0, 2, 3], [0, 0, 2, 3], [0, 1, 2, 3]]
    longer = np.concatenate([mask, np.ones((2, 2), np.int64)], axis=1)
    assert made.beside(longer, 1)["position_ids"][:, :, 0].tolist() == [[7, 5]] * 3
    assert [row["pixel_values"].shape for row in alone(inputs)] == [(24, 5), (8, 5)]


def test_the_kinds_of_tokens_cover_the_past_and_the_answer() -> None:
    kinds = np.array([[0, 1, 1, 0]])
    inputs = {"input_ids": np.array([[1, PICTURE, PICTURE, 2]]), "token_type_ids": kinds}

    def told(model_type: str, total: int) -> list[list[int]]:
        found: list[list[int]] = (
            prompt(inputs, model_type).beside(np.ones((1, total), np.int64), 1)["token_type_ids"].tolist()
        )
        return found

    assert told("gemma3", 3) == [[0, 1, 1]]
    assert told("gemma3", 6) == [[0, 1, 1, 0, 0, 0]]
    assert told("paligemma", 6) == [[0, 1, 1, 0, 1, 1]]


def test_positions_count_from_where_the_model_does() -> None:
    mask = np.array([[0, 1, 1]])
    inputs = {"input_ids": np.array([[0, PICTURE, 2]]), "attention_mask": mask}

    assert prompt(inputs).beside(mask, 3)["position_ids"].tolist() == [[0, 0, 1]]
    assert prompt(inputs, "paligemma").beside(mask, 3)["position_ids"].tolist() == [[1, 1, 2]]
