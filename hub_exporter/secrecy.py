"""Which environment variables look like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|OIDC|API_?KEY|PRIVATE_KEY", re.IGNORECASE)
"""Environment variables with such a name never reach a process that runs other people's code."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What is left for such a process."""
    return {key: value for key, value in environ.items() if not SECRET.search(key)}
