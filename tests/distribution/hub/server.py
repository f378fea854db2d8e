"""A Hub on this machine with the calls that huggingface_hub makes for model repositories.

Used by the tests of this folder and by benchmarks/distribution/hub_faults.py; accounts,
repositories and commits live in memory. A `Fault` makes one kind of answer go wrong. It is no Hub
for anything else.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Repo:
    """Files by commit; a branch is a name for one of the commits."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make `files` the whole content of a new commit and move the branch there."""
        seed = json.dumps([branch, len(self.commits)]) + "".join(sorted(files))
        sha = hashlib.sha1(seed.encode() + b"".join(files[name] for name in sorted(files)))
        self.commits[sha.hexdigest()] = files
        self.branches[branch] = sha.hexdigest()
        return sha.hexdigest()

    def head(self, branch: str = "main") -> dict[str, bytes]:
        """The files that a branch is at."""
        return self.commits[self.branches[branch]]


#: Answers a request instead of the server; returning False leaves the answer to the server.
Act = Callable[["Handler", bytes], bool]


@dataclass
class Fault:
    """What goes wrong: `act` answers requests whose path ends with `path`, the first `times`."""

    path: str
    act: Act
    times: int = 1_000_000
    method: str = "GET"


class Hub:
    """The state of a server: accounts (token -> user), repositories, faults, what was asked."""

    def __init__(self) -> None:
        self.accounts: dict[str, str] = {}
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.asked: Counter[tuple[str, str]] = Counter()
        self.sent_bytes = 0
        self.url = ""
        self.lock = threading.RLock()

    def gets(self, name: str) -> int:
        """How often a file of this name was asked for."""
        return sum(n for (method, path), n in self.asked.items() if path.endswith("/" + name))

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault to show now, counted down."""
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method == method and path.endswith(fault.path):
                    fault.times -= 1
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    """One connection. Routes are tried in order; none raises towards the client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the tests look at `Hub.asked`."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    @property
    def user(self) -> str | None:
        """Who asks, by token."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return self.hub.accounts.get(token)

    def _answer(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.hub.lock:
            self.hub.asked[method, path] += 1
        fault = self.hub.fault_for(method, path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            parts = path.strip("/").split("/")
            content = b""
            if "resolve" in parts[2:3]:
                content = self._content(parts) or b""
            if fault is not None and fault.act(self, content):
                return
            self._route(method, parts, body)

    def _route(self, method: str, parts: list[str], body: bytes) -> None:
        head, tail = parts[:2], parts[2:]
        if head == ["api", "whoami-v2"]:
            self._whoami()
        elif parts == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif head == ["api", "validate-yaml"]:
            self.json(200, {"errors": [], "warnings": []})
        elif parts == ["api", "models"]:
            self._list()
        elif head == ["api", "models"] and tail[2:3] == ["preupload"]:
            self._preupload("/".join(tail[:2]), json.loads(body))
        elif head == ["api", "models"] and tail[2:3] == ["commit"]:
            self._commit("/".join(tail[:2]), tail[3], body)
        elif head == ["api", "models"]:
            self._info("/".join(tail[:2]), tail[3] if tail[2:3] == ["revision"] else "main")
        elif parts[2:5] == ["info", "lfs", "objects"]:
            self._lfs(json.loads(body))
        elif head[0] == "lfs":
            self.hub.objects[parts[1]] = body
            self.json(200, {})
        elif parts[2:3] == ["resolve"]:
            self._resolve(parts)
        else:
            self.json(404, {"error": "no such route"})

    def json(self, status: int, value: Any, **headers: str) -> None:
        """Send a JSON answer."""
        self.whole(status, json.dumps(value).encode(), **headers)

    def whole(self, status: int, data: bytes, **headers: str) -> None:
        """Send these bytes with their length."""
        self.head(status, len(data), **headers)
        if self.command != "HEAD":
            self.send(data)

    def head(self, status: int, length: int | None, **headers: str) -> None:
        """Send a status and headers; an underscore in a name stands for a hyphen."""
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Send a part of a body."""
        self.wfile.write(data)
        self.wfile.flush()
        self.hub.sent_bytes += len(data)

    def drop(self) -> None:
        """End the connection without another word."""
        self.close_connection = True

    def pause(self, seconds: float) -> None:
        """Keep the client waiting."""
        time.sleep(seconds)

    def _whoami(self) -> None:
        if self.user is None:
            self.json(401, {"error": "Invalid credentials"})
        else:
            self.json(200, {"type": "user", "name": self.user, "orgs": []})

    def _create(self, asked: dict[str, Any]) -> None:
        owner = asked.get("organization") or self.user
        name = f"{owner}/{asked['name']}"
        if self.user is None or owner != self.user:
            self.json(403, {"error": "not your namespace"}, X_Error_Message="not your namespace")
        elif name in self.hub.repos:
            self.json(
                409,
                {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"},
            )
        else:
            self.hub.repos[name] = repo = Repo(asked.get("visibility") == "private")
            repo.commit({".gitattributes": b"*.bin filter=lfs\n"})
            self.json(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def _visible(self, name: str) -> Repo | None:
        """The repository, if who asks may see it; else the answer is sent, as the Hub words it."""
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and name.split("/")[0] != self.user):
            self.json(401, {"error": "Repository Not Found"}, X_Error_Code="RepoNotFound")
            return None
        return repo

    def _writable(self, name: str) -> Repo | None:
        if name.split("/")[0] != self.user:
            self.json(403, {"error": "no write access"}, X_Error_Message="no write access")
            return None
        return self._visible(name)

    def _list(self) -> None:
        wanted = parse_qs(urlsplit(self.path).query)
        found = []
        for name, repo in self.hub.repos.items():
            owner = name.split("/")[0]
            readme = repo.head().get("README.md", b"").decode()
            tags = [tag for tag in wanted.get("filter", []) if f"- {tag}\n" in readme]
            if repo.private and owner != self.user:
                continue
            if tags == wanted.get("filter", []) and wanted.get("author", [owner]) == [owner]:
                found.append({"id": name, "sha": repo.branches["main"], "tags": tags})
        self.json(200, found)

    def _preupload(self, name: str, asked: dict[str, Any]) -> None:
        if self._writable(name) is not None:
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".bin") else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in asked["files"]
            ]
            self.json(200, {"files": modes})

    def _lfs(self, asked: dict[str, Any]) -> None:
        objects = [
            {
                "oid": each["oid"],
                "size": each["size"],
                "actions": {"upload": {"href": f"{self.hub.url}/lfs/{each['oid']}"}},
            }
            for each in asked["objects"]
        ]
        self.json(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name: str, branch: str, body: bytes) -> None:
        repo = self._writable(name)
        if repo is None:
            return
        files = dict(repo.head(branch))
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif item["key"] == "deletedFile":
                del files[value["path"]]
        sha = repo.commit(files, branch)
        self.json(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{sha}", "commitOid": sha})

    def _info(self, name: str, revision: str) -> None:
        repo = self._visible(name)
        if repo is None:
            return
        sha = repo.branches.get(revision, revision)
        if sha not in repo.commits:
            self.json(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return
        siblings = [{"rfilename": each} for each in repo.commits[sha]]
        self.json(200, {"id": name, "modelId": name, "sha": sha, "siblings": siblings})

    def _content(self, parts: list[str]) -> bytes | None:
        repo = self.hub.repos.get("/".join(parts[:2]))
        if repo is None:
            return None
        revision = repo.branches.get(parts[3], parts[3])
        return repo.commits.get(revision, {}).get("/".join(parts[4:]))

    def _resolve(self, parts: list[str]) -> None:
        if self._visible("/".join(parts[:2])) is None:
            return
        data = self._content(parts)
        if data is None:
            self.json(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return
        commit = self.hub.repos["/".join(parts[:2])].branches.get(parts[3], parts[3])
        facts = {"X_Repo_Commit": commit, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        wanted = self.headers.get("Range")
        if wanted is None:
            self.whole(200, data, **facts)
            return
        first = int(wanted.removeprefix("bytes=").split("-")[0])
        if first >= len(data):
            self.whole(416, b"", Content_Range=f"bytes */{len(data)}")
            return
        facts["Content_Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        self.whole(206, data[first:], **facts)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the faults provoke."""


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A server on a free port of this machine, until the block ends."""
    hub = Hub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
