"""The card: metadata, tables, examples, and other people's text in all of them."""

from __future__ import annotations

import re

import jinja2
import made_up
import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hub_exporter.card import merge_card, metadata, render_card, render_pull_request
from hub_exporter.records import Component, Toolchain
from hub_exporter.section import BEGIN, END, QUESTIONS, render_section
from hub_exporter.snippets import environment
from hub_exporter.staleness import STATE, state_of
from hub_exporter.tasks import TASKS
from hub_exporter.wording import one_line

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")

hostile = st.sampled_from(
    [
        "a | b\n| c | d |",
        "---\nlicense: mit\n---",
        "# heading\n\n<script>alert(1)</script>",
        "```\n\n# out of the fence\n",
        "{{ index.source }}{% include 'card.md.j2' %}",
        "[x](javascript:alert(1)) ![y](http://evil) **b**",
        "no: &anchor *alias !!python/object:os.system 'quote\" # comment",
        f"{END}\n# after\n{BEGIN}",
    ]
) | st.text(max_size=30)


def front_matter(card: str) -> dict[str, object]:
    head = re.match(r"^(\s*---[\r\n]+)([\S\s]*?)([\r\n]+---(\r\n|\n|$))", card)  # as huggingface_hub reads it
    assert head
    return yaml.safe_load(head.group(2))


def structure(card: str) -> list[str]:
    """What a reader sees of the structure, without the text."""
    body = card.split("\n---\n", 1)[1]
    tokens = MARKDOWN.parse(body)
    inline = [child.type for token in tokens for child in token.children or ()]
    html = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert set(html) <= {BEGIN, END}
    return [token.type for token in tokens] + [
        kind for kind in inline if kind not in ("text", "code_inline", "html_inline")
    ]


# ── Metadata ──


def test_the_metadata_of_an_embedding_model():
    entries = front_matter(render_card(made_up.index()))

    assert entries.pop(STATE) == state_of(made_up.index())
    assert entries == {
        "license": "apache-2.0",
        "language": "en",
        "base_model": "sentence-transformers/all-MiniLM-L6-v2",
        "base_model_relation": "quantized",
        "pipeline_tag": "sentence-similarity",
        "library_name": "sentence-transformers",
        "tags": [
            "onnx",
            "openvino",
            "executorch",
            "torch.export",
            "transformers.exporters",
            "hub-exporter",
            "feature-extraction",
        ],
    }


def test_a_local_folder_has_no_base_model():
    entries = metadata(made_up.index(made_up.encoder(repo=None)))

    assert "base_model" not in entries
    assert "base_model_relation" not in entries


def test_tags_name_only_what_is_really_there():
    jobs = (made_up.passed("onnx"), made_up.not_passed("openvino", "mismatch", "differs"))

    tags = metadata(made_up.index(jobs=jobs))["tags"]

    assert "onnx" in tags
    assert "openvino" not in tags


@pytest.mark.parametrize(
    ("link", "repo", "expected"),
    [
        ("LICENSE", "org/model", f"https://huggingface.co/org/model/blob/{made_up.COMMIT}/LICENSE"),
        ("https://example.org/licence", "org/model", "https://example.org/licence"),
        ("config.json", None, "config.json"),  # carried along
        ("LICENSE", None, None),  # not carried along
        ("javascript:alert(1)", "org/model", None),
    ],
)
def test_a_licence_link_leads_somewhere_or_is_left_out(link, repo, expected):
    model = made_up.encoder(license="other", license_name="my-licence", license_link=link, repo=repo)

    assert metadata(made_up.index(model)).get("license_link") == expected


def test_a_licence_that_is_no_id_is_named_as_other():
    entries = metadata(made_up.index(made_up.encoder(license="Do what you like!")))

    assert (entries["license"], entries["license_name"]) == ("other", "Do what you like!")


@pytest.mark.parametrize(("tags", "expected"), [((), "text-generation"), (("translation",), "translation")])
def test_the_hub_has_no_tag_for_text_to_text(tags, expected):
    assert metadata(made_up.index(made_up.encoder(task="text2text-generation", tags=tags)))["pipeline_tag"] == expected


