"""Which programs load an artifact without a word of help: the contracts of `data/clients.toml`, checked on records.

A contract looks at what the export stage recorded of the graphs and at the side files of the target, so that it holds
before anything is published and needs no runtime. What breaks one is a sentence; an artifact that breaks a contract is
not a failure, only nothing that this client is promised.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter.adapt import CONFIG, GENAI, JS_KEY, TOKENIZER_CONFIG, genai_layers
from hub_exporter.catalogue import CACHE_AXES
from hub_exporter.records import Component, JobResult, Port, ResolvedModel

_FILE = Path(__file__).parent / "data" / "clients.toml"


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: a program, and what must hold so that it loads the files of a backend. The fields are said in the file.

    Several rows may have one name: what a program wants of an encoder is not what it wants of a decoder.
    """

    name: str
    title: str
    tried: str
    install: str = ""
    backends: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    file: str = ""
    beside: tuple[str, ...] = ()
    side: tuple[str, ...] = ()
    inputs: str = ".*"
    outputs: tuple[str, ...] = ()
    only: bool = False
    plain: bool = False
    opset: int | None = None
    ir: int | None = None
    types: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The files of one job beside the side files of its target."""

    model: ResolvedModel
    job: JobResult
    side: frozenset[str]
    """Paths of the side files, the model's own and those that were made."""
    read: Callable[[str], Mapping[str, Any]]
    """A JSON side file by its path; empty where there is none."""

    @property
    def parts(self) -> tuple[Component, ...]:
        """The graphs."""
        return self.job.export.components if self.job.export else ()

    @functools.cached_property
    def files(self) -> dict[str, int]:
        """Name in the job's folder -> bytes."""
        prefix = f"{self.job.folder}/"
        return {artifact.path.removeprefix(prefix): artifact.size for artifact in self.job.artifacts}


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text("utf-8"))


@functools.cache
def table() -> tuple[Client, ...]:
    """All rows, in the order in which the card names them."""
    return msgspec.convert(_table()["client"], tuple[Client, ...])


def satisfied(offer: Offer) -> tuple[str, ...]:
    """Names of the clients whose contract the job keeps."""
    return tuple(client.name for client in rows_of(offer.job) if broken(client, offer) is None)


def rows_of(job: JobResult) -> list[Client]:
    """The rows that are about such files at all."""
    layout = job.export.layout if job.export else ""
    return [row for row in table() if job.backend in row.backends and (not row.layouts or layout in row.layouts)]


def broken(client: Client, offer: Offer) -> str | None:
    """The first thing that breaks the contract, in words; `None` where it is kept."""
    return next(filter(None, _findings(client, offer)), None)


def _findings(client: Client, offer: Offer) -> Iterable[str | None]:
    yield _proved(client, offer)
    if client.tasks and offer.model.task not in client.tasks:
        yield f"it is not for {offer.model.task}"
    yield _whole(offer)
    yield from (f"`{name}` is not beside the graph" for name in client.beside if not offer.files.get(name))
    yield from (f"there is no `{name}`" for name in client.side if name not in offer.side)
    if client.file and not all(re.fullmatch(client.file, part.file) for part in offer.parts):
        yield f"it does not open `{offer.parts[0].file}` without being told"
    for part in offer.parts:
        yield from _ports(client, part)
        yield _version(client, part)
    yield _known(client, offer)
    for rule in client.rules:
        yield RULES[rule](offer)


def _proved(client: Client, offer: Offer) -> str | None:
    """A runtime of its own may only load the files; everybody else is promised files that were compared."""
    level = offer.job.verification.level if offer.job.verification else "exported"
    plain_runtime = client.name in ("transformers", "onnxruntime", "openvino", "executorch", "torch")
    return (
        None
        if level in ("parity", "close") or (level == "loaded" and plain_runtime)
        else f"the level is only `{level}`"
    )


def _whole(offer: Offer) -> str | None:
    names = [name for part in offer.parts for name in (part.file, part.data) if name]
    missing = next((name for name in names if not offer.files.get(name)), None)
    return f"`{missing}` is missing or empty" if missing or not names else None


def _ports(client: Client, part: Component) -> Iterable[str | None]:
    for port in part.inputs:
        if not re.fullmatch(client.inputs, port.name):
            yield f"it does not know the input `{port.name}`"
    given = [port.name for port in part.outputs]
    yield from (f"it wants an output `{name}`" for name in client.outputs if name not in given)
    if client.only and set(given) != set(client.outputs):
        yield f"it wants the outputs {', '.join(client.outputs)} alone"
    if client.plain:
        yield from (_type(port, _taken(port)) for port in part.inputs)
        yield from (_type(port, "float32") for port in part.outputs)


def _taken(port: Port) -> str:
    if port.name == "beam_idx":
        return "int32"
    return "float32" if port.name.startswith("past_key_values.") else "int64"


