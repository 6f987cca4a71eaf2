"""Publishing through the unmodified client: what ends up in a repository, and what is left alone."""

from __future__ import annotations

import json
from typing import Any

STEPS = "from steps import *\n"


def do(hub: Any, script: str, *arguments: Any, **options: Any) -> Any:
    return hub.python(STEPS + script, *arguments, **options)


def requests(hub: Any) -> list[str]:
    return [f"{entry['method']} {entry['path'].partition('?')[0]}" for entry in hub.log()]


# ── A repository of its own ──


def test_a_new_repository_holds_everything_in_one_commit(hub):
    made, titles, files, card, private, again = do(
        hub,
        """
made = publish("org/new")
titles = [commit.title for commit in api.list_repo_commits("org/new")]
tell([made, titles, sorted(state("org/new")), read("org/new", "README.md"), api.model_info("org/new").private,
      publish("org/new")])
""",
    )

    assert titles == ["Verified exports of source at c9745ed1d9f2", "initial commit"]
    assert {"README.md", "hub-exporter.json", "config.json", "onnx/model.onnx", "onnx/model.onnx.data"} < set(files)
    assert "base_model: org/source" in card
    assert private  # the source is not there, so it is not public
    assert made["commit"]
    assert {change["kind"] for change in made["files"]} == {"added"}
    assert (again["unchanged"], again["commit"]) == (True, made["commit"])


def test_it_is_public_or_private_as_its_source_is(hub):
    told = do(
        hub,
        """
found = []
for name, private, gated in (("open", False, False), ("closed", True, False), ("guarded", False, "auto")):
    api.create_repo(f"org/{name}", private=private)
    api.update_repo_settings(f"org/{name}", gated=gated)
    publish(f"org/{name}-exports", {"repo": f"org/{name}", "source": f"org/{name}"})
    found.append(api.model_info(f"org/{name}-exports").private)
tell(found)
""",
    )

    assert told == [False, True, True]


def test_a_dry_run_prints_the_commit_and_makes_none(hub):
    missing, there, changed, after = do(
        hub,
        """
missing = publish("org/dry", dry_run=True)
there = api.repo_exists("org/dry")
publish("org/dry", {"backends": ["onnx", "openvino"]})
before = api.model_info("org/dry").sha
changed = publish("org/dry", {"salt": "2", "commit": "f" * 40, "weights": "cd" * 32}, dry_run=True)
tell([missing, there, changed, api.model_info("org/dry").sha == before])
""",
    )

    assert missing["dry_run"]
    assert missing["commit"] is None
    assert not there
    assert after
    assert {change["path"]: change["kind"] for change in changed["files"]} == {
        "1_Pooling/config.json": "unchanged",
        "README.md": "changed",
        "config.json": "unchanged",
        "hub-exporter.json": "changed",
        "hub-exporter.svg": "added",
        "onnx/export.json": "unchanged",
        "onnx/model.onnx": "changed",
        "onnx/model.onnx.data": "unchanged",
        "openvino/export.json": "deleted",
        "openvino/openvino_model.bin": "deleted",
        "openvino/openvino_model.xml": "deleted",
        "tokenizer.json": "unchanged",
        "tokenizer_config.json": "unchanged",
    }
    assert all(change["size"] > 0 for change in changed["files"] if not change["path"].endswith(".data"))


def test_a_hundred_unchanged_files_cost_a_handful_of_requests_and_no_upload(hub):
    do(hub, 'publish("org/hundred", {"extra": 100}); publish("org/five", {"extra": 5})')
    counts = []
    for name, extra in (("five", 5), ("hundred", 100)):
        hub.forget()
        made = do(
            hub, "tell([prepare(*args), publish(*args)])", f"org/{name}", {"extra": extra}, HF_HOME=f"{hub.home}2"
        )
        assert made[1]["unchanged"]
        assert not [entry for entry in hub.log() if entry["method"] in ("PUT", "POST")]
        counts.append(len(hub.log()))

    assert counts[0] == counts[1] <= 8


def test_a_second_run_with_other_times_and_figures_changes_nothing(hub):
    assert do(
        hub,
        """
publish("org/times")
slower = run()
result = slower.results[0]
checked = msgspec.structs.replace(result.verification, reason="agrees as well", cases=())
result = msgspec.structs.replace(result, seconds=99.0, peak_memory=7, verification=checked)
tell(told(push.publish, "org/times", msgspec.structs.replace(slower, results=(result,)))["unchanged"])
""",
    )


