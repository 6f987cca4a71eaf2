"""The rows that need no network: texts that ship with hub-exporter, pictures, sounds and series that are drawn here.

What is drawn is the same on every machine: uncompressed files, made from integers and rounded numbers.
"""

from __future__ import annotations

import importlib.resources
import io
import json
import wave
from collections.abc import Callable, Iterator
from typing import Any

COUNT = 16
"""Rows of each set that is drawn."""

RATE = 16_000
"""Samples a second of the sounds."""


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of one built-in set: `text`, `pairs`, `chat`, `pictures`, `sounds` or `series`."""
    if name in _DRAWN:
        column, draw = _DRAWN[name]
        yield from ({column: draw(number)} for number in range(COUNT))
        return
    text = importlib.resources.files("hub_exporter").joinpath("data", f"{name}.jsonl").read_text("utf-8")
    yield from map(json.loads, text.splitlines())


def _picture(number: int) -> dict[str, bytes]:
    """Slanted colour gradients with a bright rectangle and a dark disc; every picture has another size."""
    import numpy as np  # planning reads this module, and does without

    width, height = 320 + 24 * (number % 5), 240 + 40 * (number % 4)
    y, x = np.mgrid[0:height, 0:width]
    turn = number + 1
    pixels = np.stack([(x * turn) // 3 + y, x + (y * turn) // 2, (x + 2 * y) * turn // 5], axis=-1) % 256
    left, top = 20 + 9 * number, 15 + 6 * number
    pixels[top : top + 70, left : left + 90] = (250, 240 - 10 * number, 30)
    disc = (x - width * 2 // 3) ** 2 + (y - height // 2) ** 2 < (30 + 2 * number) ** 2
    pixels[disc] = (10 * number, 20, 60)
    header = f"P6\n{width} {height}\n255\n".encode()
    return {"bytes": header + pixels.astype(np.uint8).tobytes()}


def _sound(number: int) -> dict[str, bytes]:
    """Three tones that rise and fall, from 0.9 to 2.4 seconds long."""
    import numpy as np  # planning reads this module, and does without

    seconds = 0.9 + 0.1 * number
    time = np.arange(round(seconds * RATE)) / RATE
    tones = sum(np.sin(2 * np.pi * (110 + 37 * number) * k * time) / k for k in (1, 2, 3))
    loudness = 0.5 * (1 + np.sin(2 * np.pi * (1.3 + 0.2 * number) * time))
    samples = np.round(9000 * tones * loudness).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples.tobytes())
    return {"bytes": file.getvalue()}


def _series(number: int) -> list[float]:
    """A trend, a daily and a weekly wave and a step: 640 numbers."""
    import numpy as np  # planning reads this module, and does without

    hour = np.arange(640)
    waves = 4 * np.sin(2 * np.pi * hour / 24 + number) + 2 * np.sin(2 * np.pi * hour / 168)
    values = 20 + 0.01 * (number - 7) * hour + waves + 5 * (hour % 97 > 60 + number)
    return [round(float(value), 3) for value in values]


_DRAWN: dict[str, tuple[str, Callable[[int], Any]]] = {
    "pictures": ("image", _picture),
    "sounds": ("audio", _sound),
    "series": ("target", _series),
}
"""Set -> its column, and what draws a row of it."""
