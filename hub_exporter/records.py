"""Every type that travels between stages, processes and files. A newcomer reads this first.

    Recipe ──resolve──> ResolvedModel ──plan──> Plan(jobs, skipped)
    Job ──export──> ExportOutcome ──verify──> Verification ──> JobResult ──write──> Index + files in the target
    Job ──run, elsewhere──> CellResult + files ──publish──> the same

All of them are frozen and strict and go to JSON and back without loss. Anything else is a local of one function.
Sizes are bytes, durations seconds, unless a field says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

SCHEMA_VERSION = 1
"""Of the index file. A reader refuses a newer one."""

LAYOUT_VERSION = 2
"""Of the files in a target: it goes up when names, graph inputs or side files change."""

INDEX_FILE = "hub-exporter.json"
"""The index at the root of every target."""

Level = Literal["parity", "close", "loaded", "exported"]
"""What was proved of an artifact.

`parity`: run in its own runtime from the written files, it agrees with the model on rows and shapes that the trace
never saw. `close`: so it was run, and a variant of less precision stayed within the bounds that are stated for it.
`loaded`: its runtime loads it, but agreement could not be shown. `exported`: nothing could run it here.
"""

Status = Literal["passed", "mismatch", "failed", "skipped", "current"]
"""How a job ended. `mismatch` means that the written files disagree with the model; their files are dropped. `current`
means that what is published was made of the same: nothing was run."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records. (`kw_only` is not inherited in msgspec: each class says it.)"""


# ── The recipe: what a user asks for ──────────────────────────────────────────────────────────────────────────────


class AxisBounds(Record, kw_only=True):
    """Smallest and largest size of a named axis (`batch_size`, `sequence_length`, ...), both inclusive."""

    min: int | None = None
    max: int | None = None


class GenerationOptions(Record, kw_only=True):
    """Which key/value cache the exported decoder uses."""

    cache: Literal["dynamic", "static", "none"] | None = None
    """`dynamic` grows with the text; `static` is allocated once; `none` gives one graph that reads the whole text again
    at every step. Without it dynamic, but for ExecuTorch on XNNPACK and CUDA static and inside of the program."""
    max_cache_len: int | None = None
    """Tokens that a static cache holds; default: the smaller of the model's context and 2,048."""


class EngineOptions(Record, kw_only=True):
    """Options of `transformers.exporters`, under the engine's own names. `None` leaves the default of the backend."""

    dynamic: bool | None = None
    """Symbolic axes (default) or the captured sizes, batch included."""
    dynamic_shapes: dict[str, AxisBounds] = {}
    """Bounds by axis name, for example `sequence_length: {max: 4096}`."""
    prefer_deferred_runtime_asserts_over_guards: bool | None = None
    static_axes: tuple[str, ...] = ()
    """Axes that keep the captured size, by name, such as `height` and `width`."""
    strict: bool | None = None
    attention: Literal["sdpa", "eager"] | None = None
    """Attention implementation to trace; flash and flex attention cannot be exported and are replaced by `sdpa`."""
    multi_token_decode: bool | None = None
    """One decoder graph for prefill and decode (default), or `false` for a prefill and a decode graph."""
    separate_encoders: bool | None = None
    """`true` gives the two encoders of a model of pictures beside texts a graph each, in place of one of everything."""
    generation: GenerationOptions = GenerationOptions()
    opset_version: int | None = None
    """ONNX only."""
    optimize: bool | None = None
    """ONNX only."""
    ort_fusions: Literal["cpu", "cuda", "webgpu", "dml"] | None = None
    """ONNX only."""
    stateful: bool | None = None
    """OpenVINO only."""
    compress_to_fp16: bool | None = None
    """OpenVINO only."""
    alloc_graph_input: bool | None = None
    """ExecuTorch only."""
    alloc_graph_output: bool | None = None
    """ExecuTorch only."""
    alloc_mutable_buffers: bool | None = None
    """ExecuTorch only."""
    components: dict[str, dict[str, Any]] = {}
    """Options for one component by its name (`prefill`, `decode`, `model`), over the ones above."""