@settings(max_examples=50)
@given(hostile)
def test_no_text_of_others_breaks_the_metadata(text):
    model = made_up.encoder(license=text, license_name=text, languages=(text, "no"), tags=(text,), task=text)
    index = made_up.index(model, (made_up.passed("onnx"),))

    assert front_matter(render_card(index)) == metadata(index)


# ── The body ──


@settings(max_examples=30, deadline=None)
@given(hostile)
def test_no_text_of_others_changes_the_structure_of_the_card(text):
    def card(foreign: str) -> str:
        model = made_up.encoder(name=foreign, repo=None, architecture=foreign, task=foreign, commit=foreign)
        export = made_up.outcome("onnx", restrictions=(foreign,), notes=(foreign,), options={"x": foreign})
        checked = made_up.verification(reason=foreign, runtime=foreign, notes=(foreign,))
        tools = toolchain(pins=foreign, locked={"torch": foreign, foreign: "1"}, tested={foreign: (foreign,)}, ran={})
        jobs = (
            made_up.passed("onnx", export=export, verification=checked, job=foreign, toolchain=tools),
            made_up.not_passed("dynamo", "failed", foreign, job=foreign),
        )
        index = made_up.index(model, jobs)
        files = (made_up.artifact(foreign, b""), *index.side_files)
        capture = msgspec.structs.replace(made_up.capture(), path=foreign, revision=foreign, split=foreign)
        return render_card(msgspec.structs.replace(index, side_files=files, capture=capture))

    assert structure(card(text if one_line(text) else "x")) == structure(card("plain"))


def toolchain(**changes: object) -> Toolchain:
    made = Toolchain(
        pins="ab" * 32,
        isolated=True,
        tested={"torch": ("2.12.0",), "onnxscript": ("0.7.0",)},
        locked={"torch": "2.13.0", "onnxscript": "0.7.2", "numpy": "2.4.6", "jinja2": "3.1.6"},
        ran={"torch": "2.13.0+cpu", "onnxscript": "0.7.2", "numpy": "2.4.6", "jinja2": "3.1.6"},
    )
    return msgspec.structs.replace(made, **changes)


def test_the_card_says_what_was_tested_what_was_locked_and_what_ran():
    other = toolchain(isolated=False, tested={"torch": ("2.13.0",)}, locked={"torch": "2.13.0", "numpy": "2.4.6"})
    jobs = (made_up.passed("onnx", toolchain=toolchain()), made_up.passed("dynamo", toolchain=other))

    card = render_card(made_up.index(jobs=jobs))

    rows = [line for line in card.splitlines() if re.match(r"\| `(torch|onnxscript|numpy|jinja2)` \|", line)]
    assert rows == [
        "| `numpy` |  | 2.4.6 | 2.4.6 | all |",
        "| `onnxscript` | 0.7.0 | 0.7.2 | 0.7.2 | `all-MiniLM-L6-v2.onnx.fp32` |",
        "| `torch` | 2.12.0 | 2.13.0 | 2.13.0+cpu | `all-MiniLM-L6-v2.onnx.fp32` |",
        "| `torch` | 2.13.0 | 2.13.0 | 2.13.0+cpu | `all-MiniLM-L6-v2.dynamo.fp32` |",
    ]
    assert (
        "`all-MiniLM-L6-v2.onnx.fp32` ran in an environment of its locked packages, whose digest is `abababababab"
        in card
    )
    assert "`all-MiniLM-L6-v2.dynamo.fp32` ran in an environment that was not made from its locked packages" in card


def test_a_job_of_an_earlier_release_shows_what_ran():
    card = render_card(made_up.index(jobs=(made_up.passed("onnx"),)))

    assert "| `onnxruntime` |  |  | 1.32.0 | all |" in card


def test_what_did_not_pass_is_named_with_its_reason_and_without_files():
    jobs = (made_up.passed("onnx"), made_up.not_passed("openvino", "mismatch", "`logits` differs by 0.3"))

    card = render_card(made_up.index(jobs=jobs))

    assert "- `all-MiniLM-L6-v2.openvino.fp32`, disagrees with the original model: `logits` differs by 0.3" in card
    assert "openvino_model.xml" not in card


