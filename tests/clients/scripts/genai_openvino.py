"""OpenVINO GenAI over a folder: a language model's tokens, or the embeddings of a sentence model."""

import openvino_genai as ov_genai
from asked import answer, request

# Without the hint the CPU plugin computes in bf16 on processors that have it.
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}


def chat():
    pipeline = ov_genai.LLMPipeline(request["model"], "CPU", **EXACT)
    tokenizer = pipeline.get_tokenizer()

    def continued(inputs):
        return pipeline.generate(inputs, max_new_tokens=request["new_tokens"], do_sample=False).tokens

    talk = tokenizer.apply_chat_template(ov_genai.ChatHistory(request["chat"]), add_generation_prompt=True)
    alone = [continued(tokenizer.encode(text))[0] for text in request["prompts"]]
    return {
        "alone": alone,
        "texts": tokenizer.decode(alone),
        "batch": continued(tokenizer.encode(request["prompts"], padding_side="left")),
        "chat": continued(tokenizer.encode(talk, add_special_tokens=False))[0],
    }


def embeddings():
    config = ov_genai.TextEmbeddingPipeline.Config()
    config.pooling_type = ov_genai.TextEmbeddingPipeline.PoolingType.MEAN
    config.normalize = True
    pipeline = ov_genai.TextEmbeddingPipeline(request["model"], "CPU", config, **EXACT)
    return {"embeddings": pipeline.embed_documents(request["texts"])}


answer(embeddings() if "texts" in request else chat())