class DatasetSpec(Record, kw_only=True, rename="kebab"):
    """Where capture, held-out and calibration rows come from."""

    path: str = ""
    """A file (`.jsonl`, `.json`, `.csv`, `.tsv`, `.txt`, `.parquet`), a `datasets` id, or `builtin` for the small
    set that ships with hub-exporter. Empty: the default dataset of the task."""
    name: str | None = None
    """Configuration of the dataset."""
    split: str = "train"
    """Which part of it."""
    columns: dict[str, str] = {}
    """What the task reads -> column of the dataset, for example `{text: sentence}`."""
    rows: int = 16
    """How many rows to draw, at least 8: 2 to capture, 6 held out, the rest to calibrate."""
    revision: str | None = None
    """Commit, tag or branch of a dataset on the Hub."""


class ModelSettings(Record, kw_only=True, rename="kebab"):
    """One model of the recipe; also the type of `defaults`, where `source` and `target` stay empty."""

    source: str = ""
    """A Hub repository, optionally `@revision`, or a folder."""
    target: str = ""
    """A folder, or a Hub repository."""
    task: str | None = None
    """Overrides the task that the architecture implies."""
    backends: tuple[str, ...] = ()
    """What to export to; default: the four that run on any CPU."""
    variants: tuple[str, ...] = ()
    """Precisions; default: `fp32`, for `executorch-cuda` `bf16`."""
    dataset: DatasetSpec | None = None
    """Default: a small public dataset for the task."""
    engine: EngineOptions = EngineOptions()
    """Options of the engine."""
    trust_remote_code: bool = False
    """Consent to run Python code that the repository brings along."""
    time_limit: int | None = None
    """Minutes that one job may take; then it fails."""


class PublishSettings(Record, kw_only=True, rename="kebab"):
    mode: Literal["commit", "pull-request"] = "commit"
    require: Literal["any", "all"] = "any"
    """`any` keeps what passed; `all` writes nothing unless every job passed."""


class Runner(Record, kw_only=True, rename="kebab"):
    """A runner of GitHub Actions, and what it has. `memory` and `disk` of GitHub's own runners are known."""

    label: str | tuple[str, ...] = ()
    """Its label, or several: a runner must have all of them."""
    group: str | None = None
    """Runner group of the organisation that it is in."""
    memory: float | None = None
    """GB."""
    disk: float | None = None
    """GB that are free when a job begins."""


class Recipe(Record, kw_only=True, rename="kebab"):
    """`hub-exporter.yaml`, or the command line that says the same."""

    defaults: ModelSettings = ModelSettings()
    models: tuple[ModelSettings, ...] = ()
    runners: dict[str, str | tuple[str, ...] | Runner] = {}
    """Runner kind (`linux-cpu`, `linux-cuda`, `macos-arm64`) -> label of the runner, list of labels, or what it has:
    `{label: big, memory: 64, disk: 300}`."""
    publish: PublishSettings = PublishSettings()


class Setting(Record, kw_only=True):
    """One effective value that is not the built-in default, and where it was written."""

    key: str
    """`engine.optimize`"""
    value: Any
    origin: str
    """`hub-exporter.yaml: models[0]`, `hub-exporter.yaml: defaults` or `--backends`."""


class ModelRequest(Record, kw_only=True):
    """One model of a recipe after the three levels (defaults < recipe < command line) are merged."""

    settings: ModelSettings
    origins: tuple[Setting, ...] = ()
    shared_target: bool = False
    """Several models have this target: each gets a folder of its own within."""


# ── The model: what is known of it without loading it ─────────────────────────────────────────────────────────────


class SourceFile(Record, kw_only=True):
    path: str
    size: int
    sha256: str
    blob: str | None = None
    """What git calls the content, where the Hub keeps the file in git: for such files it tells no other digest."""


class ResolvedModel(Record, kw_only=True):
    """A source pinned to one state, and everything the plan needs. Made without torch and without the weights."""

    source: str
    """As the user wrote it."""
    name: str
    """Last part of the repository id or folder, letters, digits, `-` and `_` only: the first part of a job's name."""
    repo: str | None
    """Hub id; `None` for a folder."""
    revision: str | None
    """As the user wrote it (`main`, `v1.2`)."""
    commit: str
    """Commit sha on the Hub; for a folder `sha256:<digest of its files>`."""
    folder: str
    """Absolute path of the local snapshot."""
    task: str
    task_origin: str
    """Why this task: `BertForMaskedLM`, `modules.json`, `recipe`."""
    auto_class: str
    """`AutoModelForMaskedLM`"""
    architecture: str
    """`BertForMaskedLM`"""
    model_type: str
    sentence_transformers: bool = False
    remote_code: bool = False
    """The repository brings its own modelling code, and the user consented."""
    parameters: int
    weight_bytes: int
    dtypes: dict[str, int]
    """safetensors dtype (`F32`) -> parameters stored in it."""
    context_length: int | None = None
    """Positions that the model was built for, from its configuration."""
    padding_side: Literal["left", "right"] = "right"
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    side_files: tuple[str, ...] = ()
    """Tokenizer, processor, chat template, configuration and licence files to carry along, relative to `folder`."""
    files: tuple[SourceFile, ...] = ()
    """Weights and configuration, with digests."""


