"""Adding to somebody else's metadata without touching a byte of it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hub_exporter.frontmatter import add, parse, split

NEW = {"pipeline_tag": "fill-mask"}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("license: mit", "license: mit\npipeline_tag: fill-mask\ntags:\n- onnx"),
        ("tags:\n- a   # mine\nx: 1", "tags:\n- a   # mine\n- onnx\nx: 1\npipeline_tag: fill-mask"),
        ("tags:\n  - a\n  - b", "tags:\n  - a\n  - b\n  - onnx\npipeline_tag: fill-mask"),
        ("tags: [a,  b]\nx: 1", "tags: [a,  b, onnx]\nx: 1\npipeline_tag: fill-mask"),
        ("tags: []", "tags: [onnx]\npipeline_tag: fill-mask"),
        ("tags: a", "tags: [a, onnx]\npipeline_tag: fill-mask"),
        ("tags:\nx: 1", "tags: [onnx]\nx: 1\npipeline_tag: fill-mask"),
        ("tags: [onnx]", "tags: [onnx]\npipeline_tag: fill-mask"),
        ("# a comment\nx_own:   {b: 1}  # another", None),
    ],
)
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_keys_and_tags_are_added_in_the_style_of_the_block(block, expected, line):
    head = f"---\n{block}\n---\n".replace("\n", line)
    expected = expected or f"{block}\npipeline_tag: fill-mask\ntags:\n- onnx"

    made = add(head, NEW, ["onnx"])

    assert made == f"---\n{expected}\n---\n".replace("\n", line)
    assert add(made, {}, ["onnx"]) == made


@pytest.mark.parametrize("head", ["---\nlicense: [mit\n---\n", "---\n- a list\n---\n", "---\n{a: 1}\n---\n", ""])
def test_what_cannot_be_added_to_safely_is_left_alone(head):
    assert add(head, NEW, ["onnx"]) == head


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        st.one_of(st.text(max_size=20), st.integers(), st.lists(st.text(max_size=8), max_size=3), st.none()),
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_is_there_stays_and_means_the_same(values, flow):
    block = yaml.safe_dump(values, allow_unicode=True, default_flow_style=flow or None)
    head, rest = split(f"---\n{block}---\nText\n")
    made = add(head, {"pipeline_tag": "fill-mask"} if "pipeline_tag" not in values else {}, ["onnx"])

    assert rest == "Text\n"
    assert parse(made) is not None
    # What the block means, not what it was made of: PyYAML does not write every line end so that it reads it back.
    kept = {key: value for key, value in yaml.safe_load(block).items() if key != "tags"}
    assert {key: parse(made)[key] for key in kept} == kept
    if made != head:
        assert "onnx" in parse(made)["tags"]
