"""sentence-transformers with one of its backends, told nothing about files; options where the request has some."""

from asked import answer, request
from sentence_transformers import SentenceTransformer

options = {"model_kwargs": request["model_kwargs"]} if request.get("model_kwargs") else {}
model = SentenceTransformer(request["model"], backend=request["backend"], **options)
answer({"embeddings": model.encode(request["texts"], batch_size=len(request["texts"])).tolist()})