# ── The plan ──────────────────────────────────────────────────────────────────────────────────────────────────────


class RunnerGroup(Record, kw_only=True):
    """What `runs-on` takes for a group of runners."""

    group: str
    labels: tuple[str, ...] = ()


class Needs(Record, kw_only=True):
    """What a job is expected to take on a machine of its own: estimates."""

    memory: int
    """Peak of its largest process."""
    disk: int
    """Its environment, the weights, and what it writes."""
    seconds: float
    """Of its export stage."""


class Job(Record, kw_only=True):
    """One export: a model, a backend, a variant. It carries all that its process needs."""

    name: str
    """`model.backend.variant`: directory, log heading, `--only` argument and JSON key."""
    model: ResolvedModel
    backend: str
    variant: str
    engine: EngineOptions
    dataset: DatasetSpec | None
    runner: str | tuple[str, ...] | RunnerGroup
    """Label, labels or group of the runner that can make and check it: what `runs-on` takes."""
    python: str
    """Version for its environment on a runner."""
    pins: str = ""
    """Digest of the pins of its backend."""
    time_limit: float
    """Seconds for each of its stages."""
    minutes: int
    """After which its runner is stopped: all stages, and setting up."""
    needs: Needs | None = None
    """What it is expected to take; `None` where nobody asked."""
    target: str


class Skip(Record, kw_only=True):
    """A job that was asked for and will not run."""

    name: str
    reason: str
    source: str = ""
    """Of its model, as the user wrote it."""
    target: str = ""
    current: bool = False
    """It is published as it would be made: there is nothing to do."""


class Refusal(Record, kw_only=True):
    """A model that was asked for and cannot be planned: an error on its way to whoever publishes the plan."""

    source: str
    target: str
    kind: str
    """Name in `ERRORS_BY_NAME`."""
    message: str
    hint: str | None = None


class Plan(Record, kw_only=True):
    """What is to be done. As a file it goes to every runner, and to the machine that publishes."""

    jobs: tuple[Job, ...]
    skipped: tuple[Skip, ...] = ()
    requests: tuple[ModelRequest, ...] = ()
    refused: tuple[Refusal, ...] = ()
    publish: PublishSettings = PublishSettings()


# ── Rows and capture ──────────────────────────────────────────────────────────────────────────────────────────────


class Row(Record, kw_only=True):
    """One row of the dataset, reduced to what the task reads."""

    id: str
    """Its number in the split, or its id where it has one."""
    values: dict[str, Any]
    """`{"text": ...}`, `{"text": ..., "text_pair": ...}`, `{"messages": [...]}` or `{"series": [...]}`; of a picture
    or a sound the file beside the rows, and its digest: `{"image": {"file": ..., "sha256": ..., "width": ...}}`."""


class CaptureSpec(Record, kw_only=True):
    """Which rows were used for what: disjoint, and reproducible from the revision and the ids."""

    path: str
    name: str | None = None
    split: str
    revision: str | None = None
    digest: str
    """sha256 over the rows."""
    capture: tuple[Row, ...]
    held_out: tuple[Row, ...]
    calibration: tuple[Row, ...] = ()


# ── Results ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Port(Record, kw_only=True):
    """One input or output of a graph."""

    name: str
    dtype: str
    """numpy's name: `int64`, `float32`."""
    shape: tuple[int | str, ...]
    """Numbers are fixed, names are free axes."""