def test_large_files_are_hashed_once(hub):
    """The digests of the run are what is announced: with a wrong one the Hub refuses the content."""
    assert do(
        hub,
        """
made = run()
result = made.results[0]
wrong = [msgspec.structs.replace(a, sha256="00" * 32) if a.path == "onnx/model.onnx" else a for a in result.artifacts]
made = msgspec.structs.replace(made, results=(msgspec.structs.replace(result, artifacts=tuple(wrong)),))
tell([told(push.publish, "org/hash", made)[0], sorted(state("org/hash"))])
""",
    ) == ["HubError", [".gitattributes"]]


# ── The model's own repository ──

CARD = """---\r
# my comment\r
license:   mit   # as it is\r
x_unknown: {a: [1, 2]}\r
tags:\r
- mine\r
---\r
# Mine\r
\r
Text before.  \r
"""


def test_the_models_own_repository_gets_folders_index_and_section(hub):
    first, card, files, second, third, last = do(
        hub,
        """
own = {"repo": "org/own", "source": "org/own", "tags": ["mine"]}
api.create_repo("org/own")
put("org/own", {"config.json": "{}", "tokenizer.json": "{}", "README.md": args[0]})
put("org/own", {"notes.txt": "n", "onnx/mine.txt": "m"})
first = publish("org/own", own)
card = read("org/own", "README.md")
# the next run resolves the commit that was just made, and reads our tags from the card
second = publish("org/own", {**own, "commit": first["commit"], "tags": ["mine", "onnx", "hub-exporter"]})
edited = card + "After.\\r\\n"
put("org/own", {"README.md": edited})
third = publish("org/own", {**own, "backends": ["openvino"], "salt": "3", "commit": "e" * 40, "weights": "cd" * 32})
tell([first, card, state("org/own"), second, third, read("org/own", "README.md")])
""",
        CARD,
    )

    assert {change["path"] for change in first["files"]} == {
        "README.md",
        "hub-exporter.json",
        "onnx/export.json",
        "onnx/model.onnx",
        "onnx/model.onnx.data",
    }
    head, _, text = CARD.partition("- mine\r\n")
    assert card.startswith(head + "- mine\r\n- onnx\r\n- transformers.exporters\r\n- hub-exporter\r\n")
    assert text.removeprefix("---\r\n") in card
    assert "base_model" not in card.partition("# Mine")[0]
    assert second["unchanged"]
    assert {"config.json", "tokenizer.json", "notes.txt", "onnx/mine.txt", "openvino/openvino_model.xml"} < set(files)
    assert "onnx/model.onnx" not in files
    assert last.endswith("<!-- hub-exporter:end -->\r\nAfter.\r\n")
    assert last.count("<!-- hub-exporter:begin -->") == 1
    assert {change["path"] for change in third["files"] if change["kind"] == "deleted"} == {
        "onnx/export.json",
        "onnx/model.onnx",
        "onnx/model.onnx.data",
    }


def test_foreign_files_in_the_way_are_refused_before_and_after_the_work(hub):
    told = do(
        hub,
        """
api.create_repo("org/taken")
put("org/taken", {"onnx/model.onnx": "by optimum"})
before = api.model_info("org/taken").sha
own = {"repo": "org/taken", "source": "org/taken"}
tell([prepare("org/taken", own), publish("org/taken", own), api.model_info("org/taken").sha == before])
""",
    )

    for error in told[:2]:
        assert error[0] == "TargetError"
        assert "`onnx/model.onnx` in `org/taken` is not from hub-exporter" in error[1]
        assert "repository of its own" in error[2]
    assert told[2]


def test_an_edited_configuration_and_another_models_repository_are_refused(hub):
    edited, other = do(
        hub,
        """
publish("org/edited")
put("org/edited", {"config.json": "edited"})
tell([publish("org/edited", {"salt": "2"}), publish("org/edited", {"repo": "org/other", "source": "org/other"})])
""",
    )

    assert edited[0] == other[0] == "TargetError"
    assert "`config.json` in `org/edited`" in edited[1]
    assert "holds exports of `org/source`" in other[1]


def test_a_card_that_was_edited_by_hand_keeps_every_byte(hub):
    before, after = do(
        hub,
        """
publish("org/card")
text = read("org/card", "README.md").replace("# source", "# A better title")
text = text.replace("<!-- hub-exporter:begin -->", "").replace("<!-- hub-exporter:end -->", "")
put("org/card", {"README.md": text})
publish("org/card", {"backends": ["dynamo"]})
tell([text, read("org/card", "README.md")])
""",
    )

    head, _, rest = before.partition("- onnx\n")
    assert after.startswith(head)
    assert rest.partition("---\n")[2] in after


