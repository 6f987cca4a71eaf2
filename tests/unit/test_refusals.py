"""How a runtime's refusal is told."""

from __future__ import annotations

import made_up
import numpy as np
import pytest

from hub_exporter.records import Reference, ReferenceCase
from hub_exporter.verify import run_case


class Refusing:
    layout, padded, max_batch = "encoder", True, None

    def __init__(self, text: str):
        self.text = text

    def forward(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise RuntimeError(self.text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Exception from infer.cpp:224:\nException from node.cpp:76:\nshapes differ\nat last", "shapes differ"),
        ("Got invalid dimensions\n index: 1 Got: 3", "Got invalid dimensions"),
        ("Exception from infer.cpp:224:", "Exception from infer.cpp:224:"),
        ("", "without a text"),
    ],
)
def test_the_first_line_that_says_something_is_the_reason(text: str, told: str) -> None:
    case = ReferenceCase(name="one", sizes={"batch_size": 1}, inputs=("input_ids",), outputs=())
    reference = Reference(layout="encoder", metric="vectors", cases=(case,))
    arrays = {"one/in/input_ids": np.zeros((1, 3), np.int64)}

    assert run_case(Refusing(text), reference, case, arrays, made_up.outcome("onnx")).error == f"RuntimeError: {told}"
