"""The reference: the model in eager transformers, in float32. Greedy tokens, or the vectors of a sentence model."""

import torch
from asked import answer, request
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

torch.set_grad_enabled(False)
tokenizer = AutoTokenizer.from_pretrained(request["model"])


def encoded(text):
    return tokenizer(text, padding=True, truncation=True, return_tensors="pt")


def embeddings():
    model = AutoModel.from_pretrained(request["model"], dtype=torch.float32).eval()
    inputs = encoded(request["texts"])
    mask = inputs["attention_mask"][..., None]
    mean = (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
    return {"embeddings": torch.nn.functional.normalize(mean).tolist()}


def chat():
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32).eval()

    def continued(inputs):
        tokens = model.generate(**inputs, max_new_tokens=request["new_tokens"], do_sample=False)
        return tokens[:, inputs["input_ids"].shape[1] :].tolist()

    tokenizer.padding_side = "left"
    talk = tokenizer.apply_chat_template(
        request["chat"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    alone = [continued(encoded(text))[0] for text in request["prompts"]]
    bare = [tokenizer(text, add_special_tokens=False, return_tensors="pt") for text in request["prompts"]]
    return {
        "alone": alone,
        "batch": continued(encoded(request["prompts"])),
        "chat": continued(talk)[0],
        "texts": tokenizer.batch_decode(alone, skip_special_tokens=True),
        "bare_texts": [tokenizer.decode(continued(inputs)[0], skip_special_tokens=True) for inputs in bare],
        "ids": tokenizer(request["prompts"])["input_ids"],
        "last_logits": [model(**encoded(text)).logits[0, -1].tolist() for text in request["prompts"]],
    }


answer(embeddings() if "texts" in request else chat())