# ── Pull requests ──


def test_a_pull_request_is_opened_once_and_says_how_to_try_it(hub):
    first, again, updated, other, titles, back, text, main, diff = do(
        hub,
        """
api.create_repo("org/proposed")
put("org/proposed", {"README.md": "# Theirs\\n", "config.json": "{}"})
own = {"repo": "org/proposed", "source": "org/proposed"}
both = {**own, "backends": ["onnx", "openvino"]}
first = publish("org/proposed", own, create_pr=True)
again = publish("org/proposed", own, create_pr=True)
updated = publish("org/proposed", both, create_pr=True)
other = publish("org/proposed", {**own, "commit": "d" * 40, "weights": "cd" * 32}, create_pr=True)
found = [(d.num, d.title) for d in api.get_repo_discussions("org/proposed")]
back = publish("org/proposed", both, create_pr=True)
text = api.get_discussion_details("org/proposed", 1).events[0].content
main = sorted(state("org/proposed"))
api.merge_pull_request("org/proposed", 1)
tell([first, again, updated, other, found, back, text, main, publish("org/proposed", both, create_pr=True)])
""",
    )

    assert (first["pull_request"], again["pull_request"], updated["pull_request"]) == (1, 1, 1)
    assert other["pull_request"] == back["pull_request"] == 1, "the one that is open, though the model moved"
    assert first["url"].endswith("/org/proposed/discussions/1")
    assert again["commit"] == first["commit"] != updated["commit"]
    assert titles == [[1, "Verified exports of proposed at dddddddddddd"]]
    assert 'revision="refs/pr/1"' in text
    assert "all-MiniLM-L6-v2.openvino.fp32" in text
    assert "2.4e-07" in text
    assert main == [".gitattributes", "README.md", "config.json"]
    assert diff["unchanged"]
    assert diff["pull_request"] is None


def test_of_two_that_are_opened_at_once_the_later_is_closed(hub):
    told = do(
        hub,
        """
from hub_exporter import hub as reading
api.create_repo("org/twins")
first = publish("org/twins", create_pr=True)
look, blind = reading.find_proposal, iter([None])
reading.find_proposal = lambda *args: next(blind, look(*args))
second = publish("org/twins", {"backends": ["onnx", "dynamo"]}, create_pr=True)
found = sorted((d.num, d.status) for d in api.get_repo_discussions("org/twins"))
tell([first["pull_request"], second["pull_request"], found, sorted(state("org/twins", "refs/pr/1"))])
""",
    )

    assert told[:3] == [1, 1, [[1, "open"], [2, "closed"]]]
    assert {"onnx/model.onnx", "pt2/model.pt2"} < set(told[3])


def test_whoever_may_not_write_can_propose(hub):
    do(hub, 'api.create_repo("org/theirs"); put("org/theirs", {"config.json": "{}"})')

    commit, proposal, made = do(
        hub,
        """
own = {"repo": "org/theirs", "source": "org/theirs"}
may_propose = prepare("org/theirs", own, create_pr=True)
tell([prepare("org/theirs", own), may_propose, publish("org/theirs", own, create_pr=True)])
""",
        token="hf_carol",
    )

    assert commit[0] == "HubError"
    assert "may not write to `org/theirs`" in commit[1]
    assert "--create-pr" in commit[2]
    assert proposal is None
    assert made["pull_request"] == 1


# ── Rights ──


def test_missing_rights_are_told_before_the_work(hub):
    script = 'tell([prepare("org/rights"), prepare("org/rights", create_pr=True), prepare("org/absent")])'
    do(hub, 'api.create_repo("org/rights")')

    nobody = do(hub, script, token=None)
    reader = do(hub, script, token="hf_alice_read")
    stranger = do(hub, script, token="hf_carol")
    wrong = do(hub, script, token="hf_wrong")

    assert [error[0] for error in nobody] == ["HubError"] * 3
    assert "There is no token" in nobody[0][1]
    assert "`write`" in nobody[0][2]
    assert "may not write" in reader[0][1]
    assert "may only read" in reader[1][1]
    assert "may only read" in reader[2][1]
    assert "may not write" in stranger[0][1]
    assert "cannot make one in `org`" in stranger[2][1]
    assert "`carol`" in stranger[2][2]
    assert [error[0] for error in wrong] == ["HubError"] * 3


