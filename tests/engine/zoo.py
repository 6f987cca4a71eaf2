"""Small models of different kinds, with random weights and a tokenizer of their own, written like repositories.

Random weights are enough to compare numbers with; what they say is noise. The weights are larger than usual so that a
mask that is ignored or a position that is off by one shows.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXTS = (
    "The cat sat on the mat in the warm afternoon sun and slept.",
    "Rain fell.",
    "A quick brown fox jumps over the lazy dog near the river bank today.",
    "Why do birds sing?",
    "The train to the north leaves at nine and arrives before noon, if the snow allows.",
    "She bought bread, cheese and two apples at the market.",
    "Stars are far away.",
    "The history of the lighthouse begins in a storm long ago, when a ship was lost.",
    "What is the capital of France?",
    "Every morning the baker opens his shop at six and greets the first child on her way to school.",
)
"""Rows for every task: of different lengths, ten of them, so that capture and held-out rows are disjoint."""

SMALL = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


@dataclass(frozen=True)
class Kind:
    """One architecture of the zoo."""

    name: str
    about: str
    """What it stands for."""
    auto_class: str
    config: Callable[[], Any]
    special: bool = False
    """Whether the tokenizer puts a start and an end token around a text."""
    processor: Callable[[], Any] | None = None
    """Image processor or feature extractor, of a kind that reads no text or not only text."""
    reads_text: bool = True
    checked: tuple[str, ...] = ("dynamo",)
    """Backends that the tests run it through: the others are run by `make coverage` alone."""


def _config(cls: str, **changes: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, cls)(**{**SMALL, **changes})


KINDS = (
    Kind("bert", "encoder, absolute positions", "AutoModel", _config("BertConfig"), special=True),
    Kind(
        "deberta-v2",
        "encoder, relative positions",
        "AutoModelForMaskedLM",
        _config(
            "DebertaV2Config",
            relative_attention=True,
            max_relative_positions=-1,
            pos_att_type="p2c|c2p",
            position_biased_input=False,
        ),
        special=True,
    ),
    Kind(
        "roberta",
        "encoder with a classification head",
        "AutoModelForSequenceClassification",
        _config("RobertaConfig", num_labels=3),
        special=True,
    ),
    Kind(
        "distilbert",
        "encoder with a token classification head",
        "AutoModelForTokenClassification",
        lambda: transformers.DistilBertConfig(
            vocab_size=320,
            dim=32,
            hidden_dim=64,
            n_layers=2,
            n_heads=4,
            max_position_embeddings=128,
            initializer_range=0.2,
            num_labels=5,
            pad_token_id=0,
        ),
        special=True,
    ),
    Kind(
        "modernbert",
        "encoder, rotary positions, local attention",
        "AutoModel",
        _config("ModernBertConfig", local_attention=8, global_attn_every_n_layers=2),
        special=True,
    ),
    Kind("llama", "decoder, grouped heads", "AutoModelForCausalLM", _config("LlamaConfig", num_key_value_heads=2)),
    Kind(
        "qwen3",
        "decoder, head size that is not hidden size by heads",
        "AutoModelForCausalLM",
        _config("Qwen3Config", num_key_value_heads=2, head_dim=16),
    ),
    Kind(
        "gpt2",
        "decoder, learned positions",
        "AutoModelForCausalLM",
        lambda: transformers.GPT2Config(
            vocab_size=320,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=128,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Kind(
        "gemma3-text",
        "decoder, sliding window",
        "AutoModelForCausalLM",
        _config(
            "Gemma3TextConfig",
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    Kind(
        "mixtral",
        "decoder, mixture of experts",
        "AutoModelForCausalLM",
        _config("MixtralConfig", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    ),
    Kind(
        "mamba",
        "decoder, state space",
        "AutoModelForCausalLM",
        lambda: transformers.MambaConfig(
            vocab_size=320,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Kind(
        "bart",
        "encoder-decoder, learned positions",
        "AutoModelForSeq2SeqLM",
        lambda: transformers.BartConfig(
            vocab_size=320,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=128,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            init_std=0.2,
        ),
        special=True,
    ),
    Kind(
        "t5",
        "encoder-decoder, relative positions",
        "AutoModelForSeq2SeqLM",
        lambda: transformers.T5Config(
            vocab_size=320,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=2,
            initializer_factor=2.0,
        ),
        special=True,
    ),
)
"""Encoders with absolute, relative and rotary positions, decoders with grouped heads, a sliding window, experts, a
state space, and an encoder-decoder."""

VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.2,
}
SQUARE = {"height": 32, "width": 32}


def _pictures(
    name: str, about: str, auto_class: str, config: Callable[[], Any], processor: str = "ViT", **settings: Any
) -> Kind:
    made = lambda: getattr(transformers, f"{processor}ImageProcessorPil")(**settings)  # noqa: E731
    return Kind(name, about, auto_class, config, processor=made, reads_text=False)


def _sounds(name: str, about: str, auto_class: str, config: Callable[[], Any], extractor: Callable[[], Any]) -> Kind:
    return Kind(name, about, auto_class, config, processor=extractor, reads_text=False)


def _speech(cls: str, **changes: Any) -> Callable[[], Any]:
    """A tiny wav2vec 2.0 of any family: two convolutions of stride 16 in front of two layers."""
    sizes = {
        "vocab_size": 32,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "conv_dim": (32, 32, 32),
        "conv_stride": (8, 4, 4),
        "conv_kernel": (10, 4, 3),
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "initializer_range": 0.2,
    }
    return lambda: getattr(transformers, cls)(**{**sizes, **changes})


def _resnet() -> Any:
    return transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")


def _backbone() -> Any:
    return transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )


def _stages(config: str) -> Any:
    """A tiny Swin or ResNet that gives what it has at four sizes."""
    own: dict[str, Any] = {
        "SwinConfig": {"embed_dim": 16, "num_heads": [2, 2, 4, 4], "window_size": 4, "image_size": 64},
        "ResNetConfig": {"embedding_size": 16, "hidden_sizes": [16, 16, 32, 32], "layer_type": "basic"},
    }
    return getattr(transformers, config)(
        **own[config], depths=[1, 1, 1, 1], out_features=[f"stage{n}" for n in (1, 2, 3, 4)]
    )


def _dino(**changes: Any) -> Any:
    return transformers.Dinov2Config(**{**VISION, "intermediate_size": None, "mlp_ratio": 2, **changes})


PICTURES = (
    _pictures(
        "vit",
        "pictures: classification",
        "AutoModelForImageClassification",
        lambda: transformers.ViTConfig(**VISION, num_labels=5),
        size=SQUARE,
    ),
    _pictures("dinov2", "pictures: features", "AutoModel", _dino, "Bit", size={"shortest_edge": 40}, crop_size=SQUARE),
    _pictures(
        "resnet",
        "pictures: convolutions",
        "AutoModelForImageClassification",
        _resnet,
        "ConvNext",
        size={"shortest_edge": 48},
        crop_pct=0.875,
    ),
    _pictures(
        "convnext",
        "pictures: depthwise convolutions",
        "AutoModelForImageClassification",
        lambda: transformers.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, initializer_range=0.2),
        "ConvNext",
        size={"shortest_edge": 48},
        crop_pct=0.875,
    ),
    _pictures(
        "swin",
        "pictures: shifted windows",
        "AutoModelForImageClassification",
        lambda: transformers.SwinConfig(
            image_size=32,
            patch_size=4,
            embed_dim=16,
            depths=[1, 1],
            num_heads=[2, 4],
            window_size=4,
            initializer_range=0.2,
        ),
        size=SQUARE,
    ),
    _pictures(
        "detr",
        "pictures of any size: object detection, with a mask",
        "AutoModelForObjectDetection",
        lambda: transformers.DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=_backbone(),
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_queries=7,
            num_labels=5,
        ),
        "Detr",
        size={"shortest_edge": 128, "longest_edge": 224},
    ),
    _pictures(
        "yolos",
        "pictures of any size: object detection, without a mask",
        "AutoModelForObjectDetection",
        lambda: transformers.YolosConfig(**{**VISION, "image_size": [64, 96]}, num_detection_tokens=7, num_labels=5),
        "Yolos",
        size={"shortest_edge": 64, "longest_edge": 128},
    ),
    _pictures(
        "segformer",
        "pictures: segmentation",
        "AutoModelForSemanticSegmentation",
        lambda: transformers.SegformerConfig(
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[2, 1],
            hidden_sizes=[16, 32],
            patch_sizes=[7, 3],
            strides=[4, 2],
            num_attention_heads=[2, 4],
            mlp_ratios=[2, 2],
            decoder_hidden_size=32,
            num_labels=5,
            initializer_range=0.2,
        ),
        "Segformer",
        size={"height": 64, "width": 64},
    ),
    _pictures(
        "mask2former",
        "pictures: segmentation, deformable attention",
        "Mask2FormerForUniversalSegmentation",
        lambda: transformers.Mask2FormerConfig(
            backbone_config=_stages("SwinConfig"),
            feature_size=32,
            mask_feature_size=32,
            hidden_dim=32,
            encoder_feedforward_dim=64,
            dim_feedforward=64,
            encoder_layers=1,
            decoder_layers=3,
            num_attention_heads=4,
            num_queries=7,
            num_labels=5,
        ),
        "Mask2Former",
        size={"height": 64, "width": 64},
    ),
    _pictures(
        "maskformer",
        "pictures of any size: segmentation, with a mask",
        "MaskFormerForInstanceSegmentation",
        lambda: transformers.MaskFormerConfig(
            backbone_config=_stages("ResNetConfig"),
            decoder_config=transformers.DetrConfig(
                d_model=32,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                num_queries=7,
                use_timm_backbone=False,
                use_pretrained_backbone=False,
                backbone=None,
                backbone_config=_backbone(),
            ),
            fpn_feature_size=32,
            mask_feature_size=32,
            num_labels=5,
        ),
        "MaskFormer",
        size={"shortest_edge": 96, "longest_edge": 160},
        size_divisor=32,
    ),
    _pictures(
        "dpt",
        "pictures: depth",
        "AutoModelForDepthEstimation",
        lambda: transformers.DPTConfig(
            **VISION | {"num_hidden_layers": 4},
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[16, 16, 32, 32],
            fusion_hidden_size=16,
            is_hybrid=False,
        ),
        "DPT",
        size=SQUARE,
    ),
    _pictures(
        "depth-anything",
        "pictures of any size: depth over DINOv2",
        "AutoModelForDepthEstimation",
        lambda: transformers.DepthAnythingConfig(
            backbone_config=_dino(
                out_features=["stage1", "stage2"], image_size=56, patch_size=14, reshape_hidden_states=False
            ),
            reassemble_hidden_size=32,
            patch_size=14,
            reassemble_factors=[2, 1],
            neck_hidden_sizes=[16, 16],
            fusion_hidden_size=16,
            head_hidden_size=8,
        ),
        "DPT",
        size={"height": 56, "width": 56},
        keep_aspect_ratio=True,
        ensure_multiple_of=14,
    ),
)

TWO_ENCODERS = tuple(
    Kind(
        name,
        about,
        "AutoModel",
        lambda config=config: getattr(transformers, f"{config}Config")(
            text_config=SMALL | {"max_position_embeddings": 64, "projection_dim": 16, "projection_size": 32},
            vision_config=VISION | {"projection_dim": 16},
            projection_dim=16,
        ),
        special=True,
        processor=lambda config=config: (
            transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE)
            if config == "CLIP"
            else transformers.SiglipImageProcessorPil(size=SQUARE)
        ),
    )
    for name, about, config in (
        ("clip", "pictures and texts", "CLIP"),
        ("siglip", "pictures and texts, all texts of one length", "Siglip"),
    )
)


def _in_text(name: str, about: str, auto_class: str, make: Callable[[Any], tuple[Any, Any]], **tokens: str) -> Kind:
    """A model that reads pictures or sounds in its text. `make` gives configuration and processor around a tokenizer
    that knows `tokens` by their names."""
    return Kind(
        name,
        about,
        auto_class,
        lambda: make(tokenizer(special=False, **tokens))[0],
        processor=lambda: make(tokenizer(special=False, **tokens))[1],
        reads_text=False,
    )


def _llava(words: Any) -> tuple[Any, Any]:
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**SMALL, num_key_value_heads=2),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_id=words.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE),
        words,
        patch_size=VISION["patch_size"],
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return config, processor


def _gemma3(words: Any) -> tuple[Any, Any]:
    text = SMALL | {"vocab_size": len(words), "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 64}
    config = transformers.Gemma3Config(
        text_config=text | {"layer_types": ["sliding_attention", "full_attention"]},
        vision_config=VISION | {"model_type": "siglip_vision_model"},
        mm_tokens_per_image=4,
        image_token_id=words.image_token_id,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
    )
    pictures = transformers.Gemma3ImageProcessorPil(size=SQUARE, do_pan_and_scan=False)
    return config, transformers.Gemma3Processor(pictures, words, image_seq_length=4)


def _paligemma(words: Any) -> tuple[Any, Any]:
    config = transformers.PaliGemmaConfig(
        text_config=SMALL
        | {"model_type": "gemma", "vocab_size": len(words) + 1152, "num_key_value_heads": 1, "head_dim": 16},
        vision_config=VISION | {"model_type": "siglip_vision_model"},
        image_token_id=words.convert_tokens_to_ids("<image>"),
        projection_dim=32,
    )
    pictures = transformers.SiglipImageProcessorPil(size=SQUARE)
    pictures.image_seq_length = (VISION["image_size"] // VISION["patch_size"]) ** 2
    return config, transformers.PaliGemmaProcessor(pictures, words)


def _idefics3(words: Any, cls: str = "Idefics3") -> tuple[Any, Any]:
    config = getattr(transformers, f"{cls}Config")(
        text_config=SMALL | {"vocab_size": len(words), "num_key_value_heads": 2, "model_type": "llama"},
        vision_config={key: value for key, value in VISION.items() if key != "initializer_range"},
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    pictures = getattr(transformers, f"{cls}ImageProcessorPil")(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    if cls == "SmolVLM":
        return config, WithoutVideos("SmolVLMProcessor", pictures, words, image_seq_len=4)
    return config, transformers.Idefics3Processor(pictures, words, image_seq_len=4)


def _qwen2vl(words: Any, cls: str = "Qwen2VL") -> tuple[Any, Any]:
    vision = {"depth": 2, "num_heads": 4, "in_channels": 3, "patch_size": 8, "spatial_merge_size": 2}
    sizes = {
        "Qwen2VL": {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2},
        "Qwen2_5_VL": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "out_hidden_size": 32,
            "window_size": 32,
            "fullatt_block_indexes": [1],
        },
    }[cls]
    config = getattr(transformers, f"{cls}Config")(
        text_config=SMALL
        | {
            "vocab_size": len(words),
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
        },
        vision_config=vision | sizes,
        image_token_id=words.image_token_id,
        video_token_id=words.video_token_id,
        vision_start_token_id=3,
        vision_end_token_id=3,
    )
    pictures = transformers.Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, size={"shortest_edge": 48 * 48, "longest_edge": 80 * 80}
    )
    return config, WithoutVideos(f"{cls}Processor", pictures, words)


def _qwen2_audio(words: Any, cls: str = "Qwen2Audio") -> tuple[Any, Any]:
    config = getattr(transformers, f"{cls}Config")(
        audio_config={
            "d_model": 32,
            "hidden_size": 32,
            "intermediate_size": 64,
            "encoder_layers": 2,
            "num_hidden_layers": 2,
            "encoder_attention_heads": 4,
            "num_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "num_mel_bins": 16,
            "max_source_positions": 100,
        },
        text_config=SMALL
        | {
            "vocab_size": len(words),
            "num_key_value_heads": 2,
            "model_type": "qwen2",
            "max_position_embeddings": 256,  # a chat begins with a long text of the processor's own
        },
        audio_token_id=words.audio_token_id,
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2)
    return config, getattr(transformers, f"{cls}Processor")(extractor, words, audio_token=words.audio_token)


class WithoutVideos:
    """A processor that reads videos too, saved without torchvision, which its part for them needs."""

    def __init__(self, name: str, pictures: Any, words: Any, **settings: Any):
        self._settings = {"processor_class": name, **settings}
        self._pictures, self._words = pictures, words

    def save_pretrained(self, folder: Path) -> None:
        self._pictures.save_pretrained(folder)
        self._words.save_pretrained(folder)
        (folder / "processor_config.json").write_text(json.dumps(self._settings), "utf-8")


_SEES = "AutoModelForImageTextToText"
_PIECES = {f"row_{row}_col_{column}": f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)}
_TILES = {"edge": "<fake_token_around_image>", "whole": "<global-img>", "end": "<end_of_utterance>", **_PIECES}

IN_TEXT = (
    _in_text("llava", "pictures in texts", _SEES, _llava),
    _in_text(
        "gemma3",
        "pictures in texts, read both ways",
        _SEES,
        _gemma3,
        boi_token="<boi>",
        eoi_token="<eoi>",
        image_token="<soft>",
    ),
    _in_text("paligemma", "pictures in texts, the whole prompt read both ways", _SEES, _paligemma),
    _in_text("idefics3", "pictures in texts, in tiles", _SEES, _idefics3, **_TILES),
    _in_text(
        "smolvlm",
        "pictures in texts, in tiles, small",
        _SEES,
        lambda words: _idefics3(words, "SmolVLM"),
        **_TILES,
    ),
    _in_text(
        "qwen2-vl",
        "pictures of any size in texts, positions in three axes",
        _SEES,
        _qwen2vl,
        image_token="<|image_pad|>",
        video_token="<|video_pad|>",
    ),
    _in_text(
        "qwen2.5-vl",
        "pictures of any size in texts, attention in windows",
        _SEES,
        lambda words: _qwen2vl(words, "Qwen2_5_VL"),
        image_token="<|image_pad|>",
        video_token="<|video_pad|>",
    ),
    _in_text(
        "qwen2-audio", "sounds in texts", "Qwen2AudioForConditionalGeneration", _qwen2_audio, audio_token="<|AUDIO|>"
    ),
    _in_text(
        "audioflamingo3",
        "sounds in texts, with a mask",
        "AudioFlamingo3ForConditionalGeneration",
        lambda words: _qwen2_audio(words, "AudioFlamingo3"),
        audio_token="<sound>",
    ),
)

SOUNDS = (
    _sounds(
        "wav2vec2-ctc",
        "sounds: speech recognition (CTC), with a mask",
        "AutoModelForCTC",
        _speech("Wav2Vec2Config", feat_extract_norm="layer", do_stable_layer_norm=True),
        lambda: transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True),
    ),
    _sounds(
        "hubert",
        "sounds: classification",
        "AutoModelForAudioClassification",
        _speech("HubertConfig", num_labels=4),
        lambda: transformers.Wav2Vec2FeatureExtractor(return_attention_mask=False),
    ),
    _sounds(
        "ast",
        "sounds: classification of a spectrogram",
        "AutoModelForAudioClassification",
        lambda: transformers.ASTConfig(
            **{key: value for key, value in VISION.items() if key != "image_size"},
            max_length=128,
            num_mel_bins=32,
            num_labels=4,
        ),
        lambda: transformers.ASTFeatureExtractor(max_length=128, num_mel_bins=32),
    ),
    Kind(
        "whisper",
        "sounds: speech recognition, encoder-decoder",
        "AutoModelForSpeechSeq2Seq",
        lambda: transformers.WhisperConfig(
            vocab_size=320,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=16,
            max_source_positions=100,
            max_target_positions=128,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=3,
            init_std=0.2,
        ),
        processor=lambda: transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2),
    ),
)


def _letters() -> Any:
    """A tokenizer of letters with a blank around each, as those of MMS."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({letter: number for number, letter in enumerate("_ abcdefghijklmnopqrstuvwxyz'")}, file)
        file.flush()
        return transformers.VitsTokenizer(file.name, phonemize=False, pad_token="_", unk_token=" ")


