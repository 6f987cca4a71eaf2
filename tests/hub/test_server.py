"""The unmodified client of the Hub against the test Hub: what the other tests rest on."""

from __future__ import annotations

from typing import Any

import pytest

SETUP = """
import pathlib
from huggingface_hub import HfApi, CommitOperationAdd, CommitOperationDelete, CommitOperationCopy
from huggingface_hub.errors import *
api = HfApi()
def error(call, *a, **k):
    try:
        return ["no error", str(call(*a, **k))]
    except Exception as e:
        return [type(e).__name__, getattr(getattr(e, "response", None), "status_code", None)]
def add(path, data):
    return CommitOperationAdd(path, data if isinstance(data, bytes) else data.encode())
def commit(repo, files, **k):
    return api.create_commit(repo, [add(p, d) for p, d in files.items()], commit_message="files", **k)
"""


def client(hub: Any, script: str, *arguments: Any, **options: Any) -> Any:
    return hub.python(SETUP + script, *arguments, **options)


def test_people_repositories_and_their_content(hub):
    told = client(
        hub,
        """
me = api.whoami()
url = api.create_repo("org/plain", private=True)
again = api.create_repo("org/plain", exist_ok=True)
files = {"config.json": "{}", "onnx/model.onnx": bytes(100), "empty": b"", "odd näme/ü.txt": "ü"}
made = commit("org/plain", files)
same = commit("org/plain", files)
info = api.model_info("org/plain", files_metadata=True)
siblings = {s.rfilename: [s.size, s.lfs.sha256[:4] if s.lfs else s.blob_id[:4]] for s in info.siblings}
tree = [e.path for e in api.list_repo_tree("org/plain", recursive=True)]
top = [e.path for e in api.list_repo_tree("org/plain")]
paths = [p.path for p in api.get_paths_info("org/plain", ["config.json", "missing", "onnx"])]
refs = api.list_repo_refs("org/plain", include_pull_requests=True)
titles = [c.title for c in api.list_repo_commits("org/plain")]
from huggingface_hub import snapshot_download
folder = snapshot_download("org/plain", revision=made.oid)
import pathlib
content = {str(p.relative_to(folder)): len(p.read_bytes()) for p in pathlib.Path(folder).rglob("*") if p.is_file()}
gone = [api.delete_repo("org/plain"), api.repo_exists("org/plain")]
tell([me["name"], str(url) == str(again), same.oid == made.oid, info.private, siblings, tree, top, paths,
      refs.branches[0].name, titles, content, gone])
""",
    )
    name, same_url, same_commit, private, siblings, tree, top, paths, branch, titles, content, gone = told

    assert (name, same_url, same_commit, private, branch) == ("alice", True, True, True, "main")
    assert siblings["onnx/model.onnx"] == [100, "cd00"]  # sha256 of a hundred zeros
    assert siblings["empty"] == [0, "e69d"]  # git's name of nothing
    assert tree == [".gitattributes", "config.json", "empty", "odd näme", "odd näme/ü.txt", "onnx", "onnx/model.onnx"]
    assert top == [".gitattributes", "config.json", "empty", "odd näme", "onnx"]
    assert paths == ["config.json", "onnx"]
    assert titles == ["files", "initial commit"]
    assert content["onnx/model.onnx"] == 100
    assert content["odd näme/ü.txt"] == 2
    assert gone == [None, False]


def test_parents_are_checked_and_commits_are_whole(hub):
    told = client(
        hub,
        """
api.create_repo("org/parents")
first = commit("org/parents", {"a": "1", "b": "1"}).oid
second = commit("org/parents", {"a": "2"}, parent_commit=first).oid
conflict = error(commit, "org/parents", {"a": "3"}, parent_commit=first)
missing = error(api.create_commit, "org/parents", [add("c", "1"), CommitOperationDelete("nothing")], commit_message="x")
outside = error(commit, "org/parents", {"../x": "3"})
api.create_commit("org/parents", [CommitOperationDelete("b")], commit_message="delete")
old = api.list_repo_files("org/parents", revision=first)
tell([conflict, missing, outside, api.list_repo_files("org/parents"), old])
""",
    )

    assert told[0] == ["HfHubHTTPError", 412]
    assert told[1] == ["RemoteEntryNotFoundError", 404]
    assert told[2][0] != "no error"
    assert told[3:] == [[".gitattributes", "a"], [".gitattributes", "a", "b"]]


def test_pull_requests(hub):
    told = client(
        hub,
        """
api.create_repo("org/prs")
pr = api.create_commit("org/prs", [add("x", "1")], commit_message="Add x", commit_description="text", create_pr=True)
draft = api.create_pull_request("org/prs", "Draft")
more = commit("org/prs", {"y": "1"}, revision="refs/pr/1")
commit("org/prs", {"z": "1"})
before = api.list_repo_files("org/prs")
details = api.get_discussion_details("org/prs", 1)
api.edit_discussion_comment("org/prs", 1, details.events[0].id, "new text")
api.comment_discussion("org/prs", 1, "hello")
found = api.get_repo_discussions("org/prs", discussion_type="pull_request", discussion_status="open", author="alice")
listed = [[d.num, d.title, d.status, d.author] for d in found]
unmergeable = error(api.merge_pull_request, "org/prs", draft.num)
api.change_discussion_status("org/prs", draft.num, "closed")
api.merge_pull_request("org/prs", 1)
after = api.get_discussion_details("org/prs", 1)
proposed = api.list_repo_files("org/prs", revision="refs/pr/1")
texts = [details.events[0].content, after.events[0].content]
merged = api.list_repo_files("org/prs")
tell([pr.pr_num, pr.pr_revision, before, proposed, *texts, listed, unmergeable, after.status, merged])
""",
    )

    assert told[:3] == [1, "refs/pr/1", [".gitattributes", "z"]]
    assert told[3] == [".gitattributes", "x", "y"]
    assert told[4:6] == ["text", "new text"]
    assert told[6] == [[1, "Add x", "open", "alice"]]
    assert told[7][1] == 400
    assert told[8:] == ["merged", [".gitattributes", "x", "y", "z"]]