def test_trusted_publishing_needs_no_token(hub):
    do(hub, 'api.create_repo("org/oidc")')
    workflow = {"HF_OIDC_RESOURCE": "org/oidc", "HF_OIDC_ID_TOKEN": "id-of-workflow"}

    prepared, made = do(hub, 'tell([prepare("org/oidc"), publish("org/oidc")])', token=None, **workflow)
    refused = do(hub, 'tell(prepare("org/oidc"))', token=None, **{**workflow, "HF_OIDC_ID_TOKEN": "another"})
    absent = do(hub, 'tell(prepare("org/oidc"))', token="hf_alice", HF_OIDC_RESOURCE="org/oidc")

    assert prepared is None
    assert made["commit"]
    commits = [entry for entry in hub.log() if "/commit/main" in entry["path"]]
    assert {entry["credential"] for entry in commits} == {"trusted-publisher"}
    assert "trusted publisher" in refused[1]
    assert "id-token: write" in absent[2]


def test_a_job_on_github_is_the_trusted_publisher_of_each_target_unless_it_has_a_token(hub):
    do(hub, 'api.create_repo("org/first"); api.create_repo("org/second")')
    job = {
        "GITHUB_ACTIONS": "true",
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{hub.endpoint}/_github/id-token?api-version=2",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-token",
    }
    script = 'tell([[prepare(name), publish(name)["commit"]] for name in args])'

    trusted = do(hub, script, "org/first", "org/second", token=None, **job)
    before = len(hub.log())
    do(hub, 'tell(publish("org/first", {"salt": "another"}))', token="hf_alice", **job)

    assert [problem for problem, commit in trusted if commit] == [None, None]
    commits = [entry for entry in hub.log() if "/commit/main" in entry["path"]]
    assert [entry["credential"] for entry in commits] == ["trusted-publisher", "trusted-publisher", "alice-write"]
    assert not [entry for entry in hub.log()[before:] if entry["path"].startswith(("/oauth", "/_github"))]


def test_the_hub_cannot_make_us_show_the_token(hub):
    """A server that answers with what it was sent: no message repeats it (`Hub.python` looks for the token)."""
    hub.fail({"path": "/auth-check", "status": 403, "headers": {"X-Error-Message": "sent Bearer hf_alice"}})
    do(hub, 'api.create_repo("org/echo")')

    assert do(hub, 'tell(prepare("org/echo"))')[0] == "HubError"


# ── Other people's text ──


def test_hostile_names_neither_break_the_card_nor_inject_into_it(hub):
    card, index, valid = do(
        hub,
        """
hostile = "x: [\\n---\\n# evil <script>alert(1)</script> {{ 7*7 }} <!-- hub-exporter:end --> `|"
changes = {"license": hostile, "architecture": hostile, "languages": [hostile], "tags": [hostile, "a: b"]}
made = publish("org/hostile", changes)
card = read("org/hostile", "README.md")
from huggingface_hub import ModelCard
ModelCard(card).validate()
again = publish("org/hostile", {**changes, "backends": ["onnx", "dynamo"]})
tell([card, json.loads(read("org/hostile", "hub-exporter.json"))["source"]["license"], again["files"]])
""",
    )

    body = card.split("\n---\n", 1)[1]
    assert "<script>" not in body
    assert "\n# evil" not in body
    assert body.count("<!-- hub-exporter:end -->") == 1
    assert "# evil" in index
    assert next(change["kind"] for change in valid if change["path"] == "README.md") == "changed"


def test_the_log_holds_no_surprise(hub):
    """The sequence of one publication: nothing is asked that need not be."""
    do(hub, 'api.create_repo("org/sequence"); put("org/sequence", {"README.md": "# x\\n"})')
    hub.forget()
    do(hub, 'tell(publish("org/sequence", {"salt": "sequence"}))')

    sequence = requests(hub)
    assert sequence.count("POST /api/models/org/sequence/commit/main") == 1
    assert sequence.index("POST /api/models/org/sequence/commit/main") == len(sequence) - 2
    assert len([line for line in sequence if line.startswith("PUT")]) == 1
    assert json.dumps(sequence).count("/api/models/org/sequence/preupload/main") <= 2


def test_a_repository_that_keeps_all_its_json_as_large_files_is_no_trouble(hub):
    first, second = do(
        hub,
        """
api.create_repo("org/attributes")
put("org/attributes", {".gitattributes": "*.json filter=lfs diff=lfs merge=lfs -text\\n"})
tell([publish("org/attributes"), publish("org/attributes")])
""",
    )

    assert first["commit"]
    assert second["unchanged"]
