"""The part of Google Drive's API, version 3, that rclone uses (https://developers.google.com/workspace/drive).

A process of its own, started by `tests.standins.drive`. It listens for HTTP, answers CONNECT to Google's
names itself (`rclone --http-proxy`) and forwards nothing. In the folder that it is given are its certificates
and a socket for those who tell it how to behave: a line of JSON, `[method, arguments]`, and a line back.
"""

from __future__ import annotations

import json
import re
import socketserver
import ssl
import sys
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from tests.standins.certificates import SERVER, make_certificates
from tests.standins.drive_behaviour import CLIENT_ID, CLIENT_SECRET, REFRESH_TOKEN, State, is_from_account
from tests.standins.drive_control import CONTROL, Control
from tests.standins.drive_http import HOSTS, Handler, Server
from tests.standins.drive_query import QueryError, compile_query, select
from tests.standins.drive_store import FOLDER, ROOT, SHARED_DRIVE, ApiError, Entry, Store
from tests.standins.drive_uploads import Uploads, split_related

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = re.compile(r"/drive/v3/files/([^/]+)(?:/(copy|permissions))?")
_UPLOAD = re.compile(r"/upload/drive/v3/files(?:/([^/]+))?")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class DriveHandler(Handler):
    """Answers the API's calls."""

    state: State
    store: Store
    uploads: Uploads
    folder: Path

    def answer(self) -> None:
        """Do what is asked, or what goes wrong instead."""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        call = f"{self.command} {unquote_plus(self.path)}"
        fault = self.state.take_fault(call)
        self._mode = fault.mode if fault else ""
        self._received = self._served = 0
        if self._mode == "drop":
            self.hang_up()
            return
        try:
            try:
                if fault:
                    fault.raise_if_status()
                self._route(url.path, query)
            except QueryError as error:
                raise ApiError(400, "invalid", f"Invalid Value: {error}") from error
        except ApiError as error:
            for _ in self.body:
                pass
            self._send_error(error)
        finally:
            self.state.count(self.client_address[0], call, received=self._received, served=self._served)

    def _begin(self, status: int, size: int, headers: dict[str, str]) -> None:
        if self._mode == "lost":
            self.hang_up()
            raise ConnectionAbortedError
        super()._begin(status, size, headers)

    def _route(self, path: str, query: Mapping[str, str]) -> None:
        if path in ("/token", "/oauth2/v4/token", "/o/oauth2/token"):
            self._send_token()
            return
        by_account = self.state.is_account(self.headers.get("Authorization", ""))
        self.state.require_calls()
        if found := _UPLOAD.fullmatch(path):
            self._upload(found[1], query, by_account=by_account)
        elif path == "/drive/v3/files" and self.command == "GET":
            self._list(query)
        elif path == "/drive/v3/files" and self.command == "POST":
            self._create(query, by_account=by_account)
        elif path == "/drive/v3/files/trash" and self.command == "DELETE":
            self.store.empty_bin()
            self.send_nothing(204)
        elif path == "/drive/v3/about":
            self._about(query)
        elif path == f"/drive/v3/drives/{SHARED_DRIVE}":
            self.send_json({"kind": "drive#drive", "id": SHARED_DRIVE, "name": "Fleet"})
        elif found := _FILE.fullmatch(path):
            self._file(found[1], found[2], query)
        else:
            raise ApiError(404, "notFound", f"the stand-in has no {self.command} {path}")

    def _json(self) -> Any:
        return json.loads(b"".join(self.body) or b"{}")

    def _send_error(self, error: ApiError) -> None:
        domain = "usageLimits" if error.status in (403, 429) else "global"
        details = [{"domain": domain, "reason": error.reason, "message": error.message}]
        shown = {"code": error.status, "message": error.message, "errors": details}
        self.send_json({"error": shown}, error.status)

    def _send_entry(self, entry: Entry, query: Mapping[str, str]) -> None:
        self.send_json(select(self.store.view(entry), query.get("fields")))

    def _send_token(self) -> None:
        form = dict(parse_qsl(b"".join(self.body).decode()))
        for_account = "assertion" in form
        known = (
            is_from_account(form["assertion"], self.folder)
            if for_account
            else form.get("refresh_token") == REFRESH_TOKEN
        )
        if not for_account and self._client(form) != f"{CLIENT_ID}:{CLIENT_SECRET}":
            self.send_json({"error": "invalid_client", "error_description": "Unauthorized"}, 401)
        elif not known or self.state.behaviour.revoked:
            told = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
            self.send_json(told, 400)
        else:
            self.send_json(self.state.new_token(for_account=for_account))

    def _client(self, form: Mapping[str, str]) -> str:
        """Id and secret of the client, by HTTP basic authentication or in the form."""
        basic = self.headers.get("Authorization", "").removeprefix("Basic ")
        if basic:
            return unquote_plus(b64decode(basic).decode())
        return f"{form.get('client_id')}:{form.get('client_secret')}"

    def _list(self, query: Mapping[str, str]) -> None:
        accept = compile_query(query.get("q", "trashed=false"), ROOT)
        found = [file for file in self.store.all(self.state.behaviour.lag) if accept(file)]
        first = int(query.get("pageToken") or 0)
        behind = first + min(int(query.get("pageSize") or 100), self.state.behaviour.page)
        answer = {"kind": "drive#fileList", "incompleteSearch": False, "files": found[first:behind]}
        if behind < len(found):
            answer["nextPageToken"] = str(behind)
        self.send_json(select(answer, query.get("fields")))

    def _create(self, query: Mapping[str, str], *, by_account: bool) -> None:
        meta = self._json()
        time.sleep(self.state.behaviour.file_seconds)
        content = None if meta.get("mimeType") == FOLDER else self.store.new_content().measure()
        self._send_entry(self.store.create(meta, content, by_account=by_account), query)

    def _about(self, query: Mapping[str, str]) -> None:
        used, in_bin = self.store.used(), self.store.used(in_bin=True)
        quota = {
            "limit": str(self.store.quota),
            "usage": str(used),
            "usageInDrive": str(used),
            "usageInDriveTrash": str(in_bin),
        }
        self.send_json(select({"kind": "drive#about", "storageQuota": quota}, query.get("fields")))

    def _file(self, id_: str, part: str | None, query: Mapping[str, str]) -> None:
        if part == "copy" and self.command == "POST":
            self._copy(id_, query)
        elif part:
            raise ApiError(404, "notFound", f"the stand-in has no {part}")
        elif self.command == "PATCH":
            self._send_entry(self.store.update(id_, {**self._json(), **query}), query)
        elif self.command == "DELETE":
            self.store.delete(id_)
            self.send_nothing(204)
        elif query.get("alt") == "media":
            self._download(self.store.get(id_))
        else:
            self._send_entry(self.store.get(id_), query)

    def _copy(self, id_: str, query: Mapping[str, str]) -> None:
        source = self.store.get(id_)
        if not source.content:
            raise ApiError(403, "cannotCopyFile")
        content = self.store.new_content()
        content.path.write_bytes(source.content.path.read_bytes())
        meta = {"name": source.name, "mimeType": source.mime_type, "parents": source.parents, **self._json()}
        self._send_entry(self.store.create(meta, content.measure()), query)

    def _download(self, entry: Entry) -> None:
        if not entry.content:
            raise ApiError(403, "fileNotDownloadable", "Only files with binary content can be downloaded.")
        self.state.require_download()
        size = entry.content.size
        headers, first, behind, status = {"Content-Type": entry.mime_type}, 0, size, 200
        if found := _RANGE.fullmatch(self.headers.get("Range", "")):
            first = int(found[1]) if found[1] else max(0, size - int(found[2]))
            behind = min(int(found[2]) + 1 if found[1] and found[2] else size, size)
            if first >= behind:
                raise ApiError(416, "requestedRangeNotSatisfiable")
            headers["Content-Range"], status = f"bytes {first}-{behind - 1}/{size}", 206
        with entry.content.path.open("rb") as file:
            if self._mode == "short":
                self._begin(status, behind - first, headers)
                file.seek(first)
                self.wfile.write(file.read((behind - first) // 2))
                self.hang_up()
            else:
                self._served = self.send_range(file, first, behind - first, status, headers)

    def _upload(self, id_: str | None, query: Mapping[str, str], *, by_account: bool) -> None:
        kind = query.get("uploadType")
        if "upload_id" in query:
            told = self.uploads.go_on(query["upload_id"], self.headers.get("Content-Range"), self.body)
            self._received = told.received
            if told.entry:
                self._send_entry(told.entry, told.query)
            else:
                self.send_nothing(308, **({"Range": f"bytes=0-{told.size - 1}"} if told.size else {}))
        elif kind == "resumable":
            length = int(self.headers.get("X-Upload-Content-Length") or 0)
            self.state.require_upload(length)
            time.sleep(self.state.behaviour.file_seconds)
            session = self.uploads.begin(id_, self._json(), query, by_account=by_account)
            place = f"https://{HOSTS[0]}/upload/drive/v3/files?uploadType=resumable&upload_id={session}"
            self.send_nothing(200, Location=place)
        elif kind == "multipart":
            # Below 8 MiB: rclone sends what is larger in pieces.
            meta, content = split_related(self.headers.get("Content-Type", ""), b"".join(self.body))
            self.state.require_upload(len(content))
            time.sleep(self.state.behaviour.file_seconds)
            self._received = len(content)
            made = self.store.new_content()
            made.path.write_bytes(content)
            entry = self.uploads.store_as(id_, meta, made, by_account=by_account)
            self._send_entry(entry, query)
        else:
            raise ApiError(400, "badRequest", f"uploadType {kind}")


class _ControlHandler(socketserver.StreamRequestHandler):
    """Carries out a line of the control socket."""

    control: Control

    def handle(self) -> None:
        name, arguments = json.loads(self.rfile.readline())
        answer = getattr(self.control, name)(**arguments)
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def serve(folder: Path, address: str) -> None:
    """Listen, print the port, and go on until standard input ends."""
    make_certificates(folder, HOSTS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / SERVER)
    contents = folder / "contents"
    contents.mkdir()
    state, store = State(), Store(contents)
    handler = type(
        "Answering",
        (DriveHandler,),
        {"state": state, "store": store, "uploads": Uploads(store), "folder": folder},
    )
    server = Server(address, handler, context)
    controlled = type("Controlled", (_ControlHandler,), {"control": Control(state, store)})
    control = socketserver.ThreadingUnixStreamServer(str(folder / CONTROL), controlled)
    for each in (server, control):
        threading.Thread(target=each.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