def test_large_files_come_in_parts_once_and_go_out_by_another_origin(hub):
    told = client(
        hub,
        """
import hashlib
api.create_repo("org/large")
data = bytes(range(256)) * 4 * 1024 * 12
commit("org/large", {"w.bin": data})
commit("org/large", {"v.bin": data})
path = api.hf_hub_download("org/large", "v.bin")
entry = api.get_paths_info("org/large", ["v.bin"])[0]
tell([hashlib.sha256(open(path, "rb").read()).hexdigest() == hashlib.sha256(data).hexdigest() == entry.lfs.sha256])
""",
    )
    log = hub.log()

    assert told == [True]
    assert len([entry for entry in log if entry["method"] == "PUT"]) == 3  # 12 MB in parts of 5 MiB, and no second time
    cdn = [entry for entry in log if entry["path"].startswith("/_cdn")]
    assert cdn
    assert all(entry["credential"] is None for entry in cdn)
    assert {entry["credential"] for entry in log if "/commit/" in entry["path"]} == {"alice-write"}


def test_what_was_announced_is_checked(hub):
    assert (
        client(
            hub,
            """
api.create_repo("org/liar")
lie = add("w.bin", bytes(1000))
lie.upload_info.sha256 = bytes(32)
tell(error(api.create_commit, "org/liar", [lie], commit_message="x"))
""",
        )[0]
        != "no error"
    )


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, [["RepositoryNotFoundError", 401], ["RepositoryNotFoundError", 401], ["GatedRepoError", 401], 401]),
        (
            "hf_carol",
            [["RepositoryNotFoundError", 404], ["RepositoryNotFoundError", 404], ["GatedRepoError", 403], 403],
        ),
        ("hf_alice_read", [["RepositoryNotFoundError", 404], ["no error", "None"], ["no error", ""], 403]),
    ],
)
def test_who_may_do_what(hub, token, expected):
    client(
        hub,
        """
for name in ("secret", "gated", "open"):
    api.create_repo(f"org/{name}", private=name == "secret", exist_ok=True)
    commit(f"org/{name}", {"config.json": "{}"})
api.update_repo_settings("org/gated", gated="auto")
""",
    )

    missing, private, gated, write = client(
        hub,
        """
tell([error(api.auth_check, "org/missing"), error(api.auth_check, "org/secret"),
      error(api.hf_hub_download, "org/gated", "config.json"), error(commit, "org/open", {"x": "1"})[1]])
""",
        token=token,
    )

    if gated[0] == "no error":
        gated[1] = ""
    assert [missing, private, gated, write] == expected


def test_trusted_publishing(hub):
    client(hub, 'api.create_repo("org/trusted"); api.create_repo("org/other")')
    script = 'tell([error(api.auth_check, "org/trusted", write=True), error(api.auth_check, "org/other", write=True)])'

    trusted, other = client(hub, script, token=None, HF_OIDC_RESOURCE="org/trusted", HF_OIDC_ID_TOKEN="id-of-workflow")

    assert (trusted, other) == (["no error", "None"], ["HfHubHTTPError", 403])


def test_tags_branches_moves_and_revisions(hub):
    told = client(
        hub,
        """
api.create_repo("org/old")
first = commit("org/old", {"a": "1"}).oid
api.create_tag("org/old", tag="v1")
api.create_branch("org/old", branch="dev/x")
commit("org/old", {"a": "2"}, revision="dev/x")
twice = error(api.create_tag, "org/old", tag="v1")
nowhere = error(api.model_info, "org/old", revision="nope")
shas = [api.model_info("org/old", revision=r).sha == first for r in ("main", "v1", first, "dev/x")]
api.move_repo("org/old", "org/new")
tell([twice, nowhere, shas, open(api.hf_hub_download("org/old", "a")).read()])
""",
    )

    assert told == [["HfHubHTTPError", 409], ["RevisionNotFoundError", 404], [True, True, True, False], "1"]


def test_faults(hub):
    client(hub, 'api.create_repo("org/faulty")')
    hub.fail(
        {"path": "/api/models/org/faulty$", "status": 503, "headers": {"Retry-After": "1"}, "skip": 1},
        {"path": "/commit/main", "method": "POST", "lost": True},
        {"path": "/resolve/", "method": "GET", "cut": 3},
    )
    told = client(
        hub,
        """
fine, broken = error(api.model_info, "org/faulty"), error(api.model_info, "org/faulty")
lost = error(commit, "org/faulty", {"a": "123456"})
tell([fine[0], broken, lost, api.list_repo_files("org/faulty"), open(api.hf_hub_download("org/faulty", "a")).read()])
""",
    )

    assert told[:2] == ["no error", ["HfHubHTTPError", 503]]
    assert told[2][0] in ("RemoteProtocolError", "ReadError")
    assert told[3:] == [[".gitattributes", "a"], "123456"]
    faulty = [(entry["method"], entry["path"]) for entry in hub.log() if "fault" in entry]
    assert faulty == [
        ("GET", "/api/models/org/faulty"),
        ("POST", "/api/models/org/faulty/commit/main"),
        ("GET", faulty[2][1]),
    ]