def _type(port: Port, wanted: str) -> str | None:
    return f"`{port.name}` is {port.dtype}, not {wanted}" if port.dtype != wanted else None


def _version(client: Client, part: Component) -> str | None:
    if client.opset is not None and not 0 < part.opsets.get("ai.onnx", 0) <= client.opset:
        return f"opset {part.opsets.get('ai.onnx', 'unknown')} is not known to be read, {client.opset} is the highest"
    if client.ir is not None and not 0 < (part.ir_version or 0) <= client.ir:
        return f"ONNX IR {part.ir_version or 'unknown'} is not known to be read, {client.ir} is the highest"
    return None


def _known(client: Client, offer: Offer) -> str | None:
    if not client.types:
        return None
    if offer.model.remote_code:
        return "it would need the repository's own code"
    types = _table()["types"][client.types]
    if isinstance(types, dict):
        task = offer.model.task.replace("sentence-similarity", "feature-extraction")
        types = types.get(task, "")
    kind = offer.model.model_type
    return None if kind in types.split() else f"{client.types} has no model type `{kind}` for this task"


# ── What only some rows ask ──


def _engine_data(offer: Offer) -> str | None:
    """The engine's loader wants `<file>.data` beside an ONNX graph, if only an empty one."""
    wanted = [f"{part.file}.data" for part in offer.parts if part.file.endswith(".onnx")]
    return next((f"`{name}` is not beside the graph" for name in wanted if name not in offer.files), None)


def _data_for_hub(offer: Offer) -> str | None:
    """Of weights outside, optimum downloads `<file>_data` only."""
    wrong = [part for part in offer.parts if part.data not in (None, f"{part.file}_data")]
    return f"from the Hub it fetches `{wrong[0].file}_data`, not `{wrong[0].data}`" if wrong else None


def _data_for_browsers(offer: Offer) -> str | None:
    """Of weights outside, transformers.js fetches what the configuration says."""
    told = offer.read(CONFIG).get(JS_KEY) or {}
    outside = told.get("use_external_data_format") or {}
    silent = [part.file for part in offer.parts if part.data and part.file not in outside]
    return _data_for_hub(offer) or (f"`{CONFIG}` does not say that `{silent[0]}` has data outside" if silent else None)


def _batch_axis(offer: Offer) -> str | None:
    """transformers.js makes the empty cache from the inputs' shapes, and knows its batch by the name of the axis."""
    wrong = [port for port in _caches(offer) if port.shape[0] != CACHE_AXES[0]]
    return f"the first axis of `{wrong[0].name}` is not `{CACHE_AXES[0]}`" if wrong else None


def _free_heads(offer: Offer) -> str | None:
    """optimum computes the sizes of an empty cache, for some models not those of the graph."""
    wrong = [port for port in _caches(offer) if any(isinstance(dim, int) for dim in port.shape)]
    return f"`{wrong[0].name}` has fixed sizes, which it computes in its own way" if wrong else None


def _caches(offer: Offer) -> list[Port]:
    return [port for part in offer.parts for port in part.inputs if port.name.startswith("past_key_values.")]


def _chat_template_inside(offer: Offer) -> str | None:
    outside = "chat_template.jinja" in offer.side and not offer.read(TOKENIZER_CONFIG).get("chat_template")
    return f"it reads a chat template from `{TOKENIZER_CONFIG}` only" if outside else None


def _tokenizer_of_4(offer: Offer) -> str | None:
    name = str(offer.read(TOKENIZER_CONFIG).get("tokenizer_class"))
    wrong = name in ("TokenizersBackend", "SentencePieceBackend", "PythonBackend")
    return f"transformers 4 has no `{name}`, which `{TOKENIZER_CONFIG}` names" if wrong else None


def _stateful(offer: Offer) -> str | None:
    inside = all("beam_idx" in {port.name for port in part.inputs} for part in offer.parts)
    return None if inside else "it wants the cache inside the graph, and `beam_idx`"


def _genai_config(offer: Offer) -> str | None:
    (part, *_), told = offer.parts, offer.read(GENAI)
    decoder, search = told.get("model", {}).get("decoder", {}), told.get("search", {})
    if decoder.get("filename") != f"{offer.job.folder}/{part.file}":
        return f"`{GENAI}` names another graph"
    if not decoder.get("num_hidden_layers") == genai_layers(part) > 0:
        return f"`{GENAI}` and the graph have different layers"
    return f"`{GENAI}` shares a buffer, and the graph does not" if search.get("past_present_share_buffer") else None


RULES: dict[str, Callable[[Offer], str | None]] = {
    "engine_data": _engine_data,
    "data_for_hub": _data_for_hub,
    "data_for_browsers": _data_for_browsers,
    "batch_axis": _batch_axis,
    "free_heads": _free_heads,
    "chat_template_inside": _chat_template_inside,
    "tokenizer_of_4": _tokenizer_of_4,
    "stateful": _stateful,
    "genai_config": _genai_config,
}
"""Name in the table -> a look at the whole offer."""
