"""Tailscale's admin API on this machine: real HTTPS, answers shaped as https://tailscale.com/api has them.

A process of its own, started by `admin_stand_in`: it listens on loopback, with a certificate for
api.tailscale.com from a throw-away authority, and has a proxy beside it that leads to it. How it answers, and
what it was asked, are files in the folder that it is given.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.tailnet.admin_documents import (
    ACCESS_TOKEN,
    API_HOST,
    API_KEY,
    ASKED,
    AUTHORITY,
    BEHAVIOUR,
    CLIENT_SECRET,
    JOIN_KEY,
    Asked,
    Behaviour,
)


class Api:
    """The server and the proxy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._behaviour = Behaviour()
        self._validations = 0
        self._port = 0

    async def run(self) -> None:
        """Listen, print the ports, and go on until standard input ends."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(_make_certificates(self._folder))
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self._port = runner.addresses[0][1]
        proxy = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
        print(json.dumps([self._port, proxy.sockets[0].getsockname()[1]]), flush=True)
        await asyncio.to_thread(sys.stdin.read)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer CONNECT: everything for Tailscale's API comes here, everything else is refused."""
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        if target != f"{API_HOST}:443":
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    async def _answer(self, request: web.Request) -> web.Response:
        self._read_behaviour()
        how = self._behaviour
        body = await request.text()
        is_json = request.content_type == "application/json" and body
        asked = Asked(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            body,
            json.loads(body) if is_json else None,
        )
        with (self._folder / ASKED).open("a") as file:
            file.write(asked.as_json() + "\n")
        await asyncio.sleep(how.silence)
        if how.page is not None:
            return web.Response(text=how.page, content_type="text/html")
        if asked.path == "/api/v2/oauth/token":
            return _token(body)
        if asked.headers.get("Authorization") not in (f"Bearer {API_KEY}", f"Bearer {ACCESS_TOKEN}"):
            return _error(401, "API token invalid")
        if how.error is not None:
            return _error(*how.error)
        return self._resource(asked)

    def _read_behaviour(self) -> None:
        found = Behaviour(**json.loads((self._folder / BEHAVIOUR).read_text()))
        if found.turn != self._behaviour.turn:
            self._behaviour, self._validations = found, 0

    def _resource(self, asked: Asked) -> web.Response:
        how = self._behaviour
        _, _, rest = asked.path.partition("/api/v2/tailnet/")
        tailnet, _, resource = rest.partition("/")
        found = _error(404, "not found")
        if tailnet in ("-", "example.com"):
            match asked.method, resource:
                case "GET", "devices" if asked.query.get("fields") != "all" or not how.not_with_all_fields:
                    found = web.json_response({"devices": how.devices})
                case "POST", "keys":
                    found = _made_key(asked.json, how.tag_owners)
                case "GET", "acl":
                    found = web.Response(text=how.policy, content_type="application/hujson")
                case "POST", "acl/validate" if self._validations < len(how.validation):
                    found = web.json_response(how.validation[self._validations])
                    self._validations += 1
                case "POST", "acl/validate":
                    found = web.Response(text="")
                case "POST", "acl/preview":
                    found = _preview(asked.query, how.previews)
        return found


def _token(body: str) -> web.Response:
    if f"client_secret={CLIENT_SECRET}" not in body:
        return _error(401, "API token invalid")
    token = {"access_token": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 3600, "scope": "auth_keys"}
    return web.json_response(token)


def _made_key(request: dict[str, Any], tag_owners: list[str]) -> web.Response:
    tags = request["capabilities"]["devices"]["create"]["tags"]
    if not set(tags) <= set(tag_owners):
        return _error(400, f"requested tags [{' '.join(tags)}] are invalid or not permitted")
    now = datetime.now(UTC).replace(microsecond=0)
    return web.json_response(
        {
            "id": "kMadeCNTRL",
            "key": JOIN_KEY,
            "created": now.isoformat(),
            "expires": (now + timedelta(seconds=request["expirySeconds"])).isoformat(),
            "revoked": "0001-01-01T00:00:00Z",
            "capabilities": request["capabilities"],
            "description": request["description"],
            "keyType": "auth",
        }
    )


def _preview(query: dict[str, str], previews: dict[str, list[dict[str, Any]]]) -> web.Response:
    target = query["previewFor"]
    answer = {"matches": previews.get(target, []), "type": query["type"], "previewFor": target}
    return web.json_response(answer)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(65_536):
            target.write(piece)
            await target.drain()
    target.close()


def _make_certificates(folder: Path) -> Path:
    """Write the authority's certificate, and that of api.tailscale.com with its key; give the latter."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away authority")])
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)

    def begin(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )

    authority = (
        begin(name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    own_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, API_HOST)])
    certificate = (
        begin(own_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(API_HOST)]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    authority_file, certificate_file = folder / AUTHORITY, folder / "api.pem"
    authority_file.write_bytes(authority.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate_file.write_bytes(certificate.public_bytes(pem) + private)
    return certificate_file


if __name__ == "__main__":
    asyncio.run(Api(Path(sys.argv[1])).run())
