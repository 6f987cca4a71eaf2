"""Which axes a graph does not let move, judging by the cases that failed."""

from __future__ import annotations

import pytest

from hub_exporter.records import CaseResult, Reference, ReferenceCase
from hub_exporter.verify import _immovable

PICTURES = {
    "capture": {"batch_size": 2, "num_channels": 3, "height": 96, "width": 126},
    "same": {"batch_size": 2, "num_channels": 3, "height": 96, "width": 126},
    "one": {"batch_size": 1, "num_channels": 3, "height": 96, "width": 112},
    "three": {"batch_size": 3, "num_channels": 3, "height": 80, "width": 90},
    "large": {"batch_size": 2, "num_channels": 3, "height": 200, "width": 300},
}
SOUNDS = {
    "capture": {"batch_size": 2, "sequence_length": 90},
    "one": {"batch_size": 1, "sequence_length": 90},
    "three": {"batch_size": 3, "sequence_length": 71},
    "long": {"batch_size": 2, "sequence_length": 400},
}


@pytest.mark.parametrize(
    ("sizes", "failed", "axes"),
    [
        (PICTURES, {"one", "three", "large"}, ("height", "width")),
        (PICTURES, {"one", "three"}, ("batch_size",)),
        (PICTURES, {"large"}, ("height", "width")),
        (PICTURES, {"same", "one"}, ()),  # wrong in the captured shape too
        (PICTURES, {"capture", "same", "one", "three", "large"}, ()),
        (SOUNDS, {"three", "long"}, ("sequence_length",)),
        (SOUNDS, {"one", "three"}, ("batch_size",)),
        (SOUNDS, {"one", "three", "long"}, ("batch_size", "sequence_length")),
    ],
)
def test_the_fewest_axes_that_explain_what_failed_are_named(
    sizes: dict[str, dict[str, int]], failed: set[str], axes: tuple[str, ...]
) -> None:
    cases = tuple(ReferenceCase(name=name, sizes=own, inputs=(), outputs=()) for name, own in sizes.items())
    reference = Reference(layout="encoder", metric="vectors", cases=cases)
    results = [
        CaseResult(case=name, shape=tuple(own.values()), passed=name not in failed) for name, own in sizes.items()
    ]

    assert _immovable(reference, results) == axes
