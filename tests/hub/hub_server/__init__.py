"""A small Hub for tests and demonstrations: files on disk, content-addressed, no git, no accounts.

It answers what `huggingface_hub`, `datasets` and `transformers` ask of the real one, checks the hashes of uploads, logs
every request with whose token came with it, and fails on demand.

    PYTHONPATH=tests/hub python -m hub_server --data /tmp/hub       prints its address, then serves until it is ended
"""
