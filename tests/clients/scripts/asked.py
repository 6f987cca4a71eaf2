"""What every script of this folder does: read the request, and print the answer as the last line."""

from __future__ import annotations

import json
import sys
from typing import Any

request: dict[str, Any] = json.loads(sys.argv[1])


def answer(value: dict[str, Any]) -> None:
    print(json.dumps(value))  # noqa: T201 - this is what it is for