SPOKEN = (
    Kind(
        "vits",
        "texts to sound of a length that the model decides",
        "AutoModelForTextToWaveform",
        lambda: transformers.VitsConfig(
            vocab_size=29,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=64,
            flow_size=32,
            spectrogram_bins=33,
            upsample_initial_channel=32,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1, 3]],
            duration_predictor_filter_channels=32,
            duration_predictor_num_flows=2,
            prior_encoder_num_flows=2,
            prior_encoder_num_wavenet_layers=2,
            posterior_encoder_num_wavenet_layers=2,
            layerdrop=0.0,
            initializer_range=0.2,
        ),
        processor=_letters,
        reads_text=False,
    ),
)

SERIES = (
    Kind(
        "patchtst",
        "time series",
        "PatchTSTForPrediction",
        lambda: transformers.PatchTSTConfig(
            num_input_channels=3,
            context_length=48,
            patch_length=8,
            patch_stride=8,
            prediction_length=12,
            d_model=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        ),
        reads_text=False,
    ),
)

TEXTS_TOO = (
    Kind("albert", "encoder, shared layers", "AutoModel", _config("AlbertConfig", embedding_size=16), special=True),
    Kind(
        "electra", "encoder, narrow embeddings", "AutoModel", _config("ElectraConfig", embedding_size=16), special=True
    ),
    Kind(
        "mpnet", "encoder, relative position buckets", "AutoModel", _config("MPNetConfig", pad_token_id=1), special=True
    ),
    Kind(
        "xlm-roberta",
        "encoder, positions behind the padding",
        "AutoModelForMaskedLM",
        _config("XLMRobertaConfig", max_position_embeddings=130),
        special=True,
    ),
    Kind("qwen2", "decoder, biased projections", "AutoModelForCausalLM", _config("Qwen2Config", num_key_value_heads=2)),
    Kind(
        "mistral",
        "decoder, sliding window in every layer",
        "AutoModelForCausalLM",
        _config("MistralConfig", num_key_value_heads=2, sliding_window=16, head_dim=8),
    ),
    Kind("phi3", "decoder, fused projections", "AutoModelForCausalLM", _config("Phi3Config", num_key_value_heads=2)),
    Kind("olmo2", "decoder, norms behind the layers", "AutoModelForCausalLM", _config("Olmo2Config")),
    Kind(
        "stablelm",
        "decoder, partly rotary positions",
        "AutoModelForCausalLM",
        _config("StableLmConfig", num_key_value_heads=4),
    ),
    Kind(
        "opt",
        "decoder, learned positions with an offset",
        "AutoModelForCausalLM",
        _config("OPTConfig", ffn_dim=64, word_embed_proj_dim=32),
    ),
    Kind(
        "bloom",
        "decoder, linear biases for positions",
        "AutoModelForCausalLM",
        _config("BloomConfig", n_layer=2, n_head=4),
    ),
    Kind(
        "mamba2",
        "decoder, state space with heads",
        "AutoModelForCausalLM",
        _config("Mamba2Config", num_heads=8, head_dim=8, state_size=8, n_groups=2, chunk_size=8, expand=2),
    ),
)
"""Kinds of text models that are much used and differ in one thing from those above."""

