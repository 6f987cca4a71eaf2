"""What a graph without a cache is fed with, step by step."""

from __future__ import annotations

import numpy as np

from hub_exporter.decoding import Loop


class Whole:
    """A runner of one graph without a cache: nothing is to be started, and it remembers what it was given."""

    layout = "uncached"

    def __init__(self) -> None:
        self.given: list[dict[str, np.ndarray]] = []

    def forward(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.given.append(inputs)
        text = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        return {"logits": np.zeros((*text.shape, 8), np.float32)}


def test_it_reads_all_of_the_text_and_the_pictures_at_every_step() -> None:
    runner, pixels = Whole(), np.ones((1, 3, 4, 4), np.float32)
    loop = Loop(runner)
    loop.begin({"input_ids": np.array([[5, 6]]), "attention_mask": np.array([[1, 1]]), "pixel_values": pixels})
    answer = loop.go_on(np.array([[7]]))

    assert answer.shape == (1, 8)
    assert [given["input_ids"].tolist() for given in runner.given] == [[[5, 6]], [[5, 6, 7]]]
    assert runner.given[1]["position_ids"].tolist() == [[0, 1, 2]]
    assert all(given["pixel_values"] is pixels for given in runner.given)


def test_the_kinds_of_tokens_grow_with_the_text_as_the_model_counts_them() -> None:
    def last(model_type: str) -> dict[str, list[list[int]]]:
        runner = Whole()
        ids = np.array([[5, 6]])
        loop = Loop(runner, model_type=model_type)
        loop.begin({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.array([[1, 0]])})
        loop.go_on(np.array([[7]]))
        return {name: runner.given[1][name].tolist() for name in ("token_type_ids", "position_ids")}

    assert last("gemma3") == {"token_type_ids": [[1, 0, 0]], "position_ids": [[0, 1, 2]]}
    assert last("paligemma") == {"token_type_ids": [[1, 0, 1]], "position_ids": [[1, 2, 3]]}


def test_an_encoder_decoder_reads_its_source_and_all_of_the_answer_at_every_step() -> None:
    runner, source = Whole(), np.array([[5, 6, 4]])
    loop = Loop(runner, start_token=2)
    loop.begin({"input_ids": source, "attention_mask": np.ones_like(source)})
    loop.go_on(np.array([[7]]))

    assert [given["decoder_input_ids"].tolist() for given in runner.given] == [[[2]], [[2, 7]]]
    assert all(given["input_ids"] is source for given in runner.given)