def test_the_agreement_of_a_language_model_counts_tokens():
    jobs = (made_up.passed("onnx", "SmolLM2-135M-Instruct", "decoder"),)

    row = "| `SmolLM2-135M-Instruct.onnx.fp32` | parity | onnxruntime 1.32.0 | 4e-05 | 1.000000 | 96/96 | 2×9, 1×5 |"

    assert row in render_card(made_up.index(made_up.decoder(), jobs))


def test_a_card_claims_a_comparison_only_where_there_was_one():
    unverified = made_up.verification(level="exported", reason="verification was switched off with `--no-verify`")

    card = render_card(made_up.index(jobs=(made_up.passed("onnx", verification=unverified),)))

    assert "Every graph was run" not in card
    assert "**exported**" in card
    assert "**parity**" not in card


def test_restrictions_and_the_cost_of_a_default_stand_beside_the_example():
    checked = made_up.verification(notes=("At the default precision the largest difference is 0.0013",))
    export = made_up.outcome("openvino", restrictions=("at most 512 tokens",))

    card = render_card(made_up.index(jobs=(made_up.passed("openvino", verification=checked, export=export),)))

    assert "- at most 512 tokens\n- At the default precision the largest difference is 0.0013\n" in card


def test_what_makes_scores_of_two_encoders_is_told():
    export = made_up.outcome("executorch-xnnpack", constants={"scale": 14.284855842590332, "bias": -0.25})
    export = msgspec.structs.replace(export, layout="two-encoders")

    card = render_card(made_up.index(jobs=(made_up.passed("executorch-xnnpack", export=export),)))

    assert "the cosine of theirs times 14.2848558, plus -0.25, as in the original model\n" in card


def test_the_command_names_commit_rows_and_backends():
    command = (
        "hub-exporter export sentence-transformers/all-MiniLM-L6-v2@c9745ed1d9f207416be6d2e6f8de32d1f16199bf "
        "--backends onnx --variants fp32 --task sentence-similarity --dataset rajpurkar/squad --dataset-split train "
        "--dataset-revision 7b6d24c440a36b6815f21b70d25016731768db1f --dataset-rows 16 --to ./out"
    )

    assert command in render_card(made_up.index(jobs=(made_up.passed("onnx"),)))


def test_generative_files_whose_answers_were_compared_have_the_command_that_asks_them():
    index = made_up.index(made_up.decoder(), (made_up.passed("onnx", layout="decoder", variant="int8"),))
    hears = made_up.index(msgspec.structs.replace(made_up.decoder(), task="speech-seq2seq"), index.jobs)
    unverified = made_up.verification(level="exported")
    jobs = (made_up.passed("onnx", layout="decoder", verification=unverified),)

    asked = "hub-exporter generate . --backend onnx --variant int8"
    assert f"{asked} --prompt 'Why is the sky blue?'\n" in render_card(index)
    assert f"{asked} --audio speech.wav\n" in render_card(hears)
    assert "hub-exporter generate" not in render_card(made_up.index(made_up.decoder(), jobs))
    assert "hub-exporter generate" not in render_card(made_up.index())


def test_graphs_without_an_example_say_what_each_of_them_takes_and_gives():
    cache = [f"past_key_values.{layer}.key" for layer in range(12)]
    given = tuple(made_up.port(name, "batch_size", 4) for name in ("token_type_ids", "inputs_embeds", *cache))
    decode = Component(name="decode", file="decode.onnx", inputs=given, outputs=(made_up.port("logits", "batch_size"),))
    pictures = (made_up.port("pixel_values", 1, 3, 8, 8, dtype="float32"),)
    encoder = Component(name="image_encoder", file="image_encoder.onnx", inputs=pictures, outputs=pictures)
    export = made_up.outcome("onnx", layout="multimodal", components=(encoder, decode))
    card = render_card(made_up.index(made_up.decoder(), (made_up.passed("onnx", export=export),)))

    assert "- image_encoder takes pixel_values: float32 (1, 3, 8, 8)\n" in card
    assert (
        "- decode takes token_type_ids: int64 (batch_size, 4); inputs_embeds: int64 (batch_size, 4); "
        "past_key_values.0.key: int64 (batch_size, 4), and so on for every layer\n"
        "- decode gives logits: int64 (batch_size)\n"
    ) in card


