"""The index -> our section of a card: files, agreement, examples, provenance. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from hub_exporter import clients, wording
from hub_exporter.chart import CHART
from hub_exporter.records import (
    INDEX_FILE,
    Artifact,
    CaptureSpec,
    Component,
    ExportOutcome,
    Index,
    JobResult,
    Port,
    Row,
)
from hub_exporter.snippets import TITLES, environment, install_line, render_client, render_snippet
from hub_exporter.tasks import TASKS

BEGIN = "<!-- hub-exporter:begin -->"
END = "<!-- hub-exporter:end -->"

_MARKER = "<!-- hub-exporter:"

HUB = "https://huggingface.co"

LEVELS = {
    "parity": "run in its own runtime from the written files, it agrees with the original model on rows and shapes "
    "that the export never saw.",
    "close": "run in the same way, it stays within the bounds of its precision, which are in the index; what it "
    "computes and chooses is not always the same.",
    "loaded": "its runtime loads it, but agreement could not be shown.",
    "exported": "it was written, and nothing here could run it.",
}

OUTCOMES = {"mismatch": "disagrees with the original model", "failed": "failed", "skipped": "skipped"}

QUESTIONS = {
    "text": ("--prompt", "Why is the sky blue?"),
    "sound": ("--audio", "speech.wav"),
    "picture in text": ("--image", "picture.jpg", "--prompt", "What do you see?"),
    "sound in text": ("--audio", "speech.wav", "--prompt", "What is said?"),
}
"""What a generative model is fed with -> the flags of `hub-exporter generate` that ask it something."""

KINDS = (
    (r"hub-exporter\.svg", "chart of the last publications"),
    (r"export\.json", "manifest for `ExportedModel.from_pretrained`"),
    (r"openvino_(de)?tokenizer\..*", "tokenizer as an OpenVINO graph"),
    (r"openvino_.*\.bin", "weights of the OpenVINO graph"),
    (r".*\.xml", "OpenVINO graph"),
    (r".*\.onnx", "ONNX graph"),
    (r".*\.onnx[._]data.*", "weights of the ONNX graph"),
    (r".*\.pte", "ExecuTorch program"),
    (r".*\.ptd", "weights of the ExecuTorch program"),
    (r".*\.pt2", "`torch.export` program"),
    (r"modules\.json|.*sentence_.*\.json|\d_.*/config\.json", "configuration of sentence-transformers"),
    (r"config\.json|generation_config\.json", "configuration of the model"),
    (r"genai_config\.json", "configuration of ONNX Runtime GenAI"),
    (r"chat_template.*", "chat template"),
    (r"(LICENSE|LICENCE|NOTICE|USE_POLICY).*", "licence"),
    (r".*(preprocessor|processor)_config\.json", "processor"),
    (r"(.*/)?(tokenizer|special_tokens|vocab|merges|added_tokens|spiece|sentencepiece).*", "tokenizer"),
)
"""Pattern of a file's path or name -> what it is; the first that fits."""


def lead(index: Index) -> str:
    """One sentence: what this is."""
    return f"{_source_link(index)} exported for {wording.inline(_runtimes(index))}."


def render_section(index: Index) -> str:
    """Our part of a card as Markdown, markers included."""
    passed = [job for job in index.jobs if job.status == "passed"]
    levels = {_level(job) for job in passed}
    context = {
        "origin": _origin(index, levels),
        "files": _files(index, passed),
        "agreement": agreement(passed),
        "making": [_making_row(job) for job in passed],
        "levels": {level: text for level, text in LEVELS.items() if level in levels},
        "passed": passed,
        "not_published": [job for job in index.jobs if job.status != "passed"],
        "outcomes": OUTCOMES,
        "usages": [_usage(index, job) for job in passed],
        "programs": _programs(index, passed),
        "provenance": _provenance(index, passed),
        "packages": _packages(passed),
        "notes": [(job.job, note) for job in passed if job.export for note in job.export.notes],
        "chart": CHART if any(job.history for job in passed) else None,
        "command": _command(index, passed),
        "index_file": INDEX_FILE,
    }
    body = environment().get_template("section.md.j2").render(context).strip()
    # Text of others may hold our markers: they would begin or end the section for the next run.
    harmless = body.replace(_MARKER, _MARKER.replace("-", "‐"))
    return f"{BEGIN}\n{harmless}\n{END}"


