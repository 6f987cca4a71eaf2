"""Who is who, and who may do what. Everybody is made up; so are their tokens."""

from __future__ import annotations

import secrets
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """Whose it is, what it may do, and the one repository that it is limited to (trusted publishing)."""

    user: str
    role: str
    name: str
    only: str | None = None

    def may_write(self, repo: str) -> bool:
        return self.role == "write" and self.only in (None, repo)


MEMBERS = {"org": {"alice", "bob", "robot"}, "lab": {"alice"}}
"""Organisation -> users that may read its private repositories and write to all of them."""

ACCEPTED = {"alice"}
"""Users who accepted the terms of every gated repository."""

TOKENS = {
    "hf_alice": Token("alice", "write", "alice-write"),
    "hf_alice_read": Token("alice", "read", "alice-read"),
    "hf_bob": Token("bob", "write", "bob-write"),
    "hf_carol": Token("carol", "write", "carol-write"),
}

ID_TOKENS = {"id-of-workflow": "org/"}
"""OIDC id token of a made-up workflow -> beginning of the repositories that trust it."""


def exchange(id_token: str, resource: str) -> str | None:
    """A new token for one repository, where it trusts the workflow."""
    trusted = ID_TOKENS.get(id_token)
    if trusted is None or not resource.startswith(trusted):
        return None
    token = f"hf_jwt_{secrets.token_hex(8)}"
    TOKENS[token] = Token("robot", "write", "trusted-publisher", only=resource)
    return token


def belongs(user: str | None, namespace: str) -> bool:
    """Whether a namespace is a user's own, or of an organisation with the user in it."""
    return user is not None and (user == namespace or user in MEMBERS.get(namespace, set()))
