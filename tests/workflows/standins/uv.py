"""Stand-in for the package uv, which says where its program is."""

from pathlib import Path


def find_uv_bin() -> str:
    return str(Path(__file__).parent / "bin" / "uv")