class Component(Record, kw_only=True):
    """One exported graph."""

    name: str
    """`model`, `prefill`, `decode`"""
    file: str
    """Relative to the backend's folder."""
    data: str | None = None
    """File beside it that holds its weights: `model.onnx_data`, `openvino_model.bin`, `model.ptd` of ExecuTorch's CUDA
    delegate; `None` where they are inside."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    left_out: tuple[str, ...] = ()
    """Outputs of the model that the graph does not have on purpose: a client wants none but the first."""
    opsets: dict[str, int] = {}
    """ONNX operator sets: domain (`ai.onnx`) -> version."""
    ir_version: int | None = None
    """Version of the ONNX format."""
    min_length: int = 1
    """Tokens that a decoder's graph needs at least, text and cache together."""
    planned_memory: int | None = None
    """Bytes that ExecuTorch allocates before the first input."""
    delegated: float | None = None
    """Share of an ExecuTorch graph's operators that run in the delegate, 0 to 1."""


class Artifact(Record, kw_only=True):
    path: str
    """Relative to the target."""
    size: int
    sha256: str
    blob: str | None = None
    """What git calls the content; `None` where it is too large for the Hub to keep it in git."""


class JobRecipe(Record, kw_only=True):
    """What a job was asked to be, besides its backend and variant: all that the recipe says about its files."""

    task: str
    engine: EngineOptions = EngineOptions()
    dataset: DatasetSpec | None = None
    """At the commit that its rows were drawn at; of a file the name, not where it lies: rows have a digest."""
    remote_code: bool = False


class Past(Record, kw_only=True):
    """What an earlier publication of a job came to."""

    commit: str
    """Of the model."""
    pins: str
    difference: float | None = None
    """Largest absolute difference of any output."""
    size: int
    seconds: float
    latency: float | None = None


class JobKey(Record, kw_only=True):
    """What the files of a job are made of, a digest for each part: equal keys mean equal files."""

    source: str
    """Weights, configuration, side files and code of the model."""
    recipe: str
    """Backend, variant and `JobRecipe`."""
    rows: str
    pins: str
    """Lock of the backend; `unlocked:` and another digest where the packages in use were not those of the lock."""
    layout: int


class ExportOutcome(Record, kw_only=True):
    """What the export stage wrote."""

    components: tuple[Component, ...]
    layout: str
    """How the graphs are driven.

    `encoder`: one forward. `decoder`: one graph that takes and gives a cache. `prefill-decode`: two such graphs.
    `static-cache`: one graph that writes into a cache of fixed size, which the caller holds.
    `static-decoder`: one graph with its cache inside. `recurrent`: one token at a time, with a state.
    `encoder-decoder`: one graph over the source, one that takes and gives a cache. `uncached`: one forward over all of
    the text so far. `two-encoders`: one graph embeds texts, one pictures, and `constants` make scores of both.
    """
    constants: dict[str, float] = {}
    """Numbers that no graph has and an answer needs. Of `two-encoders` the score of a text and a picture is the cosine
    of their embeddings by `scale`, plus `bias` where there is one."""
    cache_length: int | None = None
    """Tokens, text and answer together, that a `static-cache` was made for; its caller may allocate more or fewer."""
    restrictions: tuple[str, ...] = ()
    """What the files cannot do, in words for the card: `batch 1`, `at most 512 tokens`."""
    placeholders: dict[str, int] = {}
    """Encoder of pictures or sounds -> the token whose places in the text its features go to."""
    fixed: dict[str, int] = {}
    """Axes of the inputs that might vary and do not, with their size; the restrictions say so."""
    notes: tuple[str, ...] = ()
    """What was changed to make it exportable: `flash_attention_2 replaced by sdpa`."""
    versions: dict[str, str] = {}
    """Packages that were really used."""
    seconds: dict[str, float] = {}
    """Step -> wall time: `load`, `trace`, `save`."""
    options: dict[str, Any] = {}
    """What the engine was told, for the index."""


class Figure(Record, kw_only=True):
    """Agreement of one output with the eager model. The three measures are `None` where nothing can be compared: the
    output has another shape, or is not finite (then `problem` says so)."""

    output: str
    max_abs: float | None
    max_rel: float | None
    """Relative to the largest absolute value of the reference."""
    cosine: float | None
    """Smallest over the vectors of the last axis."""
    agreement: float | None = None
    """Share of positions with the same argmax, where the output is a distribution over classes or tokens."""
    problem: str | None = None


class CaseResult(Record, kw_only=True):
    """One run of a graph beside the eager model."""

    case: str
    """`capture`, `batch 1`, `batch 3, left-padded`"""
    shape: tuple[int, ...]
    """Sizes of the axes that vary: (batch, length), or (batch, height, width)"""
    figures: tuple[Figure, ...] = ()
    error: str | None = None
    """Why the graph could not be run on it."""
    passed: bool


