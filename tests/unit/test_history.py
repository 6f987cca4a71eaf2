"""What a job keeps of its earlier publications, and the chart that the card shows of it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import made_up
import msgspec

from hub_exporter.chart import CHART, chart
from hub_exporter.folder import Folder
from hub_exporter.index import REMEMBERED, read_index
from hub_exporter.publish import write_folder
from hub_exporter.records import Index, JobResult, ModelRun


def published(folder: Path, target: Path, number: int, backends: tuple[str, ...] = ("onnx",)) -> Index:
    """The index after publication `number`, whose key, size and times are its own."""
    results = tuple(changed(made_up.passed(backend), number) for backend in backends)
    write_folder(target, run(folder / str(number), results))
    index = read_index(Folder(target))
    assert index
    return index


def changed(result: JobResult, number: int) -> JobResult:
    key = msgspec.structs.replace(made_up.key(), pins=f"{number:064}")
    checked = made_up.verification(latency=0.001 * (number + 1))
    artifacts = tuple(made_up.artifact(a.path, b"%d " % number * (number + 1)) for a in result.artifacts)
    return msgspec.structs.replace(result, key=key, seconds=10.0 + number, verification=checked, artifacts=artifacts)


def run(folder: Path, results: tuple[JobResult, ...]) -> ModelRun:
    made = made_up.run(folder, results)
    for result in results:
        number = int(result.key.pins) if result.key else 0
        for artifact in result.artifacts:
            made_up.write(folder / "work" / result.job / artifact.path, b"%d " % number * (number + 1))
    return made


def test_the_figures_of_the_last_publications_are_kept(tmp_path: Path) -> None:
    indexes = [published(tmp_path, tmp_path / "out", number) for number in range(12)]

    histories = [index.jobs[0].history for index in indexes]
    assert [len(history) for history in histories] == [*range(REMEMBERED + 1), REMEMBERED, REMEMBERED]
    assert [past.seconds for past in histories[-1]] == [10.0 + number for number in range(2, 11)]
    assert histories[1][0].latency == 0.001
    assert histories[1][0].difference == 2.4e-07


def test_the_same_once_more_is_no_publication(tmp_path: Path) -> None:
    published(tmp_path, tmp_path / "out", 2)
    first = published(tmp_path, tmp_path / "out", 3)
    again = published(tmp_path / "again", tmp_path / "out", 3)

    assert again == first


def test_the_card_shows_a_chart_once_there_is_a_history(tmp_path: Path) -> None:
    target = tmp_path / "out"
    published(tmp_path, target, 0)
    assert not (target / CHART).exists()
    assert CHART not in (target / "README.md").read_text("utf-8")

    index = published(tmp_path, target, 1)

    assert f"]({CHART})" in (target / "README.md").read_text("utf-8")
    assert CHART in {artifact.path for artifact in index.side_files}
    assert (target / CHART).read_text("utf-8") == chart(index.jobs)


def test_a_chart_is_whole_whatever_is_missing(tmp_path: Path) -> None:
    index = [published(tmp_path, tmp_path / "out", number, ("onnx", "dynamo")) for number in range(4)][-1]
    bare = [msgspec.structs.replace(job, verification=None) for job in index.jobs]
    unknown = tuple(msgspec.structs.replace(past, latency=None, difference=None) for past in index.jobs[0].history)
    bare[0] = msgspec.structs.replace(bare[0], history=unknown, backend="<&>")

    for jobs in (index.jobs, bare):
        text = chart(jobs)
        assert text is not None
        root = ElementTree.fromstring(text)
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"size", "largest difference"} < set(words)
        assert text == chart(jobs), "the same history gives the same bytes"
    assert "<&>, fp32" in words
    assert chart([]) is None
    assert chart([made_up.passed("onnx")]) is None
