"""Repositories on disk: content by its hash, a commit as one JSON file that lists all files, references as names of
commits. A reference is changed by one renaming, so that a reader sees the old commit or the new one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
"""Of a file in a commit: `oid` (git's sha1 of what git would hold), `size`, and `lfs` (sha256) for a large file."""

MAIN = "refs/heads/main"
GITATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n*.onnx filter=lfs diff=lfs merge=lfs -text\n"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


class Store:
    """All repositories, and the content that they share."""

    def __init__(self, root: Path):
        self.root = root
        for name in ("blobs", "lfs", "parts", "xet", "repos"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def blob(self, data: bytes) -> Entry:
        oid = git_sha1(data)
        (self.root / "blobs" / oid).write_bytes(data)
        return {"oid": oid, "size": len(data)}

    def lfs_path(self, sha256: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ValueError(f"{sha256} is not a sha256")
        return self.root / "lfs" / sha256

    def lfs(self, sha256: str) -> Entry:
        size = self.lfs_path(sha256).stat().st_size
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        return {"oid": git_sha1(pointer), "size": size, "lfs": sha256, "pointer": len(pointer)}

    def content(self, entry: Entry) -> Path:
        return self.root / "lfs" / entry["lfs"] if "lfs" in entry else self.root / "blobs" / entry["oid"]

    def repo(self, kind: str, name: str) -> Repo | None:
        repo = Repo(self, kind, name)
        return repo if (repo.folder / "meta.json").is_file() else None

    def create(self, kind: str, name: str, author: str, *, private: bool = False) -> Repo:
        repo = Repo(self, kind, name)
        repo.save(private=private, gated=False, createdAt=now())
        repo.commit(MAIN, {".gitattributes": self.blob(GITATTRIBUTES)}, "initial commit", author)
        return repo

    def move(self, repo: Repo, name: str) -> None:
        new = Repo(self, repo.kind, name)
        new.folder.parent.mkdir(parents=True, exist_ok=True)
        repo.folder.rename(new.folder)
        write_json(repo.folder / "moved.json", name)

    def all(self, kind: str) -> Iterable[Repo]:
        for path in sorted((self.root / "repos" / kind).glob("*/*/meta.json")):
            yield Repo(self, kind, f"{path.parts[-3]}/{path.parts[-2]}")


class Repo:
    """One repository. It holds nothing in memory: what is asked for is read."""

    def __init__(self, store: Store, kind: str, name: str):
        self.store, self.kind, self.name = store, kind, name
        self.folder = store.root / "repos" / kind / name

    # ── What is known of it ──

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / "meta.json").read_text())

    def save(self, **changes: Any) -> None:
        known = self.meta if (self.folder / "meta.json").is_file() else {}
        write_json(self.folder / "meta.json", known | changes)

    @property
    def url_path(self) -> str:
        return self.name if self.kind == "models" else f"{self.kind}/{self.name}"

    # ── References and commits ──

    @property
    def refs(self) -> dict[str, str]:
        path = self.folder / "refs.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def set_ref(self, ref: str, sha: str | None) -> None:
        refs = {name: value for name, value in self.refs.items() if name != ref}
        write_json(self.folder / "refs.json", refs | ({ref: sha} if sha else {}))

    def ref_of(self, revision: str) -> str | None:
        names = (f"refs/heads/{revision}", f"refs/tags/{revision}", revision)
        return next((name for name in names if name in self.refs), None)

    def sha_of(self, revision: str) -> str | None:
        ref = self.ref_of(revision)
        if ref is not None:
            return self.refs[ref]
        whole = re.fullmatch(r"[0-9a-f]{40}", revision) and (self.folder / "commits" / f"{revision}.json").is_file()
        return revision if whole else None

    def at(self, sha: str) -> dict[str, Any]:
        return json.loads((self.folder / "commits" / f"{sha}.json").read_text())

    def files(self, sha: str) -> dict[str, Entry]:
        return self.at(sha)["files"]

    def commit(self, ref: str, files: Mapping[str, Entry], title: str, author: str, message: str = "") -> str:
        """Make a commit of exactly these files and let the reference name it."""
        parents = [self.refs[ref]] if ref in self.refs else []
        return self.commit_on(parents, ref, files, title, author, message)

    def commit_on(
        self, parents: list[str], ref: str, files: Mapping[str, Entry], title: str, author: str, message: str = ""
    ) -> str:
        record = {"parents": parents, "files": dict(sorted(files.items())), "title": title, "message": message}
        record |= {"author": author, "date": now()}
        sha = hashlib.sha1(json.dumps([self.name, record]).encode()).hexdigest()
        write_json(self.folder / "commits" / f"{sha}.json", record)
        self.set_ref(ref, sha)
        return sha

    def history(self, sha: str) -> Iterable[tuple[str, dict[str, Any]]]:
        following: str | None = sha
        while following:
            record = self.at(following)
            yield following, record
            following = next(iter(record["parents"]), None)

    # ── Discussions ──

    def discussions(self) -> list[dict[str, Any]]:
        paths = (self.folder / "discussions").glob("[0-9]*.json")
        return [json.loads(path.read_text()) for path in sorted(paths, key=lambda path: -int(path.stem))]

    def discussion(self, number: int) -> dict[str, Any] | None:
        path = self.folder / "discussions" / f"{number}.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def save_discussion(self, discussion: dict[str, Any]) -> None:
        write_json(self.folder / "discussions" / f"{discussion['num']}.json", discussion)
