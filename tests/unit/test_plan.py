from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hub_exporter.errors import UsageError
from hub_exporter.machine import this_machine
from hub_exporter.plan import hub_target, make_plan
from hub_exporter.recipe import requests
from hub_exporter.records import ModelRequest, Plan, ResolvedModel, from_json, to_json
from hub_exporter.tasks import TASKS


def model(name: str = "bert", task: str = "fill-mask") -> ResolvedModel:
    return ResolvedModel(
        source=f"./{name}",
        name=name,
        repo=None,
        revision=None,
        commit="sha256:0",
        folder=f"/models/{name}",
        task=task,
        task_origin="test",
        auto_class=TASKS[task].auto_class,
        architecture="X",
        model_type="x",
        parameters=1,
        weight_bytes=4,
        dtypes={"F32": 1},
    )


def asked(*sources: str, **flags: Any) -> Sequence[ModelRequest]:
    return requests(None, sources, {f"--{name.replace('_', '-')}": value for name, value in flags.items()})


def plan(*names: str, only: str | None = None, machine: str | None = "linux-cpu", **flags: Any) -> Plan:
    models = [model(name) for name in names]
    patterns = [only] if only else None
    return make_plan(asked(*(m.source for m in models), **flags), models, only=patterns, machine=machine)


def names(made: Plan) -> list[str]:
    return [job.name for job in made.jobs]


def test_one_job_for_each_backend() -> None:
    made = plan("bert")

    assert names(made) == ["bert.onnx.fp32", "bert.openvino.fp32", "bert.executorch-xnnpack.fp32", "bert.dynamo.fp32"]
    assert not made.skipped
    job = made.jobs[0]
    assert (job.target, job.time_limit, job.runner) == ("./out", 3600.0, "ubuntu-latest")
    assert job.dataset == TASKS["fill-mask"].dataset


def test_settings_reach_the_job() -> None:
    made = plan("bert", to="~", time_limit=2, dataset="builtin", engine=["optimize=false"], backends="onnx")

    assert made.jobs[0].time_limit == 120
    assert made.jobs[0].engine.optimize is False
    assert made.jobs[0].dataset is not None
    assert made.jobs[0].dataset.path == "builtin"
    assert made.jobs[0].target == str(Path.home())
    assert made.requests[0].settings.engine.optimize is False


def test_backend_of_another_machine_is_skipped_with_the_reason() -> None:
    made = plan("bert", backends="executorch-mlx,executorch-cuda,onnx")

    assert names(made) == ["bert.onnx.fp32"]
    assert {skip.name: skip.reason for skip in made.skipped} == {
        "bert.executorch-mlx.fp32": "`executorch-mlx` runs on `macos-arm64`, this is `linux-cpu`",
        "bert.executorch-cuda.bf16": "`executorch-cuda` runs on `linux-cuda`, this is `linux-cpu`",
    }


def test_a_backend_makes_its_first_variant_where_none_is_asked_for() -> None:
    made = make_plan(asked("./bert", backends="onnx,executorch-mlx,executorch-cuda"), [model()])

    assert names(made) == ["bert.onnx.fp32", "bert.executorch-mlx.fp32", "bert.executorch-cuda.bf16"]
    assert plan("bert", backends="executorch-cuda", variants="fp32", machine="linux-cuda").skipped[0].reason == (
        "`executorch-cuda` cannot make `fp32` yet, only `bf16`"
    )


def test_cpu_backends_run_on_any_machine() -> None:
    assert names(plan("bert", machine="macos-arm64")) == names(plan("bert", machine="linux-cpu"))


def test_variant_that_is_not_made_yet_is_skipped_with_the_reason() -> None:
    made = plan("bert", backends="dynamo", variants="fp32,int8")

    assert names(made) == ["bert.dynamo.fp32"]
    assert made.skipped[0].name == "bert.dynamo.int8"
    assert made.skipped[0].reason == "`dynamo` cannot make `int8` yet, only `fp32`"


