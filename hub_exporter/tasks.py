"""The tasks, as rows of data, and which of them an architecture is made for.

The default datasets are public, ungated and small to stream (a handful of rows is read). They were chosen by their
cards; each row names the licence. A run without network names `--dataset builtin` or a file instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from hub_exporter.catalogue import Layout
from hub_exporter.records import DatasetSpec

Metric = Literal["vectors", "classes", "tokens", "pixels"]
Kind = Literal["text", "picture", "sound", "picture and text", "picture in text", "sound in text", "series"]
Columns = dict[str, tuple[str, ...]]
"""What a task reads -> columns of a dataset that are tried for it, in order, where the recipe maps none."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row: how a model of this task is loaded, fed and judged."""

    name: str
    """The Hub's pipeline tag, or one of our own where models of one tag are driven in two ways."""
    tag: str = ""
    """The Hub's pipeline tag, where `name` is not it."""
    auto_class: str
    """Class of transformers that loads it, where the head does not say another; empty for the head's own class."""
    inputs: Kind = "text"
    """What the model is fed with, and so which processor its repository must have."""
    layout: Layout
    """`encoder`: one graph; `decoder`: a cache and a decode loop; `seq2seq`: an encoder and a decoder; `multimodal`: an
    encoder of pictures or sounds before a decoder."""
    reads: tuple[Columns, ...]
    """What it reads: alternatives, the first that the dataset has is used."""
    optional: tuple[str, ...] = ()
    """What it reads only where the recipe maps it."""
    metric: Metric
    """How agreement is judged: `vectors` by difference; `classes` and `tokens` also tell how often the largest of the
    `logits` is the same, `pixels` for each of the places of a picture."""
    padding_side: Literal["left", "right"] = "right"
    """Where the tokenizer's configuration does not say; a decoder generates with the left one in any case."""
    dataset: DatasetSpec
    """Where the recipe names none."""
    licence: str
    """Of the default dataset."""
    builtin: str = "text"
    """Which of the built-in sets fits, see `builtin.rows`."""


_TEXT: Columns = {"text": ("text",)}
_WIKITEXT = DatasetSpec(path="Salesforce/wikitext", name="wikitext-2-raw-v1", split="train")
_WIKITEXT_LICENCE = "CC-BY-SA-3.0 and GFDL"

_IMAGE: Columns = {"image": ("image", "img", "picture")}
_BEANS = DatasetSpec(path="AI-Lab-Makerere/beans", split="train")
_BEANS_LICENCE = "MIT"
_AUDIO: Columns = {"audio": ("audio", "sound", "speech")}
_SPEECH = DatasetSpec(path="openslr/librispeech_asr", name="clean", split="validation")
_SPEECH_LICENCE = "CC-BY-4.0"
_SERIES: Columns = {"series": ("target", "series", "values")}
_HOURLY = DatasetSpec(path="autogluon/chronos_datasets", name="monash_kdd_cup_2018", split="train")
_HOURLY_LICENCE = "CC-BY-4.0"