ALL = ("onnx", "openvino", "executorch-xnnpack", "dynamo")
UNCHECKED = ("albert", "electra", "mpnet", "qwen2", "phi3", "olmo2", "stablelm", "opt", "idefics3", "audioflamingo3")
"""Kinds that differ little from one that the tests run: `make coverage` alone runs them."""

CHECKED = {
    **dict.fromkeys(UNCHECKED, ()),
    **dict.fromkeys(("llama", "mamba"), ALL),
    **dict.fromkeys(("bert", "gemma3-text", "vit", "wav2vec2-ctc", "clip"), ("onnx", "openvino", "dynamo")),
    **dict.fromkeys(("modernbert", "qwen3", "detr", "vits"), ("onnx", "dynamo")),
    **dict.fromkeys(("gpt2", "mixtral"), ("executorch-xnnpack", "dynamo")),
}
"""Kinds that stand for many, and the backends that the tests run them through."""

WHOLE_TOO = (
    ("mamba", "dynamo"),
    ("t5", "openvino"),
    ("whisper", "dynamo"),
    ("llava", "onnx"),
)
"""(Kind that generates, backend) that the tests also run as one graph without a cache."""

KINDS = tuple(
    dataclasses.replace(kind, checked=CHECKED.get(kind.name, kind.checked))
    for kind in (*KINDS, *TEXTS_TOO, *PICTURES, *TWO_ENCODERS, *IN_TEXT, *SOUNDS, *SPOKEN, *SERIES)
)
BY_NAME = {kind.name: kind for kind in KINDS}


def write(kind: Kind, folder: Path) -> Path:
    """The model of `kind` as a repository in `folder`."""
    torch.manual_seed(0)
    make = getattr(transformers, kind.auto_class)
    model = (make.from_config if kind.auto_class.startswith("Auto") else make)(kind.config()).eval()
    with torch.no_grad():  # norms start as the identity, which would hide that one is missing
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    if kind.reads_text:
        tokenizer(kind.special).save_pretrained(folder)
    if kind.processor is not None:
        kind.processor().save_pretrained(folder)
    return folder


def tokenizer(special: bool, **named: str) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE of 320 tokens, and tokens of its own by their names."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    names = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<image>"]
    alphabet = sorted(set("".join(TEXTS).replace(" ", "Ġ")))
    core.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=320, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    )
    if special:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
        extra_special_tokens=named,
    )
