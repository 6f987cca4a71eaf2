from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hub_exporter.errors import UsageError
from hub_exporter.plan import make_plan
from hub_exporter.recipe import BUILT_IN, RecipeFile, load_recipe, requests
from hub_exporter.records import ModelSettings, Recipe, ResolvedModel, from_json, to_json
from hub_exporter.tasks import TASKS

from .wishes import as_flags, settings, words


def load(recipe: Any) -> RecipeFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hub-exporter.yaml"
        path.write_text(recipe if isinstance(recipe, str) else yaml.safe_dump(recipe), encoding="utf-8")
        return load_recipe(path)


def load_or_refusal(text: str) -> RecipeFile | UsageError:
    try:
        return load(text)
    except UsageError as error:
        return error


@given(st.lists(settings, min_size=1, max_size=3), settings)
def test_recipe_survives_json_and_yaml(models: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
    written = {"defaults": defaults, "models": [{"source": f"./{n}", **model} for n, model in enumerate(models)]}
    recipe = msgspec.convert(written, Recipe)

    assert from_json(to_json(recipe), Recipe) == recipe
    loaded = load(written)
    assert (loaded.defaults, loaded.models) == (recipe.defaults, recipe.models)


def resolved(source: str) -> ResolvedModel:
    return ResolvedModel(
        source=source,
        name="model",
        repo=None,
        revision=None,
        commit="sha256:0",
        folder="/model",
        task="fill-mask",
        task_origin="test",
        auto_class=TASKS["fill-mask"].auto_class,
        architecture="X",
        model_type="x",
        parameters=1,
        weight_bytes=4,
        dtypes={},
    )


@given(settings, st.sampled_from(["./out", "./exports", "elsewhere"]))
def test_recipe_and_command_line_give_the_same_plan(wishes: dict[str, Any], target: str) -> None:
    wishes = wishes | {"target": target}
    of_recipe = requests(load({"models": [{"source": "./model", **wishes}]}))
    of_flags = requests(None, ["./model"], as_flags(wishes))
    of_both = requests(load({"models": [{"source": "./model"}]}), [], as_flags(wishes))

    plans = [make_plan(asked, [resolved("./model")], machine="linux-cpu") for asked in (of_recipe, of_flags, of_both)]
    assert plans[0].jobs == plans[1].jobs == plans[2].jobs
    assert plans[0].skipped == plans[1].skipped == plans[2].skipped
    assert of_recipe[0].settings == of_flags[0].settings == of_both[0].settings
    keys = [{setting.key for setting in asked[0].origins} for asked in (of_recipe, of_flags, of_both)]
    assert keys[0] == keys[1] == keys[2]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves = {}
    for key, value in values.items():
        leaves.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return leaves


@given(settings, settings, settings)
def test_each_key_comes_from_the_strongest_level_that_has_it(
    defaults: dict[str, Any], model: dict[str, Any], top: dict[str, Any]
) -> None:
    for level in (defaults, model, top):  # another dataset starts afresh: that is a test of its own
        if "dataset" in level:
            level["dataset"]["path"] = "rows.jsonl"
    recipe = load({"defaults": defaults, "models": [{"source": "./model", **model}]})
    (request,) = requests(recipe, [], as_flags(top))

    expected = flat(BUILT_IN) | flat(defaults) | flat(model) | flat(top)
    found = flat(msgspec.to_builtins(request.settings))
    assert {
        key: list(value) if isinstance(value, tuple) else value for key, value in found.items() if key in expected
    } == expected
    levels = {"defaults": flat(defaults), "models[0]": flat(model), "--": flat(top)}
    for setting in request.origins:
        strongest = next(name for name in ("--", "models[0]", "defaults") if setting.key in levels[name])
        assert strongest in setting.origin
        assert setting.value == expected[setting.key]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            words | st.sampled_from(["models", "source", "engine", "dataset", "backends"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_document_is_a_recipe_or_refused(document: Any) -> None:
    outcome = load_or_refusal(yaml.safe_dump(document))

    assert outcome.models if isinstance(outcome, RecipeFile) else "hub-exporter.yaml" in str(outcome)


@given(st.text(max_size=60))
def test_any_text_is_a_recipe_or_refused(text: str) -> None:
    outcome = load_or_refusal(text)

    assert outcome.models if isinstance(outcome, RecipeFile) else "hub-exporter.yaml" in str(outcome)


def test_wishes_reach_every_setting() -> None:
    """So that a new setting is not forgotten above."""
    known = {field.encode_name for field in msgspec.structs.fields(ModelSettings)}

    assert known == {
        "source",
        "target",
        "task",
        "backends",
        "variants",
        "dataset",
        "engine",
        "trust-remote-code",
        "time-limit",
    }