def agreement(passed: list[JobResult]) -> list[dict[str, str]]:
    """Rows of the agreement table."""
    return [_agreement_row(job) for job in passed]


def _runtimes(index: Index) -> str:
    titles = list(dict.fromkeys(TITLES.get(job.backend, job.backend) for job in index.jobs if job.status == "passed"))
    return " and ".join([", ".join(titles[:-1]), titles[-1]] if len(titles) > 1 else titles)


def _source_link(index: Index) -> str:
    repo = index.source.repo
    if repo is None or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo, re.ASCII):
        return wording.code(repo or index.source.name)
    return f"[{wording.inline(repo)}]({HUB}/{repo})"


def _origin(index: Index, levels: set[str]) -> str:
    checked = (
        "Every graph was run from these files in its own runtime and compared with the original model"
        if levels == {"parity"}
        else "The next table says what was proved of each graph"
    )
    return f"Made from {_source_link(index)} at commit {wording.code(index.source.commit)}. {checked}."


def _level(job: JobResult) -> str:
    return job.verification.level if job.verification else "exported"


def _files(index: Index, passed: list[JobResult]) -> list[dict[str, Any]]:
    beside = [
        artifact for artifact in index.side_files if artifact.path != "README.md"
    ]  # it cannot know its own digest
    artifacts = [*(artifact for job in passed for artifact in job.artifacts), *beside]
    return [{"path": a.path, "size": a.size, "kind": _kind(a), "sha256": a.sha256} for a in artifacts]


def _kind(artifact: Artifact) -> str:
    if artifact.size == 0:
        return "empty; `ExportedModel.from_pretrained` asks for it"
    return next((kind for pattern, kind in KINDS if re.fullmatch(f"({pattern})|.*/({pattern})", artifact.path)), "")


def _agreement_row(job: JobResult) -> dict[str, str]:
    row = {
        "job": job.job,
        "level": _level(job),
        "runtime": "",
        "difference": "",
        "cosine": "",
        "tokens": "",
        "shapes": "",
    }
    if job.verification is None:
        return row
    difference, cosine = wording.max_difference(job.verification), wording.min_cosine(job.verification)
    return row | {
        "runtime": job.verification.runtime,
        "difference": "" if difference is None else wording.number(difference),
        "cosine": "" if cosine is None else wording.cosine(cosine),
        "tokens": wording.tokens(job.verification) or "",
        "shapes": wording.shapes(job.verification.cases),
    }


def _making_row(job: JobResult) -> dict[str, Any]:
    return {
        "job": job.job,
        "options": json.dumps(job.export.options, default=str) if job.export and job.export.options else "defaults",
        "ratio": "" if job.size_ratio is None else f"{job.size_ratio:.2f}",
        "seconds": job.seconds,
        "memory": wording.size(job.peak_memory) if job.peak_memory else "",
    }


def _usage(index: Index, job: JobResult) -> dict[str, Any]:
    """Heading, remarks and example of one job."""
    export, checked = job.export, job.verification
    component = export.components[0] if export and export.components else None
    return {
        "title": f"{TITLES.get(job.backend, job.backend)}, {job.variant}",
        "remarks": [
            *_loads_in(job),
            *_measured(component),
            *_in_place(export),
            *_scores(export),
            *(export.restrictions if export else ()),
            *(checked.notes if checked else ()),
        ],
        "install": install_line(index, job),
        "snippet": render_snippet(index, job),
        "ports": [*_ports(export)] if export else [],
        "question": _question(index, job),
    }