class DecodeResult(Record, kw_only=True):
    """A greedy decode loop beside `generate`."""

    case: str
    prompts: int
    """Rows decoded together."""
    tokens: int
    """Tokens compared, over all rows."""
    agreed: int
    first_difference: str | None = None
    """`row 0, step 7: 'the' instead of 'a'`"""
    max_abs: float | None
    """Largest difference of the logits, the loop being fed with the reference's tokens after a first difference."""
    error: str | None = None
    passed: bool


class Verification(Record, kw_only=True):
    level: Level
    reason: str
    """Why this level and no higher, in one sentence; for `parity` what it was shown on."""
    passed: bool
    runtime: str
    """`onnxruntime 1.32.0`"""
    immovable: tuple[str, ...] = ()
    """Axes that explain a mismatch: the files agree wherever these have the captured size, and nowhere else."""
    tolerance: dict[str, float] = {}
    cases: tuple[CaseResult, ...] = ()
    decodes: tuple[DecodeResult, ...] = ()
    notes: tuple[str, ...] = ()
    """For the card, such as what the runtime's default precision costs."""
    latency: float | None = None
    """Median seconds of a few runs of the first input: noisy, and another on every machine."""


class Toolchain(Record, kw_only=True):
    """The packages of a job: package -> version, of those that its backend names or the engine was tested with."""

    pins: str
    """Digest of the lock."""
    isolated: bool
    """It ran in an environment made from the lock."""
    tested: dict[str, tuple[str, ...]]
    """By the engine's exporter for the backend, or where that does not name the package by its quantizers."""
    locked: dict[str, str]
    ran: dict[str, str]
    """What was installed, local suffix (`+cpu`) included."""


class JobResult(Record, kw_only=True):
    """How a job ended, and all that was learned on the way."""

    job: str
    backend: str
    variant: str
    status: Status
    reason: str = ""
    """Empty when it passed; otherwise one sentence."""
    hint: str | None = None
    folder: str = ""
    """Of its files, relative to the target."""
    export: ExportOutcome | None = None
    verification: Verification | None = None
    artifacts: tuple[Artifact, ...] = ()
    clients: tuple[str, ...] = ()
    """Programs that load the files without help (names in `data/clients.toml`), set when they are published."""
    size_ratio: float | None = None
    """Bytes of graphs and weights over those of the model's parameters in float32, set when they are published."""
    seconds: float = 0.0
    peak_memory: int = 0
    """Largest resident set of the export process, in bytes."""
    toolchain: Toolchain | None = None
    """What it was made with; `None` in results of earlier releases, and where no environment could be made."""
    log: str | None = None
    """Where the whole output of its processes is."""
    rows: str | None = None
    """Digest of the rows it was made and checked with; `None` where they are those of the index's `capture`."""
    key: JobKey | None = None
    recipe: JobRecipe | None = None
    lock: dict[str, str] = {}
    """Package -> version in the backend's lock, to tell later which of them moved."""
    history: tuple[Past, ...] = ()
    """The publications before this one, the oldest first."""


class CellResult(Record, kw_only=True):
    """`result.json`: what one job of a plan left on its runner, whether it passed or not. The files of one that passed
    lie beside it under `files/`, the side files of its model under `source/`."""

    tool: str
    """`hub-exporter 0.1.0`"""
    job: Job
    """As it was planned."""
    result: JobResult
    capture: CaptureSpec | None
    """Which rows, not what they say; `None` where none were drawn."""


class Index(Record, kw_only=True):
    """`hub-exporter.json`: what is in a target, where it came from and what was proved."""

    schema: int = SCHEMA_VERSION
    layout: int = LAYOUT_VERSION
    tool: str
    """`hub-exporter 0.1.0`"""
    source: ResolvedModel
    capture: CaptureSpec | None
    jobs: tuple[JobResult, ...]
    side_files: tuple[Artifact, ...] = ()


class State(Record, kw_only=True, omit_defaults=True):
    """The index in one line of the card's metadata, which the Hub tells together with the names and digests of all
    files: enough to see that everything is current. Digests are cut short."""

    source: str
    """Hub id of the model; a name where it was a folder."""
    revision: str | None = None
    """As the user wrote it."""
    commit: str
    files: str
    """`keys.source_digest` of the model."""
    task: str
    asked: bool = False
    """The task was named by the user."""
    remote_code: bool = False
    side_files: str
    """Of their names."""
    folders: dict[str, str]
    """Folder -> digest of what hub-exporter has in it."""
    jobs: dict[str, str]
    """`backend.variant` -> its key without the source: recipe, rows, commit of the dataset, pins, layout."""
    others: int = 0
    """Jobs that did not pass, and why is in the index."""


