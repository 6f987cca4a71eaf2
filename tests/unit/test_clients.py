"""The contracts of clients: each row is kept by the files that we write, and each of its rules can be broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import made_up
import msgspec
import pytest

from hub_exporter import clients
from hub_exporter.clients import Offer, broken, satisfied, table
from hub_exporter.records import Component, JobResult, Port
from hub_exporter.snippets import environment

SIDE = (
    *("config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    "genai_config.json",
)
GENAI = {
    "model": {"decoder": {"filename": "onnx/model.onnx", "num_hidden_layers": 1}},
    "search": {"past_present_share_buffer": False},
}
BESIDE = ("openvino_tokenizer.xml", "openvino_tokenizer.bin", "openvino_detokenizer.xml", "openvino_detokenizer.bin")


def offer(backend: str, layout: str, side: tuple[str, ...] = SIDE, files: dict[str, Any] | None = None) -> Offer:
    """What is published of a BERT or a Llama when everything is as it should be."""
    job = made_up.passed(backend, layout=layout)
    extra = BESIDE if backend == "openvino" else ()
    artifacts = [*job.artifacts, *(made_up.artifact(f"{job.folder}/{name}", b"x") for name in extra)]
    found = Offer(
        model=made_up.encoder() if layout == "encoder" else made_up.decoder(),
        job=msgspec.structs.replace(job, artifacts=tuple(artifacts)),
        side=frozenset(side),
        read=lambda path: {"genai_config.json": GENAI, **(files or {})}.get(path, {}),
    )
    if backend == "onnx":
        found = changed(found, opsets={"ai.onnx": 20}, ir_version=10)
    if backend == "openvino":
        found = changed(found, data="openvino_model.bin", outputs=found.parts[0].outputs[:1])
    return found


def changed(given: Offer, **changes: Any) -> Offer:
    """The offer with another graph."""
    assert given.job.export is not None
    part = msgspec.structs.replace(given.parts[0], **changes)
    export = msgspec.structs.replace(given.job.export, components=(part,))
    return with_job(given, export=export)


def with_job(given: Offer, **changes: Any) -> Offer:
    job = msgspec.structs.replace(given.job, **changes)
    return Offer(given.model, job, given.side, given.read)


def ports(part: Component, side: str, change: Callable[[Port], Port]) -> dict[str, tuple[Port, ...]]:
    return {side: tuple(map(change, getattr(part, side)))}


def renamed(given: Offer, old: str, new: str) -> Offer:
    def change(port: Port) -> Port:
        return msgspec.structs.replace(port, name=new) if port.name == old else port

    part = given.parts[0]
    return changed(given, **ports(part, "inputs", change), **ports(part, "outputs", change))


def retyped(given: Offer, name: str, dtype: str) -> Offer:
    def change(port: Port) -> Port:
        return msgspec.structs.replace(port, dtype=dtype) if port.name == name else port

    part = given.parts[0]
    return changed(given, **ports(part, "inputs", change), **ports(part, "outputs", change))


def without(given: Offer, name: str) -> Offer:
    return with_job(given, artifacts=tuple(a for a in given.job.artifacts if not a.path.endswith(f"/{name}")))


def emptied(given: Offer, name: str) -> Offer:
    artifacts = [made_up.artifact(a.path, b"") if a.path.endswith(f"/{name}") else a for a in given.job.artifacts]
    return with_job(given, artifacts=tuple(artifacts))


OFFERS = {
    (backend, layout): offer(backend, layout)
    for backend in ("onnx", "openvino", "executorch-xnnpack", "dynamo")
    for layout in ("encoder", "decoder")
}

KEPT = {
    ("onnx", "encoder"): {"transformers", "onnxruntime", "sentence-transformers", "transformers.js", "optimum-onnx"},
    ("onnx", "decoder"): {"transformers", "onnxruntime", "transformers.js", "onnxruntime-genai", "optimum-onnx"},
    ("openvino", "encoder"): {
        *("transformers", "openvino", "sentence-transformers", "optimum-intel", "openvino-genai"),
    },
    ("openvino", "decoder"): {"transformers", "openvino", "optimum-intel", "openvino-genai"},
    ("executorch-xnnpack", "encoder"): {"transformers", "executorch"},
    ("executorch-xnnpack", "decoder"): {"transformers", "executorch", "executorch-llm"},
    ("dynamo", "encoder"): {"transformers", "torch"},
    ("dynamo", "decoder"): {"transformers", "torch"},
}


@pytest.mark.parametrize(("what", "names"), KEPT.items(), ids=["-".join(what) for what in KEPT])
def test_what_we_write_keeps_every_contract_that_is_about_it(what, names):
    found = satisfied(OFFERS[what])

    assert set(found) == names
    assert len(found) == len(names), "no name twice"
    assert {row.name for row in clients.rows_of(OFFERS[what].job)} == names


def rows(name: str) -> list[tuple[clients.Client, Offer]]:
    """Every row of a client with an offer that it is about."""
    pairs = [(row, given) for given in OFFERS.values() for row in clients.rows_of(given.job)]
    return [(row, given) for row, given in pairs if row.name == name]


ONNX_READERS = ("sentence-transformers", "transformers.js", "onnxruntime-genai", "optimum-onnx")
OTHERS = (*ONNX_READERS, "optimum-intel", "openvino-genai", "executorch-llm")


def expect(name: str, change: Callable[[Offer], Offer], words: str, backend: str = "") -> None:
    cases = [(row, given) for row, given in rows(name) if backend in given.job.backend]
    assert cases, f"no row of {name}"
    for row, given in cases:
        assert broken(row, given) is None
        found = broken(row, change(given))
        assert found is not None, f"{row.name} does not notice"
        assert words in found


@pytest.mark.parametrize("name", sorted({row.name for row in table()}))
def test_a_missing_program_is_noticed(name):
    expect(name, lambda given: without(given, given.parts[0].file), "is missing or empty")


@pytest.mark.parametrize("name", sorted({row.name for row in table()}))
def test_an_empty_program_is_noticed(name):
    expect(name, lambda given: emptied(given, given.parts[0].file), "is missing or empty")


@pytest.mark.parametrize("name", sorted({row.name for row in table()}))
def test_missing_weights_beside_the_program_are_noticed(name):
    expect(name, lambda given: changed(given, data="model.onnx_data"), "`model.onnx_data` is missing or empty")


@pytest.mark.parametrize("name", OTHERS)
def test_a_renamed_input_is_noticed(name):
    expect(name, lambda given: renamed(given, "input_ids", "ids"), "input `ids`")


@pytest.mark.parametrize("name", OTHERS)
def test_a_narrower_input_is_noticed(name):
    expect(name, lambda given: retyped(given, "input_ids", "int32"), "`input_ids` is int32, not int64")


@pytest.mark.parametrize("name", ["transformers.js", "onnxruntime-genai", "optimum-onnx"])
def test_a_cache_of_half_precision_is_noticed(name):
    def change(given: Offer) -> Offer:
        if given.job.export.layout == "encoder":  # type: ignore[union-attr]
            return retyped(given, "last_hidden_state", "float16")
        return retyped(given, "past_key_values.0.key", "float16")

    expect(name, change, "is float16, not float32", backend="onnx")


@pytest.mark.parametrize("name", ["sentence-transformers", "openvino-genai"])
def test_another_output_is_noticed(name):
    def change(given: Offer) -> Offer:
        return renamed(renamed(given, "last_hidden_state", "hidden"), "logits", "scores")

    expect(name, change, "it wants")


@pytest.mark.parametrize("name", ONNX_READERS)
def test_too_high_versions_are_noticed(name):
    expect(name, lambda given: changed(given, opsets={"ai.onnx": 24}), "opset 24", backend="onnx")
    expect(name, lambda given: changed(given, ir_version=11), "IR 11", backend="onnx")
    expect(name, lambda given: changed(given, opsets={}), "opset unknown", backend="onnx")


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_only_load_are_promised_to_nobody(name):
    loaded = made_up.verification(level="loaded")

    expect(name, lambda given: with_job(given, verification=loaded), "only `loaded`")
    expect(name, lambda given: with_job(given, verification=None), "only `exported`")


def test_the_runtime_itself_may_only_load_them():
    loaded = made_up.verification(level="loaded")
    found = satisfied(with_job(OFFERS["onnx", "decoder"], verification=loaded))

    assert found == ("transformers", "onnxruntime")


@pytest.mark.parametrize(("row", "name"), [(row, name) for row in table() for name in row.side])
def test_every_side_file_is_needed(row, name):
    backend, layout = row.backends[0], row.layouts[0].replace("static-decoder", "decoder")
    given = offer(backend, layout, tuple(other for other in SIDE if other != name))

    assert broken(row, given) == f"there is no `{name}`"


@pytest.mark.parametrize(("row", "name"), [(row, name) for row in table() for name in row.beside])
def test_every_file_beside_the_program_is_needed(row, name):
    for backend in row.backends:
        for layout in row.layouts or ("encoder", "decoder"):
            given = without(OFFERS[backend, layout.replace("static-decoder", "decoder")], name)
            assert broken(row, given) == f"`{name}` is not beside the graph"


@pytest.mark.parametrize("name", ["sentence-transformers", "optimum-onnx", "optimum-intel", "transformers.js"])
def test_a_model_type_that_is_younger_is_noticed(name):
    def change(given: Offer) -> Offer:
        return Offer(msgspec.structs.replace(given.model, model_type="tomorrow"), given.job, given.side, given.read)

    expect(name, change, "no model type `tomorrow`")


def test_code_of_the_repository_is_noticed():
    def change(given: Offer) -> Offer:
        return Offer(msgspec.structs.replace(given.model, remote_code=True), given.job, given.side, given.read)

    expect("optimum-onnx", change, "own code")


def one(name: str, backend: str, layout: str) -> clients.Client:
    rows = [row for row in clients.rows_of(OFFERS[backend, layout].job) if row.name == name]
    assert len(rows) == 1
    return rows[0]


def cached(*shape: int | str) -> Offer:
    def change(port: Port) -> Port:
        return msgspec.structs.replace(port, shape=shape) if port.name.startswith("past") else port

    given = OFFERS["onnx", "decoder"]
    return changed(given, **ports(given.parts[0], "inputs", change))


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("transformers.js", ("batch", "num_key_value_heads", "past_sequence_length", "head_dim"), "`batch_size`"),
        ("optimum-onnx", ("batch_size", 3, "past_sequence_length", 64), "fixed sizes"),
    ],
)
def test_the_axes_of_a_cache_matter(name, shape, words):
    assert words in (broken(one(name, "onnx", "decoder"), cached(*shape)) or "")


def outside(files: dict[str, Any]) -> Offer:
    given = changed(offer("onnx", "encoder", files=files), data="model.onnx_data")
    return with_job(given, artifacts=(*given.job.artifacts, made_up.artifact("onnx/model.onnx_data", b"x")))


def test_a_browser_has_to_be_told_of_data_outside():
    told = {"config.json": {"transformers.js_config": {"use_external_data_format": {"model.onnx": 1}}}}
    row = one("transformers.js", "onnx", "encoder")

    assert broken(row, outside(told)) is None
    assert "does not say" in (broken(row, outside({})) or "")
    assert broken(one("optimum-onnx", "onnx", "encoder"), outside({})) is None


def test_data_of_another_name_is_not_fetched_from_the_hub():
    given = offer("onnx", "encoder")
    other = made_up.artifact("onnx/model.onnx.data", b"x")
    kept = tuple(a for a in given.job.artifacts if a.path != other.path)
    given = with_job(changed(given, data="model.onnx.data"), artifacts=(*kept, other))

    for name in ("optimum-onnx", "sentence-transformers", "transformers.js"):
        assert "it fetches `model.onnx_data`" in (broken(one(name, "onnx", "encoder"), given) or "")


def test_a_chat_template_in_a_file_alone_is_not_seen():
    side, row = (*SIDE, "chat_template.jinja"), one("transformers.js", "onnx", "decoder")
    inside = {"tokenizer_config.json": {"chat_template": "{{ messages }}"}}

    assert "chat template" in (broken(row, offer("onnx", "decoder", side)) or "")
    assert broken(row, offer("onnx", "decoder", side, inside)) is None


def test_a_tokenizer_of_transformers_5_is_noticed():
    files = {"tokenizer_config.json": {"tokenizer_class": "TokenizersBackend"}}

    for row in (one("optimum-onnx", "onnx", "decoder"), one("sentence-transformers", "onnx", "encoder")):
        given = offer("onnx", row.layouts[0], files=files)
        assert broken(row, given) == "transformers 4 has no `TokenizersBackend`, which `tokenizer_config.json` names"
    assert broken(one("optimum-intel", "openvino", "decoder"), offer("openvino", "decoder", files=files)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"decoder": {"filename": "onnx/other.onnx", "num_hidden_layers": 1}}}, "another graph"),
        ({"model": {"decoder": {"filename": "onnx/model.onnx", "num_hidden_layers": 2}}}, "different layers"),
        ({"search": {"past_present_share_buffer": True}}, "shares a buffer"),
    ],
)
def test_a_configuration_for_another_graph_is_noticed(change, words):
    files = {"genai_config.json": GENAI | change}

    found = broken(one("onnxruntime-genai", "onnx", "decoder"), offer("onnx", "decoder", files=files))

    assert words in (found or "")


def test_openvino_clients_of_decoders_want_the_cache_inside():
    part = OFFERS["openvino", "decoder"].parts[0]
    given = changed(
        OFFERS["openvino", "decoder"], inputs=tuple(port for port in part.inputs if port.name != "beam_idx")
    )

    for name in ("optimum-intel", "openvino-genai"):
        assert "`beam_idx`" in (broken(one(name, "openvino", "decoder"), given) or "")


def test_the_engines_loader_wants_its_data_file():
    given = without(OFFERS["onnx", "decoder"], "model.onnx.data")

    assert broken(one("transformers", "onnx", "decoder"), given) == "`model.onnx.data` is not beside the graph"


def variant(name: str) -> Offer:
    given = OFFERS["onnx", "encoder"]
    made = made_up.artifact(f"onnx/{name}", b"x")
    return with_job(changed(given, file=name), artifacts=(made,), verification=made_up.verification(level="close"))


@pytest.mark.parametrize("name", ["model_fp16.onnx", "model_quantized.onnx", "model_q4.onnx"])
def test_a_smaller_variant_is_for_those_that_know_its_name(name):
    found = satisfied(variant(name))

    assert found == ("onnxruntime", "transformers.js")
    row = one("optimum-onnx", "onnx", "encoder")
    assert broken(row, variant(name)) == f"it does not open `{name}` without being told"


def test_transformers_js_is_not_promised_a_file_of_another_name():
    row = one("transformers.js", "onnx", "encoder")

    assert broken(row, variant("model_int3.onnx")) == "it does not open `model_int3.onnx` without being told"


def test_every_rule_of_the_table_exists_and_is_used():
    assert {rule for row in table() for rule in row.rules} == set(clients.RULES)
    assert {row.types for row in table() if row.types} == set(clients._table()["types"])


def test_every_client_that_is_installed_has_an_example():
    examples = {row.name for row in table() if row.install}

    assert {f"clients/{name}.j2" for name in examples} == {
        name for name in environment().list_templates() if name.startswith("clients/")
    }


# ── In the index ──


def described(results: tuple[JobResult, ...], tmp_path, **changes: Any):
    from hub_exporter import publish
    from hub_exporter.records import INDEX_FILE, Index, from_json

    model = made_up.encoder(side_files=("config.json", "modules.json", "tokenizer_config.json"), **changes)
    publish.write_folder(tmp_path / "place" / "out", made_up.run(tmp_path, results, model))
    return from_json((tmp_path / "place" / "out" / INDEX_FILE).read_bytes(), Index)


def test_the_index_says_which_clients_load_a_job_and_how_large_it_is(tmp_path):
    job = OFFERS["onnx", "encoder"].job
    size = next(artifact.size for artifact in job.artifacts if artifact.path == "onnx/model.onnx")

    index = described((job,), tmp_path, parameters=size // 2)

    assert index.jobs[0].clients == ("transformers", "onnxruntime", "sentence-transformers", "optimum-onnx")
    assert index.jobs[0].size_ratio == round(size / (4 * (size // 2)), 4)
    assert "transformers.js" not in index.jobs[0].clients, "there is no tokenizer.json"


def test_the_card_names_them_with_an_example_each(tmp_path):
    described((OFFERS["onnx", "encoder"].job,), tmp_path)

    card = (tmp_path / "place" / "out" / "README.md").read_text("utf-8")
    assert "loads without help in transformers (`ExportedModel`), ONNX Runtime, sentence-transformers, optimum" in card
    assert 'SentenceTransformer(".", backend="onnx")' in card
    assert "ORTModelForFeatureExtraction" in card
    assert "transformers.js" not in card.replace('"transformers.js_config"', "")


def test_a_second_run_settles_although_the_first_knew_its_clients(tmp_path):
    before = described((OFFERS["onnx", "encoder"].job,), tmp_path)

    after = described((msgspec.structs.replace(OFFERS["onnx", "encoder"].job, seconds=99.0),), tmp_path)

    assert after == before
    assert json.loads((tmp_path / "place" / "out" / "config.json").read_bytes())["transformers.js_config"]
