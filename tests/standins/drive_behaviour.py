"""How the Drive stand-in is to behave: limits, listing lag, faults; and who it is to be: its accounts."""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.standins.drive_store import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLIENT_ID, CLIENT_SECRET = "stand-in.apps.googleusercontent.com", "GOCSPX-stand-in-client-secret"
REFRESH_TOKEN = "1//stand-in-refresh-token"  # noqa: S105  # no secret: both ends are ours
ACCOUNT_MAIL = "fleet@stand-in.iam.gserviceaccount.com"
ACCOUNT_KEY = "account-key.pem"
"""The service account's public key, in the stand-in's folder."""

_MOST_CALLS = 20_000
_RATE_LIMIT = ApiError(403, "rateLimitExceeded", "Rate Limit Exceeded")


@dataclass
class Behaviour:
    """What can be set while it runs.

    Attributes:
        page: how many entries a listing has at most.
        lag: seconds after which a new file is in listings.
        quota: bytes that the person's own Drive holds.
        upload_limit: bytes that may be uploaded a day; None: any number.
        download_limit: bytes that may be downloaded a day.
        calls_a_second: more are refused.
        file_seconds: what making a file or folder costs; about 0.5 on real Drive.
        revoked: whether nobody gets a new access token any more.
        token_seconds: how long access tokens are good.
    """

    page: int = 1000
    lag: float = 0.0
    quota: int = 15 << 30
    upload_limit: int | None = None
    download_limit: int | None = None
    calls_a_second: float | None = None
    file_seconds: float = 0.0
    revoked: bool = False
    token_seconds: float = 3600.0


@dataclass
class Fault:
    """What goes wrong with the next calls that match.

    Attributes:
        mode: `status` (refused with a status), `drop` (the connection ends before the answer, the call is
            not done), `lost` (the call is done, the answer does not arrive), `short` (half of the answer).
        times: how often.
        match: a regular expression that is searched in "METHOD /path?query", decoded.
        status: for `status`.
        reason: Drive's word for it.
        message: Drive's sentence for it.
    """

    mode: str = "status"
    times: int = 1
    match: str = ""
    status: int = 503
    reason: str = "backendError"
    message: str = "Backend Error"

    def raise_if_status(self) -> None:
        """ApiError, if that is the mode."""
        if self.mode == "status":
            raise ApiError(self.status, self.reason, self.message)


@dataclass
class Traffic:
    """What one client address has done: calls, and bytes of contents received from it and served to it."""

    calls: int = 0
    received: int = 0
    served: int = 0


@dataclass
class State:
    """Behaviour, faults and counters; methods may be called by any thread."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    faults: list[Fault] = field(default_factory=list)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    calls: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_CALLS))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tokens: dict[str, tuple[float, bool]] = field(default_factory=dict)
    _today: Counter[str] = field(default_factory=Counter)
    _recent: deque[float] = field(default_factory=deque)

    def take_fault(self, call: str) -> Fault | None:
        """The fault that this call is to have, counted."""
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.match, call):
                    fault.times -= 1
                    return fault
        return None

    def count(self, address: str, call: str, *, received: int, served: int) -> None:
        """Note a call that is over."""
        with self._lock:
            self.calls.append(call)
            traffic = self.traffic.setdefault(address, Traffic())
            traffic.calls += 1
            traffic.received += received
            traffic.served += served
            self._today["download"] += served

    def forget(self) -> None:
        """Count from zero, also what was moved today."""
        with self._lock:
            self.calls.clear()
            self.traffic.clear()
            self._today.clear()

    def require_calls(self) -> None:
        """ApiError where there are too many calls a second."""
        most = self.behaviour.calls_a_second
        if most is None:
            return
        with self._lock:
            now = time.monotonic()
            while self._recent and self._recent[0] < now - 1:
                self._recent.popleft()
            if len(self._recent) >= most:
                raise _RATE_LIMIT
            self._recent.append(now)

    def require_upload(self, size: int) -> None:
        """ApiError where a day's uploads are used up."""
        most = self.behaviour.upload_limit
        with self._lock:
            self._today["upload"] += size
            if most is not None and self._today["upload"] > most:
                raise ApiError(403, "userRateLimitExceeded", "User rate limit exceeded.")

    def require_download(self) -> None:
        """ApiError where a day's downloads are used up."""
        most = self.behaviour.download_limit
        if most is not None and self._today["download"] >= most:
            message = "The download quota for this file has been exceeded."
            raise ApiError(403, "downloadQuotaExceeded", message)

    def new_token(self, *, for_account: bool) -> Mapping[str, object]:
        """An access token, as the token endpoint gives it."""
        token, seconds = f"ya29.{secrets.token_urlsafe(24)}", self.behaviour.token_seconds
        with self._lock:
            self._tokens[token] = (time.monotonic() + seconds, for_account)
        return {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds)}

    def is_account(self, authorization: str) -> bool:
        """Whose token it is; ApiError where it is nobody's."""
        until, for_account = self._tokens.get(authorization.removeprefix("Bearer "), (0.0, False))
        if time.monotonic() > until:
            raise ApiError(401, "authError", "Invalid Credentials")
        return for_account


def make_account(folder: Path) -> Mapping[str, str]:
    """Make the service account's key, and give it; its public half stays in the folder."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / ACCOUNT_KEY).write_bytes(public)
    return {
        "type": "service_account",
        "client_email": ACCOUNT_MAIL,
        "private_key": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode(),
        "private_key_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }


def is_from_account(assertion: str, folder: Path) -> bool:
    """Whether the service account has signed this JSON web token (RFC 7519, RS256)."""
    file = folder / ACCOUNT_KEY
    if assertion.count(".") != 2 or not file.exists():
        return False
    signed, _, signature = assertion.rpartition(".")
    key = serialization.load_pem_public_key(file.read_bytes())
    assert isinstance(key, rsa.RSAPublicKey)
    try:
        key.verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    claims: Mapping[str, object] = json.loads(_decoded(signed.partition(".")[2]))
    return claims["iss"] == ACCOUNT_MAIL


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