class Reason(Record, kw_only=True):
    """Why a published job is stale."""

    kind: Literal["source", "recipe", "rows", "pins", "layout", "file", "failed", "unverified", "unpublished"]
    text: str


class Finding(Record, kw_only=True):
    """What `check` says of one job."""

    job: str
    backend: str
    variant: str
    source: str
    target: str
    status: Literal["current", "stale", "unknown"]
    """`unknown`: its source or its target could not be read."""
    reasons: tuple[Reason, ...] = ()
    note: str = ""
    """What moved and is no reason to run it again; for `unknown`, what went wrong."""


class Reproduction(Record, kw_only=True):
    """What came of rebuilding one published job."""

    job: str
    status: Literal["same", "different", "failed"]
    file: str = ""
    """The first that differs."""
    difference: str = ""
    """Where it differs first, or why it could not be rebuilt."""


class Change(Record, kw_only=True):
    """What publishing does to one file of a target."""

    path: str
    size: int
    """Of the new file; of one that is deleted, what it was."""
    kind: Literal["added", "changed", "unchanged", "deleted"]


class Publication(Record, kw_only=True):
    """What became of a target."""

    target: str
    """Hub id, or folder."""
    files: tuple[Change, ...]
    """All files of ours in it, and those that were deleted."""
    commit: str | None = None
    """Commit on the Hub that holds them; `None` for a folder and where nothing was published."""
    pull_request: int | None = None
    """Number of the pull request that the commit is in."""
    url: str | None = None
    """Page of the commit or of the pull request."""
    unchanged: bool = False
    """Everything was there already: nothing was written."""
    dry_run: bool = False
    """Nothing was to be written: this is what would have been."""


class ModelReport(Record, kw_only=True):
    """What one model's run gave: one line of the final table per job, one element of `--json`."""

    source: str
    target: str
    results: tuple[JobResult, ...]
    written: bool
    """Whether anything was put into the target."""
    error: str | None = None
    """What stopped it before or beside its jobs: the source, the rows or the target."""
    publication: Publication | None = None
    """What was written, file by file; `None` where nothing was to be."""


# ── The reference: what the eager model says, made once per model by a process of its own ─────────────────────────