def test_every_kind_of_generative_model_can_be_asked_something():
    assert {task.inputs for task in TASKS.values() if task.layout != "encoder"} <= QUESTIONS.keys()


def test_a_variable_that_is_missing_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nothing_like_that }}").render()


# ── Somebody else's card ──

THEIRS = """---
license: mit
tags: [mine]
datasets:
- a/b
---
# My model

Some text.
"""


def test_their_text_stays_and_their_metadata_wins():
    merged = merge_card(THEIRS, made_up.index())

    entries = front_matter(merged)
    assert entries["license"] == "mit"
    assert entries["datasets"] == ["a/b"]
    assert entries["tags"][:2] == ["mine", "onnx"]
    assert entries["base_model_relation"] == "quantized"
    assert "\n# My model\n\nSome text.\n\n" + render_section(made_up.index()) in merged


def test_our_section_is_renewed_in_place():
    merged = merge_card(merge_card(THEIRS, made_up.index()) + "\nTheir end.\n", made_up.index())
    again = merge_card(merged, made_up.index(jobs=(made_up.passed("onnx"),)))

    assert again.count(BEGIN) == again.count(END) == 1
    assert "openvino_model.xml" in merged
    assert "openvino_model.xml" not in again
    assert again.endswith("\nTheir end.\n")


def test_a_licence_is_not_made_of_theirs_and_ours():
    index = made_up.index(made_up.encoder(license="other", license_name="ours", license_link="https://example.org"))

    assert "license_name" not in front_matter(merge_card(THEIRS, index))


def test_metadata_that_cannot_be_read_is_left_alone():
    broken = "---\nlicense: [mit\n---\n# Mine\n"

    assert merge_card(broken, made_up.index()).startswith(broken)


def test_a_card_without_metadata_gets_some():
    merged = merge_card("# Mine\n", made_up.index())

    assert front_matter(merged)["license"] == "apache-2.0"
    assert "# Mine\n" in merged


@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        "Before\n\n\nafter.  \n",
        "No line end",
        "",
        f"A stray {BEGIN} of somebody who wrote about it\n",
        f"A stray {END}\n",
        f"{END} the wrong way round {BEGIN}\n",
    ],
)
def test_every_byte_around_our_section_stays_however_often_it_is_renewed(text, line):
    theirs = text.replace("\n", line)
    once = merge_card(f"---{line}license: mit{line}---{line}{theirs}", made_up.index())
    more = merge_card(once + f"Theirs.{line}", made_up.index(jobs=(made_up.passed("onnx"),)))
    again = merge_card(more, made_up.index(jobs=(made_up.passed("onnx"),)))

    section = render_section(made_up.index(jobs=(made_up.passed("onnx"),))).replace("\n", line)
    before, _, after = more.partition(section)
    assert before.endswith(theirs) or before.rstrip("\r\n").endswith(theirs.rstrip("\r\n"))
    assert theirs in before
    assert after.endswith(f"Theirs.{line}")
    assert again == more


def test_the_models_own_card_names_no_base_model():
    assert "base_model" in metadata(made_up.index())
    assert not {"base_model", "base_model_relation"} & metadata(made_up.index(), own=True).keys()


def test_a_pull_request_tells_how_to_load_it_and_how_well_it_agrees():
    text = render_pull_request(made_up.index(), "org/model", 7)

    assert 'revision="refs/pr/7"' in text
    assert '"org/model",' in text
    assert "| `all-MiniLM-L6-v2.onnx.fp32` | parity |" in text
    assert made_up.COMMIT in text
    assert "number of this pull request" in render_pull_request(made_up.index(), "org/model", None)