def test_onnx_has_smaller_variants() -> None:
    made = plan("bert", backends="onnx", variants="fp32,fp16,int8,int4")

    assert names(made) == [f"bert.onnx.{variant}" for variant in ("fp32", "fp16", "int8", "int4")]


def test_labels_of_runners_come_from_the_recipe() -> None:
    made = make_plan(asked("./bert"), [model()], runners={"linux-cpu": "our-runner"}, machine="linux-cpu")

    assert {job.runner for job in made.jobs} == {"our-runner"}


def test_models_of_one_name_get_different_ones() -> None:
    made = plan("bert", "bert", "bert-2", "bert", backends="onnx")

    assert names(made) == ["bert.onnx.fp32", "bert-3.onnx.fp32", "bert-2.onnx.fp32", "bert-4.onnx.fp32"]
    assert [job.model.name for job in made.jobs] == ["bert", "bert-3", "bert-2", "bert-4"]


def test_only_chooses_among_jobs_and_skips() -> None:
    made = plan("bert", "gpt", only="*.onnx.*", variants="fp32,int8-static")

    assert names(made) == ["bert.onnx.fp32", "gpt.onnx.fp32"]
    assert [skip.name for skip in made.skipped] == ["bert.onnx.int8-static", "gpt.onnx.int8-static"]


def test_only_that_matches_nothing_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match=r"`--only bert.onx.\*` matches no job") as caught:
        plan("bert", only="bert.onx.*")

    assert "`bert.onnx.fp32`" in str(caught.value.hint)


def test_models_that_share_a_target_get_folders_within() -> None:
    assert {job.target for job in plan("bert", "gpt", to="./x/").jobs} == {"./x/bert", "./x/gpt"}
    assert {job.target for job in plan("bert", "gpt").jobs} == {"./out/bert", "./out/gpt"}
    assert {job.target for job in plan("bert", to="./x").jobs} == {"./x"}


@pytest.mark.parametrize("target", ["org/model", "org/model.v2"])
def test_hub_id_as_target_is_a_repository(target: str) -> None:
    assert hub_target(target) == target
    assert {job.target for job in plan("bert", to=target).jobs} == {target}


def test_revision_of_a_target_is_refused() -> None:
    with pytest.raises(UsageError, match="names a revision") as caught:
        plan("bert", to="a/b@main")

    assert "--create-pr" in str(caught.value.hint)


def test_models_cannot_share_a_repository() -> None:
    with pytest.raises(UsageError, match="cannot share the repository `org/model`"):
        plan("bert", "gpt", to="org/model")


@pytest.mark.parametrize("target", ["./out", "../out", "/tmp/out", "out", "a/b/c", "./org/model"])
def test_folder_as_target_stays_as_it_was_written(target: str) -> None:
    assert hub_target(target) is None
    assert {job.target for job in plan("bert", to=target).jobs} == {target}


def test_existing_folder_as_target_is_no_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "model").mkdir(parents=True)

    assert hub_target("org/model") is None


def test_plan_goes_to_json_and_back() -> None:
    made = plan("bert", "gpt", variants="fp32,int8", engine=["generation.cache=static"])

    assert from_json(to_json(made), Plan) == made


def test_this_machine_is_of_a_known_kind() -> None:
    assert this_machine({}) in ("linux-cpu", "linux-cuda", "macos-arm64")


def test_what_a_machine_is_can_be_told() -> None:
    assert this_machine({"HUB_EXPORTER_MACHINE": "linux-cuda"}) == "linux-cuda"
    with pytest.raises(UsageError, match="no kind `linux-gpu`"):
        this_machine({"HUB_EXPORTER_MACHINE": "linux-gpu"})


def test_every_model_needs_its_request() -> None:
    with pytest.raises(ValueError, match="shorter"):
        make_plan(asked("./bert"), [], machine="linux-cpu")


def test_model_is_untouched_but_for_its_name() -> None:
    job = plan("bert", "bert", backends="onnx").jobs[1]

    assert job.model == msgspec.structs.replace(model("bert"), name="bert-2")