def _question(index: Index, job: JobResult) -> str | None:
    """The command that asks these files something, where they answer with a text and their answers were compared."""
    task = TASKS.get(index.source.task)
    if task is None or task.layout == "encoder" or _level(job) not in ("parity", "close"):
        return None
    words = ["hub-exporter", "generate", ".", "--backend", job.backend]
    return shlex.join([*words, *(("--variant", job.variant) if job.variant != "fp32" else ()), *QUESTIONS[task.inputs]])


def _programs(index: Index, passed: list[JobResult]) -> list[dict[str, str]]:
    """An example for each other program, with the first of the files of a backend that it loads."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for job in passed:
        for client in clients.rows_of(job):
            if client.install and client.name in job.clients and (client.name, job.backend) not in found:
                found[client.name, job.backend] = {
                    "title": f"{client.title} ({TITLES.get(job.backend, job.backend)})",
                    "install": client.install,
                    "tried": client.tried,
                    "language": "js" if client.install.startswith("npm") else "python",
                    "code": render_client(index, job, client.name),
                }
    return list(found.values())


def _loads_in(job: JobResult) -> list[str]:
    titles = [client.title for client in clients.rows_of(job) if client.name in job.clients]
    return [f"loads without help in {', '.join(titles)}"] if titles else []


def _in_place(export: ExportOutcome | None) -> list[str]:
    """What a cache of fixed size is good for, and how."""
    if export is None or export.layout != "static-cache":
        return []
    if export.components[0].outputs[0].name == "mutated_0":
        return _in_place_executorch(export)
    made = f"the caller allocates the cache, {export.cache_length} tokens in the example, and no step copies it"
    ports = {port.name for part in export.components for port in part.inputs}
    if "past_key_values.0.key" not in ports:
        return [f"{made}: the program writes into the tensors that it is given"]
    return [f"{made}: `past_key_values.N.key` and `present.N.key` share one buffer, and so do the values"]


def _scores(export: ExportOutcome | None) -> list[str]:
    """What makes scores of the embeddings of two encoders."""
    if export is None or export.layout != "two-encoders":
        return []
    bias = f", plus {export.constants['bias']:.9g}" if "bias" in export.constants else ""
    return [
        f"the embeddings are not normalised; the score of a picture and a text is the cosine of theirs times "
        f"{export.constants['scale']:.9g}{bias}, as in the original model"
    ]


def _in_place_executorch(export: ExportOutcome) -> list[str]:
    """The order of the outputs, and whose memory they are in."""
    count = sum(port.name.startswith("mutated_") for port in export.components[0].outputs)
    order = (
        f"a cache of {export.cache_length} tokens goes in as {count} tensors; the first {count} outputs are these "
        f"tensors, written to, then come the logits; the last {count} outputs only repeat the cache"
    )
    if False not in (export.options.get("alloc_graph_input"), export.options.get("alloc_graph_output")):
        return [f"{order}. The program copies them in and out of memory of its own"]
    return [
        f"{order}. No memory is planned for them: give each tensor of the cache one buffer, as an input "
        "(`Method::set_input`) and as the output of the same number (`Method::set_output_data_ptr`), and the caller "
        "copies nothing. That can be done in C++ only; `examples/cpp/decode_loop.cpp` of hub-exporter is the loop"
    ]


def _measured(component: Component | None) -> list[str]:
    """What was read from an ExecuTorch program."""
    remarks = []
    if component and component.delegated is not None:
        remarks.append(f"{component.delegated:.0%} of the operators run in the delegate")
    if component and component.planned_memory is not None:
        remarks.append(f"{wording.size(component.planned_memory)} of memory are planned when the program is loaded")
    return remarks


def _ports(export: ExportOutcome) -> Iterator[str]:
    """What every graph takes and gives; of the layers of a cache the first."""
    for part in export.components:
        for verb, ports in (("takes", part.inputs), ("gives", part.outputs)):
            shown = [port for port in ports if not _OTHER_LAYER.search(port.name)]
            more = ", and so on for every layer" if len(shown) < len(ports) else ""
            yield f"{part.name} {verb} {'; '.join(map(_port, shown))}{more}"


_OTHER_LAYER = re.compile(r"\.[1-9]\d*\.")
"""In the name of a port: that it is of a layer behind the first."""


def _port(port: Port) -> str:
    return f"{port.name}: {port.dtype} ({', '.join(map(str, port.shape))})"


def _provenance(index: Index, passed: list[JobResult]) -> list[str]:
    """Ready Markdown, one list item each."""
    model = index.source
    lines = [
        f"Source: {_source_link(index)}, commit {wording.code(model.commit)}",
        f"Model: {wording.code(model.architecture)} for {wording.code(model.task)}, {model.parameters:,} parameters",
        f"Tool: {wording.inline(index.tool)} with the export engine of transformers",
    ]
    if model.remote_code:
        lines.append("The source brings its own modelling code, which was run to make these files")
    others = [
        f"{wording.code(job.job)} was made with other rows, digest {wording.code(job.rows)}"
        for job in passed
        if job.rows
    ]
    return [*lines, *(_rows(index.capture) if index.capture else ()), *others, *_environments(passed)]


def _environments(passed: list[JobResult]) -> list[str]:
    """Whether each job ran with what was locked for it."""
    lines = []
    for job in passed:
        if job.toolchain is not None:
            where = "an environment of" if job.toolchain.isolated else "an environment that was not made from"
            pins = wording.code(job.toolchain.pins[:12])
            lines.append(f"{wording.code(job.job)} ran in {where} its locked packages, whose digest is {pins}")
    return lines


def _packages(passed: list[JobResult]) -> list[dict[str, str]]:
    """Rows of the table of versions: one for all jobs that have the same of a package."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for job in passed:
        made, ran = job.toolchain, job.export.versions if job.export else {}
        if made is None:
            shown = {name: ("", "", version) for name, version in ran.items()}
        else:
            names = [name for name in made.locked if name in made.tested or name in ran]
            tested = {name: ", ".join(made.tested.get(name, ())) for name in names}
            shown = {name: (tested[name], made.locked[name], made.ran.get(name, "")) for name in names}
        for name, versions in shown.items():
            rows.setdefault((name, *versions), []).append(job.job)
    return [
        {"package": name, "tested": tested, "locked": locked, "ran": ran, "jobs": _jobs(jobs, passed)}
        for (name, tested, locked, ran), jobs in sorted(rows.items())
    ]