_ROWS = (
    Task(
        name="feature-extraction",
        auto_class="AutoModel",
        layout="encoder",
        reads=(_TEXT,),
        optional=("text_pair",),
        metric="vectors",
        dataset=_WIKITEXT,
        licence=_WIKITEXT_LICENCE,
    ),
    Task(
        name="sentence-similarity",
        auto_class="AutoModel",
        layout="encoder",
        reads=(_TEXT,),
        metric="vectors",
        dataset=DatasetSpec(path="rajpurkar/squad", split="train", columns={"text": "question"}),
        licence="CC-BY-SA-4.0",
    ),
    Task(
        name="fill-mask",
        auto_class="AutoModelForMaskedLM",
        layout="encoder",
        reads=(_TEXT,),
        metric="tokens",
        dataset=_WIKITEXT,
        licence=_WIKITEXT_LICENCE,
    ),
    Task(
        name="text-classification",
        auto_class="AutoModelForSequenceClassification",
        layout="encoder",
        reads=(_TEXT,),
        optional=("text_pair",),
        metric="classes",
        dataset=DatasetSpec(path="google-research-datasets/go_emotions", name="simplified", split="train"),
        licence="Apache-2.0",
    ),
    Task(
        name="token-classification",
        auto_class="AutoModelForTokenClassification",
        layout="encoder",
        reads=(_TEXT,),
        metric="classes",
        dataset=_WIKITEXT,
        licence=_WIKITEXT_LICENCE,
    ),
    Task(
        name="question-answering",
        auto_class="AutoModelForQuestionAnswering",
        layout="encoder",
        reads=({"text": ("question", "text"), "text_pair": ("context", "text_pair")},),
        metric="classes",
        dataset=DatasetSpec(path="rajpurkar/squad", split="train"),
        licence="CC-BY-SA-4.0",
        builtin="pairs",
    ),
    Task(
        name="text-generation",
        auto_class="AutoModelForCausalLM",
        layout="decoder",
        reads=({"messages": ("messages",)}, _TEXT),
        metric="tokens",
        padding_side="left",
        dataset=DatasetSpec(path="HuggingFaceTB/everyday-conversations-llama3.1-2k", split="train_sft"),
        licence="Apache-2.0",
        builtin="chat",
    ),
    Task(
        name="text2text-generation",
        auto_class="AutoModelForSeq2SeqLM",
        layout="seq2seq",
        reads=(_TEXT,),
        metric="tokens",
        dataset=DatasetSpec(
            path="abisee/cnn_dailymail", name="3.0.0", split="validation", columns={"text": "highlights"}
        ),
        licence="Apache-2.0",
    ),
    Task(
        name="image-classification",
        auto_class="AutoModelForImageClassification",
        inputs="picture",
        layout="encoder",
        reads=(_IMAGE,),
        metric="classes",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="image-feature-extraction",
        auto_class="AutoModel",
        inputs="picture",
        layout="encoder",
        reads=(_IMAGE,),
        metric="vectors",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="object-detection",
        auto_class="AutoModelForObjectDetection",
        inputs="picture",
        layout="encoder",
        reads=(_IMAGE,),
        metric="classes",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="image-segmentation",
        auto_class="AutoModelForSemanticSegmentation",
        inputs="picture",
        layout="encoder",
        reads=(_IMAGE,),
        metric="pixels",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="depth-estimation",
        auto_class="AutoModelForDepthEstimation",
        inputs="picture",
        layout="encoder",
        reads=(_IMAGE,),
        metric="vectors",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="zero-shot-image-classification",
        auto_class="AutoModelForZeroShotImageClassification",
        inputs="picture and text",
        layout="encoder",
        reads=(_IMAGE,),
        optional=("text",),
        metric="vectors",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="image-text-to-text",
        auto_class="AutoModelForImageTextToText",
        inputs="picture in text",
        layout="multimodal",
        reads=(_IMAGE,),
        optional=("text",),
        metric="tokens",
        padding_side="left",
        dataset=_BEANS,
        licence=_BEANS_LICENCE,
        builtin="pictures",
    ),
    Task(
        name="audio-text-to-text",
        auto_class="",
        inputs="sound in text",
        layout="multimodal",
        reads=(_AUDIO,),
        optional=("text",),
        metric="tokens",
        padding_side="left",
        dataset=_SPEECH,
        licence=_SPEECH_LICENCE,
        builtin="sounds",
    ),
    Task(
        name="audio-classification",
        auto_class="AutoModelForAudioClassification",
        inputs="sound",
        layout="encoder",
        reads=(_AUDIO,),
        metric="classes",
        dataset=_SPEECH,
        licence=_SPEECH_LICENCE,
        builtin="sounds",
    ),
    Task(
        name="automatic-speech-recognition",
        auto_class="AutoModelForCTC",
        inputs="sound",
        layout="encoder",
        reads=(_AUDIO,),
        metric="tokens",
        dataset=_SPEECH,
        licence=_SPEECH_LICENCE,
        builtin="sounds",
    ),
    Task(
        name="speech-seq2seq",
        tag="automatic-speech-recognition",
        auto_class="AutoModelForSpeechSeq2Seq",
        inputs="sound",
        layout="seq2seq",
        reads=(_AUDIO,),
        metric="tokens",
        dataset=_SPEECH,
        licence=_SPEECH_LICENCE,
        builtin="sounds",
    ),
    Task(
        name="text-to-audio",
        tag="text-to-speech",
        auto_class="AutoModelForTextToWaveform",
        layout="encoder",
        reads=(_TEXT,),
        metric="vectors",
        dataset=_WIKITEXT,
        licence=_WIKITEXT_LICENCE,
    ),
    Task(
        name="time-series-forecasting",
        auto_class="",
        inputs="series",
        layout="encoder",
        reads=(_SERIES,),
        metric="vectors",
        dataset=_HOURLY,
        licence=_HOURLY_LICENCE,
        builtin="series",
    ),
    Task(
        name="time-series-classification",
        auto_class="",
        inputs="series",
        layout="encoder",
        reads=(_SERIES,),
        metric="vectors",
        dataset=_HOURLY,
        licence=_HOURLY_LICENCE,
        builtin="series",
    ),
)

