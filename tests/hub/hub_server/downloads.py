"""Content: `resolve` with ranges, and a redirect to another origin for large files, as to the real Hub's CDN."""

from __future__ import annotations

import json
from urllib.parse import quote

from starlette.responses import FileResponse, RedirectResponse, Response

from hub_server.routing import Call, Refusal, route


@route("GET HEAD", "{page}/resolve/{rev}/{path}")
async def resolve(call: Call) -> Response:
    moved = call.store.root / "repos" / (call.parts.get("kind") or "models") / call.parts["ns"] / call.parts["name"]
    if (moved / "moved.json").is_file():
        prefix = f"/{call.parts['kind']}" if "kind" in call.parts else ""
        rest = f"{quote(call.parts['rev'], safe='')}/{quote(call.parts['path'])}"
        return RedirectResponse(f"{prefix}/{json.loads((moved / 'moved.json').read_text())}/resolve/{rest}", 307)
    repo = call.repo()
    call.require_accepted(repo)
    sha = call.sha(repo)
    entry = repo.files(sha).get(call.parts["path"])
    if entry is None:
        raise Refusal(404, "Entry not found", "EntryNotFound", X_Repo_Commit=sha)
    headers = {"X-Repo-Commit": sha, "ETag": f'"{entry["oid"]}"'}
    if "lfs" not in entry:
        return FileResponse(repo.store.content(entry), headers=headers, media_type="text/plain")
    headers |= {"X-Linked-Etag": f'"{entry["lfs"]}"', "X-Linked-Size": str(entry["size"])}
    port = call.base.rpartition(":")[2]
    return RedirectResponse(f"http://localhost:{port}/_cdn/{entry['lfs']}", 302, headers)


@route("GET HEAD", "/_cdn/(?P<oid>[0-9a-f]{64})")
async def cdn(call: Call) -> Response:
    path = call.store.lfs_path(call.parts["oid"])
    if not path.is_file():
        raise Refusal(404, "There is no such object")
    return FileResponse(path, headers={"ETag": f'"{call.parts["oid"]}"'}, media_type="application/octet-stream")
