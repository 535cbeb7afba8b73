"""A stand-in for the Hugging Face Hub: one repository in memory, spoken to over HTTP."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


class _Hub(BaseHTTPRequestHandler):
    files: dict[str, bytes]

    def log_message(self, *_):
        pass

    def _send(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), Content_Type="application/json")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        address = f"http://{self.headers['Host']}/you/census"
        if self.path.endswith("/repos/create"):
            self._json({"url": address, "id": "you/census"})
        elif "/preupload/" in self.path:
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            asked = json.loads(body)["files"]
            self._json({"files": [{"path": file["path"], **plain} for file in asked]})
        elif "/commit/" in self.path:
            items = [json.loads(line) for line in body.splitlines()]
            sent = [item["value"] for item in items if item["key"] == "file"]
            self.files.update({file["path"]: base64.b64decode(file["content"]) for file in sent})
            commit = f"{address}/commit/{COMMIT}"
            self._json({"success": True, "commitOid": COMMIT, "commitUrl": commit})
        else:
            self._json({})

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        sizes = {file: hashlib.sha1(data).hexdigest() for file, data in self.files.items()}
        if "/resolve/" in self.path and name not in self.files:
            self._send(404, X_Error_Code="EntryNotFound")
        elif "/resolve/" in self.path:
            mark = f'"{sizes[name]}"'
            self._send(200, self.files[name], ETag=mark, X_Repo_Commit=COMMIT)
        elif "/tree/" in self.path:
            tree = [
                {"type": "file", "path": file, "size": len(self.files[file]), "oid": oid}
                for file, oid in sizes.items()
            ]
            self._json(tree)
        else:
            names = [{"rfilename": file} for file in sizes]
            self._json({"id": "you/census", "sha": COMMIT, "private": False, "siblings": names})

    do_HEAD = do_GET  # noqa: N815


def serve() -> tuple[ThreadingHTTPServer, str, dict[str, bytes]]:
    """Start it; give the server, its address, and the files it holds."""
    hub = type("Hub", (_Hub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}", hub.files
