"""Pictures and sounds of a dataset: files beside the rows, which stay small records with a reference and a digest.

The sample stage keeps them (`keep`), the stages that run the model read them (`picture`, `sound`). Pillow and
soundfile decode; neither torchvision nor torchcodec is asked.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hub_exporter.errors import DatasetError

Reference = dict[str, Any]
"""`{"file": "<digest>.jpeg", "sha256": ..., "width": ..., "height": ...}` or `{..., "samples": ..., "rate": ...}`."""


def keep(
    kind: Literal["picture", "sound"], value: Any, place: str, base: Path | None, folder: Path
) -> Reference | None:
    """Write the `picture` or `sound` that a cell of a dataset holds or names into `folder`; `None` for an empty cell.

    `base` is the folder of a local dataset, in which its cells may name files; `None` for one of the Hub, whose cells
    never open a file of this machine. Raises DatasetError, with `place` in front, for what cannot be decoded.
    """
    data = _content(value, place, base)
    if not data:
        return None
    try:
        suffix, sizes = _picture_sizes(data) if kind == "picture" else _sound_sizes(data)
    except Exception as error:  # Pillow and soundfile raise many kinds for a damaged file
        raise DatasetError(
            f"{place}: not a {kind} that can be decoded ({error})", hint=f"Name a column of {kind}s"
        ) from (error)
    digest = hashlib.sha256(data).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{digest[:24]}.{suffix}"
    (folder / name).write_bytes(data)
    return {"file": name, "sha256": digest, **sizes}


def _content(value: Any, place: str, base: Path | None) -> bytes | None:
    """The bytes of a cell: its own, or those of the file that it names."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if value is None or value == "":
        return None
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise DatasetError(
            f"{place}: expected a picture or a sound, got {type(value).__name__}", hint="Name a column of files"
        )
    return _file(value, place, base)


def _file(path: str, place: str, base: Path | None) -> bytes:
    """A file of a local dataset, or one of the Hub by its address."""
    if base is None and "hf://" not in path:
        raise DatasetError(f"{place}: names a file on this machine, `{path}`", hint="Only a local dataset may do so")
    try:
        if base is None:
            import fsspec

            with fsspec.open(path, "rb") as stream:
                return bytes(stream.read())
        return (base / path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DatasetError(
            f"{place}: `{path}` cannot be read: {reason}", hint="Check the paths in the dataset"
        ) from error


def _picture_sizes(data: bytes) -> tuple[str, dict[str, int]]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return str(image.format).lower(), {"width": image.width, "height": image.height}


def _sound_sizes(data: bytes) -> tuple[str, dict[str, int]]:
    import soundfile

    info = soundfile.info(io.BytesIO(data))
    return info.format.lower(), {"samples": info.frames, "rate": info.samplerate}


def picture(folder: Path, reference: Reference) -> Any:
    """The RGB picture (`PIL.Image`) that `keep` wrote into `folder`."""
    from PIL import Image

    with Image.open(folder / reference["file"]) as image:
        return image.convert("RGB")


def sound(folder: Path, reference: Reference, rate: int) -> np.ndarray:
    """The sound that `keep` wrote into `folder`: float32 (samples,), one channel, at `rate` samples a second.

    Another rate is resampled by straight lines between samples: good enough to compare numbers with.
    """
    import soundfile

    samples, own = soundfile.read(folder / reference["file"], dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    if own != rate:
        moments = np.arange(round(len(mono) * rate / own)) * (own / rate)
        mono = np.interp(moments, np.arange(len(mono)), mono)
    return np.asarray(mono, np.float32)
