"""Publishing while things go wrong: readers see the old revision or the new one, and a second run gives the same."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import Any

import pytest

STEPS = "from steps import *\n"

OLD = {"backends": ["onnx", "openvino"], "salt": "old"}
NEW = {"backends": ["onnx"], "salt": "new", "commit": "f" * 40, "weights": "cd" * 32}

EVERY_REQUEST = """
import itertools, urllib.request, watching
from hub_exporter import hub

kind, old, new, options = args

def manage(path, method, value=None):
    data = None if value is None else json.dumps(value).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(watching.ENDPOINT + path, data, method=method)))

def outcome(number):
    '''Fail request `number` of a publication; what readers saw, and where it ended after another run.'''
    repo = f"org/{kind}-{bool(options)}-{number}".lower()
    before = {**old, "salt": f"{repo}old"}, {**new, "salt": f"{repo}new"}
    api.create_repo(repo) if options else publish(repo, before[0])
    first = watching.state(repo)
    rule = {"path": "", "except": watching.NAME, "skip": number, "count": 1}
    rule |= {"lost": True} if kind == "lost" else {"status": int(kind)}
    manage("/_faults", "POST", rule)
    with watching.Reader(repo) as reader:
        made = publish(repo, before[1], **options)
    left = manage("/_faults", "GET")[0]
    manage("/_faults", "DELETE")
    again = publish(repo, before[1], **options)
    commits = len(list(api.list_repo_commits(repo)))
    proposals = [d.num for d in api.get_repo_discussions(repo)]
    return {"fault": left["count"] == 0, "made": made, "again": again, "commits": commits, "proposals": proposals,
            "seen": len(reader.seen), "old first": reader.seen[:1] == [first], "problems": reader.problems,
            "main": watching.state(repo) == first}
"""


def every_request(hub: Any, kind: str, **options: Any) -> list[dict[str, Any]]:
    """Outcomes with a fault at the first request, at the second and so on, until there are no more."""
    script = """
found = []
for number in itertools.count():
    found.append(outcome(number))
    if not found[-1]["fault"]:
        break
tell(found)
"""
    return hub.python(STEPS + EVERY_REQUEST + script, kind, OLD, NEW, options)


@pytest.mark.parametrize("kind", ["503", "lost"])
def test_a_fault_at_any_request_never_shows_a_mixture_and_never_leaves_one(hub, kind):
    outcomes = every_request(hub, kind)

    assert len(outcomes) > 8
    for number, outcome in enumerate(outcomes):
        assert outcome["problems"] == [], number
        assert outcome["old first"], number
        assert outcome["seen"] in (1, 2), number
        assert outcome["made"]["commit"] == outcome["again"]["commit"], number
        assert outcome["again"]["unchanged"], number
        assert outcome["commits"] == 3, number  # the initial one, the old one, the new one


def test_an_answer_that_is_lost_never_makes_a_second_pull_request(hub):
    outcomes = every_request(hub, "lost", create_pr=True)

    for number, outcome in enumerate(outcomes):
        assert outcome["problems"] == [], number
        assert outcome["seen"] == 1, number
        assert outcome["main"], number
        assert outcome["proposals"] == [1], (number, outcome["made"])
        assert outcome["again"]["pull_request"] == 1, number


def test_a_conflict_is_merged_anew(hub):
    """Somebody commits between our look and our commit: their change and ours are both there afterwards."""
    told = hub.python(
        STEPS
        + """
from hub_exporter import hub_write
publish("org/conflict", {"salt": "conflict1"})
push_once, others = hub_write.push, iter(range(2))
def late(at, *rest, **more):
    for number in others:
        put("org/conflict", {f"theirs-{number}.txt": "x", "README.md": read("org/conflict", "README.md") + "More.\\n"})
        break
    return push_once(at, *rest, **more)
