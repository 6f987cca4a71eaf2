from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub_exporter import matrix
from hub_exporter.catalogue import BACKENDS, VARIANTS
from hub_exporter.records import ModelRequest, ModelSettings


def asked(sizes: list[tuple[int, int]]) -> list[ModelRequest]:
    return [
        ModelRequest(
            settings=ModelSettings(
                source=f"m{number}", backends=tuple(BACKENDS)[:backends], variants=VARIANTS[:variants]
            )
        )
        for number, (backends, variants) in enumerate(sizes)
    ]


sizes = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=40)


@given(sizes, st.integers(1, 12))
def test_parts_are_all_of_it_in_order_and_each_model_once(sizes: list[tuple[int, int]], of: int) -> None:
    requests = asked(sizes)
    parts = [matrix.requests_of(requests, (number, of)) for number in range(1, of + 1)]

    assert [request for part in parts for request in part] == requests


@given(sizes, st.integers(1, 12))
def test_no_part_is_larger_than_its_share_and_one_model(sizes: list[tuple[int, int]], of: int) -> None:
    requests, total = asked(sizes), sum(backends * variants for backends, variants in sizes)
    for number in range(1, of + 1):
        part = matrix.requests_of(requests, (number, of))
        jobs = sum(len(request.settings.backends) * len(request.settings.variants) for request in part)
        assert jobs <= total / of + 36