TASKS: dict[str, Task] = {row.name: row for row in _ROWS}

_SOUND_MODELS = (
    "(Data2VecAudio|Hubert|SEW|SEWD|UniSpeech|UniSpeechSat|Wav2Vec2|Wav2Vec2Bert|Wav2Vec2Conformer|WavLM|Whisper)"
)

_READ_PICTURES_IN_TEXTS = "(Gemma3|Idefics3|Llava|PaliGemma|Qwen2VL|Qwen2_5_VL|SmolVLM|VipLlava)"

_HEADS = (
    (rf"{_SOUND_MODELS}ForSequenceClassification|.*ForAudioClassification", "audio-classification"),
    (r".*ForCTC", "automatic-speech-recognition"),
    (r".*ForImageClassification(WithTeacher)?", "image-classification"),
    (r".*ForObjectDetection", "object-detection"),
    (r"(?!OneFormer).*For(Semantic|Universal|Instance)?Segmentation", "image-segmentation"),
    (r".*ForDepthEstimation", "depth-estimation"),
    (r"(AltCLIP|ChineseCLIP|CLIP|Siglip)Model", "zero-shot-image-classification"),
    (r"VitsModel", "text-to-audio"),
    (rf"{_READ_PICTURES_IN_TEXTS}ForConditionalGeneration", "image-text-to-text"),
    (r"(AudioFlamingo3|Qwen2Audio)ForConditionalGeneration", "audio-text-to-text"),
    (r"PatchTS(T|Mixer)ForPrediction", "time-series-forecasting"),
    (r"PatchTSTForClassification|PatchTSMixerForTimeSeriesClassification", "time-series-classification"),
    (r".*ForCausalLM", "text-generation"),
    (r"(XLM|Flaubert)WithLMHeadModel", "fill-mask"),
    (r".*(LMHeadModel|ModelWithLMHead)", "text-generation"),
    (r".*ForMaskedLM", "fill-mask"),
    # Only those whose pre-training head is a masked language model; ELECTRA's, for one, is a discriminator.
    (r"(Albert|Bert|BigBird|Ernie|FNet|MegatronBert|MobileBert|RoCBert)ForPreTraining", "fill-mask"),
    (r".*ForSequenceClassification", "text-classification"),
    (r".*ForTokenClassification", "token-classification"),
    (r".*ForQuestionAnswering(Simple)?", "question-answering"),
    (r".*EncoderModel", "feature-extraction"),
)
_SPEECH_HEADS = re.compile(r"(Whisper|Speech2Text|Moonshine)ForConditionalGeneration|SpeechEncoderDecoderModel")
_SEQ2SEQ_HEADS = re.compile(r".*(ForConditionalGeneration|WithLMHeadModel|MTModel)|EncoderDecoderModel")
_BARE_MODEL = re.compile(r"(?!.*(For[A-Z]|Head|With|MTModel|Decoder|Reward|Score)).*Model")
"""Ends in `Model` and names no head."""


_OWN_CLASS = re.compile(r".*For(Universal|Instance)?Segmentation")
"""Heads whose automatic class depends on the model type."""


def task_of(architecture: str, is_encoder_decoder: bool, reads_pictures: bool = False) -> str | None:
    """The task that a class of transformers is made for, from its name; `None` where the name does not tell.

    Never `feature-extraction` for a class with a head, nor for both halves of an encoder-decoder. `reads_pictures` says
    of a class without a head that its configuration is one of pictures alone.
    """
    if _SPEECH_HEADS.fullmatch(architecture):
        return "speech-seq2seq"
    if is_encoder_decoder and _SEQ2SEQ_HEADS.fullmatch(architecture):
        return "text2text-generation"
    for pattern, task in _HEADS:
        if re.fullmatch(pattern, architecture):
            return task
    if not is_encoder_decoder and _BARE_MODEL.fullmatch(architecture):
        return "image-feature-extraction" if reads_pictures else "feature-extraction"
    return None


def auto_class_of(task: Task, architecture: str) -> str:
    """The class that loads this architecture: `AutoModel` would read a T5 encoder as a whole T5."""
    if not task.auto_class or _OWN_CLASS.fullmatch(architecture):
        return architecture
    encoder_only = task.auto_class == "AutoModel" and architecture.endswith("EncoderModel")
    return "AutoModelForTextEncoding" if encoder_only else task.auto_class


def dataset_for(task: Task, spec: DatasetSpec | None) -> DatasetSpec:
    """`spec`, or the default of the task where it names no dataset; the number of rows stays as asked for."""
    if spec is None:
        return task.dataset
    return spec if spec.path else msgspec.structs.replace(task.dataset, rows=spec.rows)