hub_write.push = late
made = publish("org/conflict", {"backends": ["dynamo"], "salt": "conflict2"})
files, card = sorted(state("org/conflict")), read("org/conflict", "README.md")
hub_write.push = lambda at, *rest, **more: (put("org/conflict", {"x": at.commit}), push_once(at, *rest, **more))[1]
tell([made["unchanged"], files, card, publish("org/conflict", {"backends": ["openvino"], "salt": "conflict3"})])
"""
    )
    unchanged, files, card, given_up = told

    assert not unchanged
    assert {"theirs-0.txt", "theirs-1.txt", "pt2/model.pt2", "onnx/model.onnx"} < set(files)
    assert card.endswith("<!-- hub-exporter:end -->\nMore.\nMore.\n")
    assert "model.pt2" in card
    assert given_up[0] == "HubError"
    assert "8 attempts" in given_up[1]


def test_two_that_publish_at_once_lose_nothing_and_double_nothing(hub):
    """A schedule begins while a publication is under way: its commit arrives first, and the other is merged anew."""
    hub.python(STEPS + 'publish("org/meet", {"salt": "meet"})')
    hub.fail({"path": "/commit/", "method": "POST", "delay": 4})
    slow = hub.process(STEPS + 'tell(publish("org/meet", {"backends": ["openvino"], "salt": "meet"}))')
    while not any(entry.get("fault") for entry in hub.log()):
        time.sleep(0.1)
    quick = hub.python(STEPS + 'tell(publish("org/meet", {"backends": ["dynamo"], "salt": "meet"}))')
    out, err = slow.communicate()
    jobs, titles, again = hub.python(
        STEPS
        + """
index = json.loads(read("org/meet", "hub-exporter.json"))
titles = [commit.title for commit in api.list_repo_commits("org/meet")]
everything = {"backends": ["onnx", "openvino", "dynamo"], "salt": "meet"}
tell([[job["backend"] for job in index["jobs"]], titles, publish("org/meet", everything)["unchanged"]])
"""
    )

    assert slow.returncode == 0, err
    assert quick["commit"] != json.loads(out.splitlines()[-1])["commit"]
    assert sorted(jobs) == ["dynamo", "onnx", "openvino"]
    assert titles == ["Verified exports of source at c9745ed1d9f2"] * 3 + ["initial commit"]
    assert again


def test_the_hub_is_given_the_time_that_it_asks_for(hub):
    script = STEPS + 'tell(publish("org/busy", {"salt": "busy"}))'
    hub.fail({"path": "/commit/main", "method": "POST", "status": 429, "headers": {"Retry-After": "2"}})
    began = time.monotonic()
    made = hub.python(script)
    waited = time.monotonic() - began

    hub.heal()
    hub.python('from steps import *; api.delete_repo("org/busy")')
    hub.fail({"path": "/commit/main", "method": "POST", "status": 429, "headers": {"Retry-After": "4000"}})
    refused = hub.python(script)

    assert made["commit"]
    assert waited > 2
    assert refused[0] == "HubError"
    assert "429" in refused[1]


@pytest.mark.parametrize(("path", "method"), [("/_storage/", "PUT"), ("/preupload/", "POST"), ("/commit/main", "POST")])
def test_a_killed_process_leaves_the_old_or_the_new_revision_and_a_run_after_it_converges(hub, path, method):
    repo = "org/killed-" + re.sub(r"\W", "", path)
    hub.python(STEPS + "publish(*args)", repo, {**OLD, "salt": f"{repo}1"})
    before = hub.python(STEPS + "tell(state(*args))", repo)
    hub.fail({"path": path, "method": method, "delay": 1.5})

    process = hub.process(STEPS + "publish(*args)", repo, {**NEW, "salt": f"{repo}2"})
    while not any("fault" in entry for entry in hub.log()):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(2)  # the request that was under way is carried out, and nobody hears the answer
    between = hub.python(STEPS + "tell(state(*args))", repo)
    made, after, commits = hub.python(
        STEPS + "tell([publish(*args), state(args[0]), len(api.list_repo_commits(args[0]))])",
        repo,
        {**NEW, "salt": f"{repo}2"},
    )

    assert between in (before, after)
    assert (between == after) == made["unchanged"]
    assert commits == 3
    assert not [path for path in after if path.startswith("openvino/")]
