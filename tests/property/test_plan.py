from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hub_exporter.catalogue import BACKENDS, RUNNERS, VARIANTS
from hub_exporter.plan import make_plan
from hub_exporter.records import Job, ModelRequest, ModelSettings, Plan, ResolvedModel, Skip, from_json, to_json
from hub_exporter.tasks import TASKS

Asked = tuple[ModelRequest, ResolvedModel]


def some(names: Any) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(list(names)), min_size=1, max_size=4, unique=True).map(tuple)


def asked(name: str, task: str, backends: tuple[str, ...], variants: tuple[str, ...]) -> Asked:
    model = ResolvedModel(
        source=name,
        name=name,
        repo=None,
        revision=None,
        commit=f"sha256:{name}",
        folder=f"/{name}",
        task=task,
        task_origin="test",
        auto_class=TASKS[task].auto_class,
        architecture="X",
        model_type="x",
        parameters=1,
        weight_bytes=4,
        dtypes={},
    )
    settings = ModelSettings(source=name, target="./out", backends=backends, variants=variants)
    return ModelRequest(settings=settings, shared_target=True), model


one = st.builds(
    asked,
    st.sampled_from(["bert", "bert-2", "gpt", "t5"]),
    st.sampled_from(list(TASKS)),
    some(BACKENDS),
    some(VARIANTS),
)
machines = st.sampled_from(list(RUNNERS))


def plan(wishes: list[Asked], machine: str) -> Plan:
    return make_plan([request for request, _ in wishes], [model for _, model in wishes], machine=machine)


@given(st.lists(one, max_size=5), machines)
def test_plan_is_total_and_its_names_are_unique(wishes: list[Asked], machine: str) -> None:
    made = plan(wishes, machine)
    items: list[Job | Skip] = [*made.jobs, *made.skipped]
    names = [item.name for item in items]

    assert len(names) == sum(len(r.settings.backends) * len(r.settings.variants) for r, _ in wishes)
    assert len(set(names)) == len(names)
    assert all(name.count(".") == 2 for name in names)
    assert all(skip.reason for skip in made.skipped)
    assert len({job.target for job in made.jobs}) == len({job.model.name for job in made.jobs})
    assert from_json(to_json(made), Plan) == made


@given(st.lists(one, max_size=5, unique_by=lambda wish: wish[1].name), machines, st.randoms())
def test_order_of_the_models_changes_nothing_but_the_order(wishes: list[Asked], machine: str, random: Any) -> None:
    shuffled = list(wishes)
    random.shuffle(shuffled)
    one_way, other_way = plan(wishes, machine), plan(shuffled, machine)

    assert sorted(one_way.jobs, key=lambda job: job.name) == sorted(other_way.jobs, key=lambda job: job.name)
    assert sorted(one_way.skipped, key=lambda skip: skip.name) == sorted(other_way.skipped, key=lambda skip: skip.name)
