"""Smaller ONNX graphs, made of the written fp32 one: the names are those that transformers.js looks for."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUFFIXES = {"fp16": "_fp16", "int8": "_quantized", "int4": "_q4"}
"""Variant -> end of the file's name."""

BLOCK = 32
"""Weights of int4 that share a scale: the size that runtimes are fastest with."""


def converted(path: Path, variant: str) -> Any:
    """The graph of the file in another precision, as a model of `onnx_ir`; inputs and outputs stay float32.

    `fp16`: weights and arithmetic in half precision. `int8`: weights per channel, activations as they come. `int4`:
    weights of matrix products in blocks.
    """
    import onnx_ir

    with _quiet():
        made = {"fp16": _fp16, "int8": _int8, "int4": _int4}[variant](path)
    return made if isinstance(made, onnx_ir.Model) else onnx_ir.from_proto(made)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice of ONNX Runtime's tools to prepare a graph that is prepared."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _fp16(path: Path) -> Any:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(onnx.load(path), keep_io_types=True, disable_shape_infer=False)


def _int8(path: Path) -> Any:
    import onnx_ir
    from transformers.exporters import OnnxRuntimeDynamicConfig, OnnxRuntimeQuantizer
    from transformers.exporters.configs import ExportFormat

    quantizer = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(per_channel=True))  # per tensor: cosine 0.92 for MiniLM
    return quantizer.quantize(onnx_ir.load(path), {}, ExportFormat.ONNX)


def _int4(path: Path) -> Any:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(path), block_size=BLOCK, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    return quantizer.model.model
