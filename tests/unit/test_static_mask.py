"""What a new token may look at in a cache of fixed size."""

from __future__ import annotations

import numpy as np

from hub_exporter.backends.common import static_mask


def seen(mask: list[list[int]], length: int, slots: int) -> list[list[list[int]]]:
    return static_mask(np.array(mask), length, slots, "bool")[:, 0].astype(int).tolist()


def test_a_prompt_sees_what_came_before_and_itself():
    assert seen([[1, 1, 1]], 3, 4) == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]]


def test_padding_is_hidden_from_others_and_sees_itself():
    assert seen([[0, 1, 1]], 3, 3) == [[[1, 0, 0], [0, 1, 0], [0, 1, 1]]]


def test_a_step_behind_a_filled_cache_sees_the_real_tokens_in_it():
    assert seen([[0, 1, 1, 1], [1, 1, 1, 1]], 1, 6) == [[[0, 1, 1, 1, 0, 0]], [[1, 1, 1, 1, 0, 0]]]


def test_other_types_are_added_to_the_scores():
    mask = static_mask(np.array([[1, 1]]), 2, 2, "float32")

    assert mask.dtype == np.float32
    assert mask.tolist() == [[[[0.0, float(np.finfo(np.float32).min)], [0.0, 0.0]]]]