def _jobs(jobs: list[str], passed: list[JobResult]) -> str:
    return "all" if len(jobs) == len(passed) else ", ".join(map(wording.code, jobs))


def _rows(spec: CaptureSpec) -> list[str]:
    name = "/".join(filter(None, (spec.path, spec.name)))
    revision = f" at {wording.code(spec.revision)}" if spec.revision else ""
    return [
        f"Rows: {wording.code(name)}, split {wording.code(spec.split)}{revision}, digest {wording.code(spec.digest)}",
        f"Rows traced: {_ids(spec.capture)}; rows held out to compare: {_ids(spec.held_out)}",
    ]


def _ids(rows: tuple[Row, ...]) -> str:
    return ", ".join(wording.code(row.id) for row in rows) or "none"


def _command(index: Index, passed: list[JobResult]) -> str:
    """A command line that makes these files from the same commit and rows."""
    model = index.source
    words = ["hub-exporter", "export", f"{model.repo}@{model.commit}" if model.repo else f"./{model.name}"]
    words += ["--backends", ",".join(dict.fromkeys(job.backend for job in passed))]
    words += ["--variants", ",".join(dict.fromkeys(job.variant for job in passed))]
    words += ["--task", model.task]
    if index.capture:
        words += _dataset_flags(index.capture)
    if model.remote_code:
        words.append("--trust-remote-code")
    return shlex.join(map(wording.one_line, [*words, "--to", "./out"]))


def _dataset_flags(spec: CaptureSpec) -> list[str]:
    flags = ["--dataset", spec.path, "--dataset-split", spec.split]
    flags += ["--dataset-name", spec.name] if spec.name else []
    flags += ["--dataset-revision", spec.revision] if spec.revision else []
    return [*flags, "--dataset-rows", str(len(spec.capture) + len(spec.held_out) + len(spec.calibration))]
