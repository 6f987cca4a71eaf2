from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import hub_exporter
from hub_exporter import schema
from hub_exporter.checks import MINIMUM_ROWS
from hub_exporter.errors import UsageError
from hub_exporter.flags import FLAGS
from hub_exporter.recipe import load_recipe, requests
from hub_exporter.records import (
    AxisBounds,
    DatasetSpec,
    EngineOptions,
    GenerationOptions,
    ModelRequest,
    Runner,
    Setting,
)
from hub_exporter.sample import HELD_OUT

FULL = """
defaults:
  backends: [onnx, openvino, executorch-xnnpack]
  variants: [fp32]
models:
  - source: org/my-model@v1.2
    target: org/my-model
    backends: [onnx, openvino, executorch-xnnpack, dynamo]
    dataset: {path: org/rows, split: train, columns: {text: sentence}, rows: 8}
  - source: org/chat-model
    target: org/chat-model-exports
    variants: [fp32, int8]
    engine:
      multi_token_decode: true
      generation: {cache: static, max_cache_len: 2048}
      dynamic_shapes: {sequence_length: {max: 4096}}
runners: {linux-cpu: ubuntu-latest, linux-cuda: our-gpu, macos-arm64: macos-15}
publish: {mode: pull-request, require: any}
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(
    text: str | dict[str, Any] | None = None, *sources: str, flags: dict[str, Any] | None = None
) -> tuple[ModelRequest, ...]:
    """Requests of a recipe that lies in the working directory, as the user would name it."""
    if text is None:
        return requests(None, sources, flags)
    Path("hub-exporter.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text), encoding="utf-8")
    return requests(load_recipe(Path("hub-exporter.yaml")), sources, flags)


def refusal(*args: Any, **kwargs: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        ask(*args, **kwargs)
    return caught.value


def origins(request: ModelRequest) -> dict[str, str]:
    return {setting.key: setting.origin for setting in request.origins}


def test_recipe_of_the_documentation_is_understood() -> None:
    first, second = ask(FULL)

    assert first.settings.backends == ("onnx", "openvino", "executorch-xnnpack", "dynamo")
    assert first.settings.dataset == DatasetSpec(path="org/rows", columns={"text": "sentence"}, rows=8)
    assert second.settings.backends == ("onnx", "openvino", "executorch-xnnpack")
    assert second.settings.variants == ("fp32", "int8")
    assert second.settings.engine.generation == GenerationOptions(cache="static", max_cache_len=2048)
    assert second.settings.engine.dynamic_shapes == {"sequence_length": AxisBounds(max=4096)}


def test_a_source_alone_gets_the_defaults_and_no_origins() -> None:
    (request,) = ask(None, "./bert")

    assert request.origins == ()
    assert request.settings.source == "./bert"
    assert request.settings.target == "./out"
    assert request.settings.backends == ("onnx", "openvino", "executorch-xnnpack", "dynamo")
    assert request.settings.variants == (), "each backend's first"
    assert request.settings.time_limit == 60
    assert request.settings.dataset is None


def test_levels_win_in_order_and_are_told() -> None:
    recipe = {
        "defaults": {"backends": ["onnx"], "time-limit": 5, "engine": {"optimize": False, "opset_version": 18}},
        "models": [{"source": "./bert", "engine": {"opset_version": 20}, "time-limit": 6}],
    }
    (request,) = ask(recipe, flags={"--time-limit": 7, "--dataset": "builtin"})

    assert request.settings.time_limit == 7
    assert request.settings.engine == EngineOptions(optimize=False, opset_version=20)
    assert origins(request) == {
        "backends": "hub-exporter.yaml: defaults",
        "time-limit": "--time-limit",
        "engine.optimize": "hub-exporter.yaml: defaults",
        "engine.opset_version": "hub-exporter.yaml: models[0]",
        "dataset.path": "--dataset",
    }
    assert Setting(key="engine.opset_version", value=20, origin="hub-exporter.yaml: models[0]") in request.origins


def test_an_explicit_value_wins_even_if_it_is_the_built_in_one() -> None:
    recipe = {
        "defaults": {"trust-remote-code": True, "dataset": {"path": "rows.jsonl", "rows": 32}},
        "models": [{"source": "./bert", "trust-remote-code": False, "dataset": {"rows": 16}}],
    }
    (request,) = ask(recipe)

    assert request.settings.trust_remote_code is False
    assert request.settings.dataset == DatasetSpec(path="rows.jsonl", rows=16)
    assert set(origins(request)) == {"dataset.path"}


def test_null_takes_a_default_back() -> None:
    recipe = {"defaults": {"task": "fill-mask"}, "models": [{"source": "./a"}, {"source": "./b", "task": None}]}
    first, second = ask(recipe)

    assert first.settings.task == "fill-mask"
    assert second.settings.task is None
    assert origins(second) == {}


def test_another_dataset_does_not_inherit_what_described_the_first() -> None:
    dataset = {"path": "org/rows", "name": "en", "columns": {"text": "sentence"}, "revision": "v1", "rows": 32}
    (request,) = ask(
        {"defaults": {"dataset": dataset}, "models": [{"source": "./bert"}]}, flags={"--dataset": "builtin"}
    )

    assert request.settings.dataset == DatasetSpec(path="builtin", rows=32)
    assert origins(request) == {"dataset.rows": "hub-exporter.yaml: defaults", "dataset.path": "--dataset"}


def test_the_same_dataset_keeps_its_description() -> None:
    (request,) = ask(
        {"defaults": {"dataset": {"path": "org/rows", "name": "en"}}, "models": [{"source": "./bert"}]},
        flags={"--dataset": "org/rows", "--dataset-split": "test"},
    )

    assert request.settings.dataset == DatasetSpec(path="org/rows", name="en", split="test")


def test_flags_say_what_a_recipe_says() -> None:
    entry = {
        "source": "./bert",
        "target": "./exports",
        "task": "fill-mask",
        "backends": ["onnx", "executorch-xnnpack"],
        "variants": ["fp32"],
        "dataset": {
            "path": "rows.jsonl",
            "name": "en",
            "split": "test",
            "columns": {"text": "a"},
            "rows": 9,
            "revision": "v1",
        },
        "engine": {
            "optimize": False,
            "generation": {"cache": "static"},
            "dynamic_shapes": {"batch_size": {"max": 4}},
            "components": {"decode": {"alloc_graph_input": False}},
        },
        "trust-remote-code": True,
        "time-limit": 3,
    }
    flags = {
        "--to": "./exports",
        "--task": "fill-mask",
        "--backends": "onnx,executorch-xnnpack",
        "--variants": ["fp32"],
        "--dataset": "rows.jsonl",
        "--dataset-name": "en",
        "--dataset-split": "test",
        "--dataset-columns": "text=a",
        "--dataset-rows": 9,
        "--dataset-revision": "v1",
        "--engine": [
            "optimize=false",
            "generation.cache=static",
            "dynamic_shapes={batch_size: {max: 4}}",
            "components.decode.alloc_graph_input=false",
        ],
        "--trust-remote-code": True,
        "--time-limit": 3,
    }

    assert set(flags) == set(FLAGS)
    assert ask({"models": [entry]})[0].settings == ask(None, "./bert", flags=flags)[0].settings


def test_flags_that_were_not_given_change_nothing() -> None:
    assert ask(None, "./bert", flags=dict.fromkeys(FLAGS) | {"--backends": [], "--engine": ()}) == ask(None, "./bert")


def test_sources_select_models_of_the_recipe() -> None:
    assert [request.settings.source for request in ask(FULL, "org/chat-model")] == ["org/chat-model"]

    error = refusal(FULL, "org/chatmodel")
    assert "hub-exporter.yaml: there is no model with the source `org/chatmodel`" in str(error)
    assert "did you mean `org/chat-model`?" in str(error)


def test_a_selected_model_keeps_its_folder_in_a_shared_target() -> None:
    recipe = {"models": [{"source": "./a"}, {"source": "./b"}]}

    assert [request.shared_target for request in ask(recipe)] == [True, True]
    assert [request.shared_target for request in ask(recipe, "./b")] == [True]


def test_nothing_to_export_is_refused() -> None:
    assert "No model was named" in str(refusal())
    assert "No model was named" in str(refusal(None, ""))
    assert "hub-exporter.yaml: models: there is no model" in str(refusal(""))
    assert "hub-exporter.yaml: models: there is no model" in str(refusal({"models": []}))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"backend": ["onnx"]}, "models[0].backend: unknown key, did you mean `backends`?"),
        ({"time_limit": 3}, "models[0].time_limit: unknown key, did you mean `time-limit`?"),
        ({"engine": {"optimise": True}}, "models[0].engine.optimise: unknown key, did you mean `optimize`?"),
        ({"zzz": 1}, "models[0].zzz: unknown key"),
        ({"backends": "onnx"}, "models[0].backends: expected a list, got the text `onnx`"),
        ({"backends": ["onnx", 3]}, "models[0].backends[1]: expected text, got the number `3`"),
        ({"engine": {"optimize": "no"}}, "models[0].engine.optimize: expected `true` or `false`, got the text `no`"),
        ({"time-limit": 1.5}, "models[0].time-limit: expected a whole number, got the number `1.5`"),
        ({"time-limit": True}, "models[0].time-limit: expected a whole number, got `true`"),
        ({"time-limit": 0}, "models[0].time-limit: at least 1 minute, got 0"),
        ({"dataset": {"rows": 4}}, "models[0].dataset.rows: at least 8 are needed, got 4"),
        ({"dataset": "rows.jsonl"}, "models[0].dataset: expected keys and values, got the text `rows.jsonl`"),
        ({"dataset": {"name": "en"}}, "models[0].dataset.name: no dataset is named"),
        ({"engine": None}, "models[0].engine: expected keys and values, got nothing"),
        ({"backends": ["onx"]}, "models[0].backends: unknown backend `onx`, did you mean `onnx`?"),
        ({"backends": []}, "models[0].backends: names no backend"),
        ({"variants": ["fp23"]}, "models[0].variants: unknown variant `fp23`, did you mean `fp32`?"),
        ({"task": "fil-mask"}, "models[0].task: unknown task `fil-mask`, did you mean `fill-mask`?"),
        (
            {"engine": {"generation": {"cache": "statik"}}},
            "models[0].engine.generation.cache: expected one of `dynamic`, `static`, `none`, got the text `statik`, "
            "did you mean `static`?",
        ),
        (
            {"engine": {"dynamic_shapes": {"sequence_length": {"maxx": 3}}}},
            "models[0].engine.dynamic_shapes.sequence_length.maxx: unknown key, did you mean `max`?",
        ),
        (
            {"engine": {"components": {"decode": {"optimise": True}}}},
            "models[0].engine.components.decode.optimise: unknown key, did you mean `optimize`?",
        ),
        (
            {"engine": {"components": {"decode": {"optimize": 3}}}},
            "models[0].engine.components.decode.optimize: expected `true` or `false`, got the number `3`",
        ),
    ],
)
def test_mistake_in_a_recipe_is_named_with_its_place(entry: dict[str, Any], message: str) -> None:
    assert str(refusal({"models": [{"source": "./bert", **entry}]})) == f"hub-exporter.yaml: {message}"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"modles": []}, "modles: unknown key, did you mean `models`?"),
        ({"models": [{"target": "./out"}]}, "models[0].source: missing"),
        ({"models": ["./bert"]}, "models[0]: expected keys and values, got the text `./bert`"),
        ({"defaults": {"source": "./a"}, "models": [{"source": "./a"}]}, "defaults.source: belongs to a model"),
        (
            {"models": [{"source": "./a"}], "runners": {"linux": "x"}},
            "runners: unknown kind of runner `linux`, did you mean `linux-cpu`?",
        ),
        (["a"], "expected keys and values, got a list"),
        (
            {"models": [{"source": "./a"}], "runners": {"linux-cpu": 5}},
            "runners.linux-cpu: expected text, got the number `5`",
        ),
        ({"models": [{"source": "./a"}], "runners": {"linux-cpu": ""}}, "runners.linux-cpu: names no label"),
        ({"models": [{"source": "./a"}], "runners": {"linux-cpu": []}}, "runners.linux-cpu: names no label"),
        ({"models": [{"source": "./a"}], "runners": {"linux-cpu": ["a", 1]}}, "runners.linux-cpu[1]: expected text"),
        (
            {"models": [{"source": "./a"}], "runners": {"linux-cpu": {"memory": 64}}},
            "runners.linux-cpu: names no label",
        ),
        (
            {"models": [{"source": "./a"}], "runners": {"linux-cpu": {"labels": ["a"]}}},
            "runners.linux-cpu.labels: unknown key, did you mean `label`?",
        ),
        (
            {"models": [{"source": "./a"}], "runners": {"linux-cpu": {"label": "a", "memory": 0}}},
            "runners.linux-cpu.memory: a runner has more than 0 GB, got 0",
        ),
        (
            {"models": [{"source": "./a"}], "runners": {"linux-cpu": {"label": "a", "disk": "big"}}},
            "runners.linux-cpu.disk: expected a number, got the text `big`",
        ),
    ],
)
def test_mistake_beside_the_models_is_named_with_its_place(recipe: dict[str, Any], message: str) -> None:
    assert str(refusal(recipe)).startswith(f"hub-exporter.yaml: {message}")


@pytest.mark.parametrize(
    ("written", "runner"),
    [
        ("big", "big"),
        ("[self-hosted, gpu]", ("self-hosted", "gpu")),
        ("{label: big, memory: 64, disk: 300.5}", Runner(label="big", memory=64, disk=300.5)),
        ("{group: large, label: [a, b]}", Runner(group="large", label=("a", "b"))),
        ("{group: large}", Runner(group="large")),
    ],
)
def test_a_runner_is_a_label_or_labels_or_what_it_has(written: str, runner: object) -> None:
    text = f"models: [{{source: ./bert}}]\nrunners: {{linux-cpu: {written}}}\n"
    Path("hub-exporter.yaml").write_text(text, encoding="utf-8")

    assert load_recipe(Path("hub-exporter.yaml")).runners["linux-cpu"] == runner
    jsonschema.validate(yaml.safe_load(text), schema.schema())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"--backends": "onnx,onx"}, "--backends: unknown backend `onx`, did you mean `onnx`?"),
        ({"--backends": "ONNX"}, "--backends: unknown backend `ONNX`, did you mean `onnx`?"),
        ({"--to": ""}, "--to: names no folder"),
        ({"--dataset-rows": 4}, "--dataset-rows: at least 8 are needed, got 4"),
        ({"--dataset-columns": "text"}, "--dataset-columns: expected `key=value`, got `text`"),
        ({"--dataset-columns": "text=a"}, "--dataset-columns: no dataset is named"),
        ({"--engine": ["optimise=true"]}, "--engine: optimise: unknown key, did you mean `optimize`?"),
        ({"--engine": ["optimize=3"]}, "--engine: optimize: expected `true` or `false`, got the number `3`"),
        ({"--engine": ["optimize"]}, "--engine: expected `key=value`, got `optimize`"),
        ({"--engine": ["dynamic=true", "dynamic.x=1"]}, "--engine: dynamic.x: `dynamic` has a value already"),
        ({"--dataset-rows": "9"}, "--dataset-rows: expected a whole number, got the text `9`"),
        ({"--time-limit": 0}, "--time-limit: at least 1 minute, got 0"),
    ],
)
def test_mistake_in_a_flag_is_named_with_the_flag(flags: dict[str, Any], message: str) -> None:
    assert str(refusal(None, "./bert", flags=flags)) == message


@pytest.mark.parametrize(
    ("engine", "backends", "message"),
    [
        ({"opset_version": 18}, "openvino,dynamo", "opset_version: means nothing to `openvino`, `dynamo`"),
        ({"stateful": True}, "onnx", "stateful: means nothing to `onnx`"),
        ({"components": {"decode": {"stateful": True}}}, "onnx", "components.decode.stateful: means nothing to `onnx`"),
        ({"ort_fusions": "cpu", "optimize": False}, "onnx", "ort_fusions: the fusions need `optimize: true`"),
        (
            {"ort_fusions": "cpu", "components": {"decode": {"optimize": False}}},
            "onnx",
            "ort_fusions: the fusions need `optimize: true`",
        ),
        ({"opset_version": 0}, "onnx", "opset_version: must be at least 1, got 0"),
        (
            {"generation": {"max_cache_len": 64}},
            "onnx",
            "generation.max_cache_len: only a static cache has a length on `onnx`: add `cache: static`",
        ),
        (
            {"generation": {"cache": "static", "max_cache_len": 0}},
            "onnx",
            "generation.max_cache_len: must be at least 1, got 0",
        ),
        (
            {"dynamic_shapes": {"batch_size": {"min": 4, "max": 2}}},
            "onnx",
            "dynamic_shapes.batch_size.max: `min` (4) is larger than `max` (2)",
        ),
        (
            {"dynamic_shapes": {"batch_size": {"max": 0}}},
            "onnx",
            "dynamic_shapes.batch_size.max: an axis is at least 1",
        ),
        ({"dynamic_shapes": {"batchsize": {"max": 3}}}, "onnx", "dynamic_shapes.batchsize.max: unknown axis, did you"),
        (
            {"dynamic": False, "dynamic_shapes": {"batch_size": {"max": 3}}},
            "onnx",
            "dynamic_shapes.batch_size.max: with `dynamic: false` there is no axis to bound",
        ),
    ],
)
def test_engine_options_that_make_no_sense_are_refused(engine: dict[str, Any], backends: str, message: str) -> None:
    error = refusal({"models": [{"source": "./bert", "engine": engine, "backends": backends.split(",")}]})

    assert str(error).startswith(f"hub-exporter.yaml: models[0].engine.{message}")


@pytest.mark.parametrize("bounds", [{}, {"max": None}])
def test_unknown_axis_without_bounds_is_refused_too(bounds: dict[str, Any]) -> None:
    engine = {"dynamic_shapes": {"batchsize": bounds}}

    assert "engine.dynamic_shapes.batchsize: unknown axis" in str(
        refusal({"models": [{"source": "./a", "engine": engine}]})
    )


def test_options_of_one_of_the_backends_are_taken() -> None:
    for engine in ({"opset_version": 18}, {"generation": {"max_cache_len": 64}}, {"alloc_graph_input": False}):
        ask({"models": [{"source": "./bert", "engine": engine}]})


def test_engine_option_of_the_defaults_may_be_meant_for_another_model() -> None:
    recipe = {
        "defaults": {"engine": {"opset_version": 18}},
        "models": [{"source": "./a", "backends": ["onnx"]}, {"source": "./b", "backends": ["openvino"]}],
    }
    assert len(ask(recipe)) == 2

    recipe["models"] = [{"source": "./b", "backends": ["openvino"]}]
    assert str(refusal(recipe)).startswith("hub-exporter.yaml: defaults.engine.opset_version: means nothing")


def test_target_named_by_two_models_is_refused() -> None:
    error = refusal({"models": [{"source": "./a", "target": "./out"}, {"source": "./b", "target": "out/../out"}]})

    assert str(error) == "hub-exporter.yaml: models[1].target: `out/../out` is the target of `./a` and `./b`"


def test_target_of_the_command_line_is_shared() -> None:
    assert [request.shared_target for request in ask(None, "./a", "./b", flags={"--to": "./x"})] == [True, True]
    assert [request.shared_target for request in ask(None, "./a", flags={"--to": "./x"})] == [False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models:\n  - source: a\n   target: b\n", "hub-exporter.yaml:3:4: "),
        ("models: [\n", "hub-exporter.yaml:2:1: "),
        (
            "models:\n  - source: a\n    source: b\n",
            "hub-exporter.yaml:3:5: the key `source` is written twice",
        ),
        ("models: \x00", "hub-exporter.yaml: not valid YAML: "),
        ("models: !!python/object:os.system {}", "hub-exporter.yaml:1:9: could not determine a constructor"),
        ("models: " + "[" * 1500, "hub-exporter.yaml: not valid YAML: "),
    ],
)
def test_bad_yaml_is_refused_with_line_and_column(text: str, message: str) -> None:
    assert str(refusal(text)).startswith(message)


def test_missing_and_unreadable_recipes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^none.yaml: No such file or directory$"):
        load_recipe(Path("none.yaml"))
    Path("latin.yaml").write_bytes("models: [{source: café}]".encode("latin-1"))
    with pytest.raises(UsageError, match=r"^latin.yaml: not UTF-8 text$"):
        load_recipe(Path("latin.yaml"))


def test_number_where_text_is_expected_comes_with_the_cure() -> None:
    error = refusal({"models": [{"source": "./bert", "dataset": {"path": "a", "revision": 123}}]})

    assert error.hint == 'Put it in quotes: `"123"`'


def test_backends_named_twice_are_one() -> None:
    assert ask(None, "./bert", flags={"--backends": "onnx,openvino,onnx"})[0].settings.backends == ("onnx", "openvino")


def test_committed_schema_is_the_generated_one() -> None:
    committed = Path(hub_exporter.__file__).parent / schema.FILE

    assert committed.read_text(encoding="utf-8") == schema.text(), (
        "run `hub-exporter schema > hub_exporter/" + schema.FILE
    )


def test_schema_accepts_the_recipe_and_refuses_what_we_refuse() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema.text()))

    assert not list(validator.iter_errors(yaml.safe_load(FULL)))
    for wrong in ({"backend": []}, {"backends": ["onx"]}, {"engine": {"optimize": 3}}, {"task": "fil-mask"}):
        assert list(validator.iter_errors({"models": [{"source": "./bert", **wrong}]}))


def test_schema_describes_every_setting() -> None:
    model = schema.schema()["$defs"]["ModelSettings"]["properties"]

    assert not [key for key, value in model.items() if not value.get("description")]


def test_rows_suffice_for_two_captured_and_the_held_out_ones() -> None:
    assert MINIMUM_ROWS == 2 + HELD_OUT
