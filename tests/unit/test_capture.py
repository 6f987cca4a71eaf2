"""Rows -> inputs that do not mislead a trace."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_exporter import capture
from hub_exporter.errors import DatasetError
from hub_exporter.records import CaptureSpec, Row


class Words:
    """A tokenizer of words: ids are lengths of words plus 10, a start token 1, padding 0."""

    pad_token_id = 0
    chat_template: str | None = None

    def __call__(
        self, text: str, pair: str | None = None, truncation: bool = False, max_length: int = 99, **_: Any
    ) -> dict[str, list[int]]:
        ids = [1, *(10 + len(word) for word in f"{text} {pair or ''}".split())][:max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return " ".join(["<user>", *(message["content"] for message in messages), "<assistant>"])


def rows(*lengths: int) -> list[Row]:
    return [Row(id=str(n), values={"text": " ".join(["word"] * length)}) for n, length in enumerate(lengths)]


@given(st.lists(st.integers(4, 80), min_size=2, max_size=2), st.sampled_from(["left", "right"]))
def test_two_rows_of_any_length_make_a_set_that_breaks_no_rule(lengths: list[int], side: capture.Side) -> None:
    inputs = capture.capture_inputs(Words(), rows(*lengths), side)

    batch, length = inputs["input_ids"].shape
    assert capture.broken_rule(inputs, side) is None
    assert batch == 2
    assert length % 2 == 1
    assert length <= capture.CAPTURE_LIMIT
    padded = inputs["attention_mask"][:, 0] if side == "left" else inputs["attention_mask"][:, -1]
    assert padded.sum() == 1


def test_rows_that_are_too_short_are_refused_with_the_reason() -> None:
    with pytest.raises(DatasetError, match="would mislead the trace") as error:
        capture.capture_inputs(Words(), rows(0, 0), "left")
    assert "--dataset" in (error.value.hint or "")


def inputs_of(mask: Sequence[Sequence[int]]) -> capture.Inputs:
    array = np.array(mask, dtype=np.int64)
    return {"input_ids": np.full_like(array, 7), "attention_mask": array}


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        ([[0, 1, 1]], "an axis of size 1 becomes a constant"),
        ([[0, 1], [1, 1]], "batch and length are both 2"),
        ([[1, 1, 1], [1, 1, 1]], "no row is padded"),
        ([[1, 1, 0], [1, 1, 1]], "the padding is not on the left"),
        ([[0, 1, 1], [0, 1, 1]], "all rows have the same length"),
    ],
)
def test_every_rule_can_be_broken(mask: list[list[int]], rule: str) -> None:
    assert (capture.broken_rule(inputs_of(mask), "left") or "").startswith(rule)


def test_a_set_without_a_mask_is_refused() -> None:
    inputs = inputs_of([[0, 1, 1], [1, 1, 1]])
    inputs.pop("attention_mask")

    assert "no attention mask" in (capture.broken_rule(inputs, "left") or "")


def spec(*lengths: int) -> CaptureSpec:
    made = rows(*lengths)
    return CaptureSpec(path="x", split="train", digest="", capture=tuple(made[:2]), held_out=tuple(made[2:8]))


SPEC = spec(5, 12, 6, 20, 9, 30, 7, 15)


def test_held_out_cases_have_other_batches_lengths_and_both_sides_of_padding() -> None:
    captured = capture.capture_inputs(Words(), SPEC.capture, "left")

    cases = capture.held_out_cases(Words(), SPEC, captured, "left", 128)

    shapes = {name: inputs["input_ids"].shape for name, inputs in cases.items()}
    assert {batch for batch, _ in shapes.values()} == {1, 2, 3}
    assert max(length for _, length in shapes.values()) == capture.LONG
    assert shapes["held-out rows in the captured shape"] == captured["input_ids"].shape
    assert not cases["batch 3, left-padded"]["attention_mask"][:, 0].all()
    assert not cases["batch 3, right-padded"]["attention_mask"][:, -1].all()


def test_no_held_out_case_is_longer_than_the_model() -> None:
    captured = capture.capture_inputs(Words(), SPEC.capture, "left")

    cases = capture.held_out_cases(Words(), SPEC, captured, "left", 16)

    assert max(inputs["input_ids"].shape[1] for inputs in cases.values()) <= 16


def test_prompts_are_three_of_different_length_without_padding() -> None:
    prompts = capture.prompts(Words(), SPEC, 64)

    lengths = [prompt["input_ids"].shape for prompt in prompts]
    assert lengths == [(1, 8), (1, 10), (1, 16)], "the shortest that are not unusually short"
    assert all(prompt["attention_mask"].all() for prompt in prompts)


def test_held_out_rows_of_one_length_make_no_prompts() -> None:
    with pytest.raises(DatasetError, match="make 1 prompts of different length"):
        capture.prompts(Words(), spec(5, 12, 6, 6, 6, 6, 6, 6), 64)


def test_positions_count_real_tokens_from_zero() -> None:
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1]])

    assert capture.positions(mask).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]


def test_messages_go_through_the_chat_template_where_there_is_one() -> None:
    tokenizer, row = Words(), Row(id="0", values={"messages": [{"role": "user", "content": "how are you"}]})
    plain = capture._encode(tokenizer, row, 99)
    tokenizer.chat_template = "{{ messages }}"

    assert len(capture._encode(tokenizer, row, 99)["input_ids"]) == len(plain["input_ids"]) + 2


@pytest.mark.parametrize(("window", "limit"), [(None, 33), (4096, 33), (8, 6), (3, 5)])
def test_a_captured_row_does_not_fill_a_sliding_window(window: int | None, limit: int) -> None:
    text = SimpleNamespace(sliding_window=window)

    assert capture.capture_limit(SimpleNamespace(get_text_config=lambda: text)) == limit
