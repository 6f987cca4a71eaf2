"""The rules of captured batches, whatever they are of."""

from __future__ import annotations

import numpy as np
import pytest

from hub_exporter.capture import broken_axes, sizes_of

PICTURES = ("batch_size", "height", "width")


def pictures(batch: int, height: int, width: int) -> dict[str, np.ndarray]:
    mask = np.ones((batch, height, width), np.int64)
    mask[0, -3:] = 0
    return {"pixel_mask": mask, "pixel_values": np.zeros((batch, 3, height, width), np.float32)}


def test_sizes_are_named_by_axis_with_the_batch_first() -> None:
    text = {"input_ids": np.zeros((2, 9), np.int64), "attention_mask": np.ones((2, 9), np.int64)}
    both = {"input_ids": np.zeros((3, 9), np.int64), "pixel_values": np.zeros((2, 3, 30, 40), np.float32)}

    assert list(sizes_of(pictures(2, 30, 40)).items()) == [
        ("batch_size", 2),
        ("num_channels", 3),
        ("height", 30),
        ("width", 40),
    ]
    assert sizes_of(text) == {"batch_size": 2, "sequence_length": 9}
    assert sizes_of(both)["image_batch_size"] == 2
    assert sizes_of(both)["text_batch_size"] == 3


def test_a_good_batch_breaks_no_rule() -> None:
    assert broken_axes(pictures(2, 30, 40), PICTURES) is None


@pytest.mark.parametrize(
    ("inputs", "free", "words"),
    [
        (pictures(1, 30, 40), PICTURES, "size 1"),
        (pictures(2, 30, 30), PICTURES, "height and width are both 30"),
        (pictures(30, 30, 40), PICTURES, "batch_size and height are both 30"),
        ({"input_values": np.zeros((2, 2))}, ("batch_size", "sequence_length"), "are both 2"),
        (
            {"input_values": np.zeros((2, 90)), "attention_mask": np.ones((2, 90), np.int64)},
            ("batch_size", "sequence_length"),
            "nothing is padded",
        ),
    ],
)
def test_a_batch_that_would_mislead_the_trace_is_refused(
    inputs: dict[str, np.ndarray], free: tuple[str, ...], words: str
) -> None:
    assert words in str(broken_axes(inputs, free))


def test_axes_that_the_processor_fixes_may_be_equal_and_unpadded() -> None:
    inputs = pictures(2, 30, 30)
    inputs["pixel_mask"][:] = 1

    assert broken_axes(inputs, ("batch_size",)) is None
