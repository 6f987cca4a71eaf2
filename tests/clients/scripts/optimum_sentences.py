"""optimum-onnx or optimum-intel, whichever is named: a feature extractor, with mean pooling by hand."""

import importlib

import torch
from asked import answer, request
from transformers import AutoTokenizer

module, _, name = request["class"].rpartition(".")
model = getattr(importlib.import_module(module), name).from_pretrained(request["model"], **request["options"])
inputs = AutoTokenizer.from_pretrained(request["model"])(
    request["texts"], padding=True, truncation=True, return_tensors="pt"
)
mask = inputs["attention_mask"][..., None]
mean = (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
answer({"embeddings": torch.nn.functional.normalize(mean).tolist()})