class ReferenceCase(Record, kw_only=True):
    """One forward of the eager model. Its arrays are `<name>/in/<input>` and `<name>/out/<output>` in the npz."""

    name: str
    sizes: dict[str, int]
    """Axis of the inputs -> its size, the batch first: `{"batch_size": 2, "sequence_length": 13}`."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    features: tuple[str, ...] = ()
    """What the encoders of pictures and of texts give alone, beside the outputs."""

    @property
    def length(self) -> int | None:
        """Tokens of text."""
        return self.sizes.get("sequence_length")


class ReferenceDecode(Record, kw_only=True):
    """One greedy `generate`. Its arrays in the npz: `<name>/in/<input>` (batch, ...), the prompts or what is read;
    `<name>/tokens` (batch, steps) int64; `<name>/logits` (steps, batch, vocabulary) float32, of every step."""

    name: str
    batch: int
    chunks: tuple[int, ...]
    """How the prompt is fed: `(length,)` at once, `(5, length - 5)` as a prefill and a continuation."""
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")


class Reference(Record, kw_only=True):
    """What the written files of every backend are compared with; the arrays lie beside it in `reference.npz`."""

    layout: str
    metric: Literal["vectors", "classes", "tokens", "pixels"]
    cases: tuple[ReferenceCase, ...]
    decodes: tuple[ReferenceDecode, ...] = ()
    eos_tokens: tuple[int, ...] = ()
    """Suppressed while decoding, as `generate` was told to go on past the end of the text."""
    start_token: int | None = None
    """First decoder token of a sequence-to-sequence model."""
    model_type: str = ""
    """Of the configuration: some count the tokens of a text in a way of their own."""
    versions: dict[str, str] = {}
    notes: tuple[str, ...] = ()


# ── What a stage process is asked, and what it answers ────────────────────────────────────────────────────────────


class Ask(Record, kw_only=True):
    """What an exported model is asked."""

    prompt: str = ""
    image: str | None = None
    """Path of a picture."""
    audio: str | None = None
    """Path of a sound."""
    tokens: int = 128
    """New ones at most."""


class StageRequest(Record, kw_only=True):
    """Everything that one stage process needs; it reads no recipe and no catalogue."""

    stage: Literal["sample", "reference", "export", "verify", "load", "generate"]
    model: ResolvedModel
    dataset: DatasetSpec | None = None
    capture: CaptureSpec | None = None
    job: Job | None = None
    outcome: ExportOutcome | None = None
    folder: str
    """Where the stage writes, or where what it verifies was written."""
    reference: str = ""
    """Folder of the reference."""
    rows: str = ""
    """Folder with the pictures and sounds that the rows name."""
    ask: Ask | None = None


class StageError(Record, kw_only=True):
    """An exception on its way to the parent."""

    kind: str
    """Name in `ERRORS_BY_NAME`."""
    message: str
    hint: str | None = None


class StageAnswer(Record, kw_only=True):
    """One of the results, or the error."""

    capture: CaptureSpec | None = None
    outcome: ExportOutcome | None = None
    verification: Verification | None = None
    error: StageError | None = None


# ── What the stages say while they work ───────────────────────────────────────────────────────────────────────────


class Event(Record, kw_only=True):
    """One line of progress, from a stage process to the report."""

    job: str
    """Job name, or the model's name for steps that its jobs share (`sample`, `reference`)."""
    kind: Literal["start", "step", "note", "end"]
    """`start` and `end` bracket a job; a `step` begins one of its steps and so ends the one before."""
    text: str
    """Of the step (`trace`, `save`, `verify: batch 3`), the note, or the outcome."""
    seconds: float = 0.0
    """Since the job began."""
    status: Status | None = None
    """On `end`."""


class ModelRun(Record, kw_only=True):
    """What the run stage hands to the writing one: results, and the files of those that passed.

    The files of a passed job lie under `work/<job>/<path of the artifact in the target>`, and are moved from there.
    """

    model: ResolvedModel
    work: str
    capture: CaptureSpec | None
    results: tuple[JobResult, ...]
    kept: dict[str, str] = {}
    """Job -> folder that its files lie under instead, where they are to stay: results of other machines."""


# ── Pins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class EngineVersions(Record, kw_only=True):
    """A package that a class of the engine names."""

    package: str
    owner: str
    """`OnnxExporter`, `NNCFOnnxQuantizer`"""
    quantizer: bool
    tested: str | None = None
    minimum: str | None = None


class Difference(Record, kw_only=True):
    """A version that is locked on purpose though the engine was tested with another."""

    package: str
    backends: tuple[str, ...]
    locked: str
    tested: tuple[str, ...]
    """By the exporters of these backends, or where those do not name the package by their quantizers."""
    reason: str


class PinnedPackage(Record, kw_only=True):
    """One package of a backend: what the engine was tested with, what we lock, what there is."""

    package: str
    tested: tuple[str, ...] = ()
    """By the exporter, or where that does not name it by the quantizers."""
    quantizers: tuple[str, ...] = ()
    """Other versions that the quantizers were tested with."""
    locked: str | None = None
    newest: str | None = None
    """In the user's package index; `None` where it could not be asked."""
    reason: str | None = None
    """Why what is locked is not what was tested."""


class BackendPins(Record, kw_only=True):
    """The packages of one backend."""

    backend: str
    pins: str
    """Digest of its pins."""
    packages: tuple[PinnedPackage, ...]
    channels: dict[str, dict[str, str]] = {}
    """Other sets that are offered (`executorch-mlx-nightly`): package -> version."""


class Survey(Record, kw_only=True):
    """What `hub-exporter pins` shows."""

    engine: str
    """Version of transformers whose tested versions these are."""
    backends: tuple[BackendPins, ...]
    unknown: str | None = None
    """Why there are no newest versions."""


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────

R = TypeVar("R", bound=Record)


def to_json(record: Record | tuple[Record, ...] | list[Record]) -> bytes:
    """The record as indented JSON, keys in the order of the class, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def from_json(data: bytes | str, cls: type[R]) -> R:
    """The record that `to_json` wrote. Raises `msgspec.ValidationError` with the path of what is wrong."""
    return msgspec.json.decode(data, type=cls)
