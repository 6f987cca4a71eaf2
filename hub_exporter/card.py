"""The index -> README.md: Hub metadata, what the files are, how well they agree, how to run them. Pure.

A card that hub-exporter wrote alone is replaced as a whole; in somebody else's README only the section between
`BEGIN` and `END` is ours, and of its metadata only what was missing, and the line of state that `check` reads.

`own` says that the card is that of the model itself, exported into its own repository: it has no base model.
"""

from __future__ import annotations

import re
from typing import Any

from hub_exporter import frontmatter, wording
from hub_exporter.records import Index, ResolvedModel
from hub_exporter.section import BEGIN, END, HUB, agreement, lead, render_section
from hub_exporter.snippets import environment
from hub_exporter.staleness import STATE, state_of
from hub_exporter.tasks import TASKS

TAGS = {"onnx": "onnx", "openvino": "openvino", "executorch": "executorch", "dynamo": "torch.export"}
"""First part of a backend's name -> tag on the Hub."""

OURS = ("transformers.exporters", "hub-exporter")
"""Tags of every card that describes an export."""

DROPPED_TAGS = frozenset(
    [
        "pytorch",
        "tf",
        "jax",
        "flax",
        "rust",
        "safetensors",
        "gguf",
        "coreml",
        "mlx",
        "onnx",
        "openvino",
        "executorch",
        "transformers",
        "sentence-transformers",
        "transformers.js",
        "endpoints_compatible",
        "autotrain_compatible",
        "text-embeddings-inference",
        "text-generation-inference",
        "custom_code",
        "conversational",
    ]
)
"""Tags that say what format the source was in, or that the Hub computes itself."""

_SECTION = re.compile(f"{re.escape(BEGIN)}(?:(?!{re.escape(BEGIN)}).)*?{re.escape(END)}", re.DOTALL)


def render_card(index: Index, *, own: bool = False) -> str:
    """The whole README.md of a folder that holds nothing but this export."""
    page = environment().get_template("card.md.j2")
    body = page.render(title=title(index), lead=lead(index), section=render_section(index))
    return frontmatter.dump(metadata(index, own=own)) + "\n" + body.strip() + "\n"


def merge_card(existing: str, index: Index, *, own: bool = False) -> str:
    """Somebody else's README.md with our section put in or renewed; every other byte stays.

    Their metadata wins; tags are united. A README whose metadata is not valid YAML keeps it as it is.
    """
    head, text = frontmatter.split(existing)
    line = frontmatter.line_end(existing)
    section = render_section(index).replace("\n", line)
    found = _SECTION.search(text)
    if found:
        merged = text[: found.start()] + section + text[found.end() :]
    else:
        gap = "" if not text or text.endswith(line * 2) else line if text.endswith(line) else line * 2
        merged = text + gap + section + line
    ours = metadata(index, own=own)
    if not head:
        return frontmatter.dump(ours).replace("\n", line) + merged
    head = frontmatter.replaced(head, STATE, ours[STATE])
    return frontmatter.add(head, _missing(frontmatter.parse(head) or {}, ours), ours["tags"]) + merged


def render_pull_request(index: Index, repo: str, number: int | None) -> str:
    """The text of a pull request: how to try it before it is merged, and how well its files agree.

    Its number is known only once it was opened; until then the text says so.
    """
    page = environment().get_template("pull_request.md.j2")
    revision = f"refs/pr/{number}" if number is not None else "refs/pr/<number of this pull request>"
    passed = [job for job in index.jobs if job.status == "passed"]
    return page.render(
        lead=lead(index),
        repo=repo,
        revision=revision,
        agreement=agreement(passed),
        folders=list(dict.fromkeys(job.folder for job in passed)),
        commit=index.source.commit,
        tool=index.tool,
    )


def metadata(index: Index, *, own: bool = False) -> dict[str, Any]:
    """The card's metadata block, in the order it is written; absent where it is not known."""
    model = index.source
    base = None if own else model.repo
    entries = {
        **_license(index),
        "language": model.languages[0] if len(model.languages) == 1 else list(model.languages),
        "base_model": base,
        "base_model_relation": "quantized" if base else None,
        "pipeline_tag": _pipeline_tag(model),
        "library_name": "sentence-transformers" if model.sentence_transformers else "transformers",
        "tags": _tags(index),
        STATE: state_of(index),
    }
    cleaned = {key: _one_line(value) for key, value in entries.items() if value}
    return {key: value for key, value in cleaned.items() if value}


def _one_line(value: str | list[str]) -> str | list[str]:
    """Hub metadata has no line ends; and a YAML parser need not agree with ours on the rarer ones."""
    if isinstance(value, str):
        return wording.one_line(value)
    return list(dict.fromkeys(filter(None, map(wording.one_line, value))))


def _license(index: Index) -> dict[str, str | None]:
    """Licence fields of the source; an id that the Hub cannot know becomes `other` with its name."""
    model = index.source
    known = model.license is None or re.fullmatch(r"[a-z0-9][a-z0-9.-]*", model.license)
    name = model.license_name or (None if known else model.license)
    return {
        "license": model.license if known else "other",
        "license_name": name,
        "license_link": _license_link(index),
    }


def _license_link(index: Index) -> str | None:
    """An address, or a file that was carried along; a file that was not, at the source on the Hub."""
    link, model = wording.one_line(index.source.license_link or ""), index.source
    if re.match(r"https?://", link):
        return link
    if not link or ":" in link:
        return None
    if model.repo:
        return f"{HUB}/{model.repo}/blob/{model.commit}/{link.removeprefix('./')}"
    return link if link in {artifact.path for artifact in index.side_files} else None


def _pipeline_tag(model: ResolvedModel) -> str:
    """The Hub's tag for the task; it has none for text-to-text any more."""
    if model.sentence_transformers and model.task == "feature-extraction":
        return "sentence-similarity"
    if model.task == "text2text-generation":
        return next((tag for tag in ("translation", "summarization") if tag in model.tags), "text-generation")
    task = TASKS.get(model.task)  # an index may be of a newer hub-exporter
    return (task and task.tag) or model.task


def _tags(index: Index) -> list[str]:
    backends = [job.backend.partition("-")[0] for job in index.jobs if job.status == "passed"]
    formats = [TAGS.get(backend, backend) for backend in backends]
    programs = ["transformers.js"] if any("transformers.js" in job.clients for job in index.jobs) else []
    theirs = [tag for tag in index.source.tags if tag not in DROPPED_TAGS and ":" not in tag]
    return [*formats, *programs, *OURS, *theirs]


def _missing(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    # A licence is one statement in three fields, and so is a base model in two: never half theirs, half ours.
    groups = [("license", "license_name", "license_link"), ("base_model", "base_model_relation")]
    taken = {key for group in groups if any(key in theirs for key in group) for key in group}
    return {key: value for key, value in ours.items() if key not in theirs and key not in taken and key != "tags"}


def proposal_title(model: ResolvedModel) -> str:
    """How the titles of all our commits and pull requests for a model begin; the commit of the model follows."""
    return f"Verified exports of {(model.repo or model.name).rpartition('/')[2]} at "


def title(index: Index) -> str:
    """What the exported model is called."""
    return (index.source.repo or index.source.name).rpartition("/")[2]
