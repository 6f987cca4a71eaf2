"""optimum-onnx or optimum-intel, whichever is named: a causal language model."""

import importlib

from asked import answer, request
from transformers import AutoTokenizer

module, _, name = request["class"].rpartition(".")
model = getattr(importlib.import_module(module), name).from_pretrained(request["model"], **request["options"])
tokenizer = AutoTokenizer.from_pretrained(request["model"], padding_side="left")


def continued(inputs):
    tokens = model.generate(**inputs, max_new_tokens=request["new_tokens"], do_sample=False)
    return tokens[:, inputs["input_ids"].shape[1] :].tolist()


def encoded(text, **options):
    return tokenizer(text, return_tensors="pt", **options)


chat = tokenizer.apply_chat_template(request["chat"], add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer(
    {
        "alone": [continued(encoded(text))[0] for text in request["prompts"]],
        "batch": continued(encoded(request["prompts"], padding=True)),
        "chat": continued(chat)[0],
    }
)
