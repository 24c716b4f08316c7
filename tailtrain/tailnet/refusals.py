"""Why Tailscale's admin API did not do what it was asked, in words that say what to do.

Credentials and keys are in none of them: what the API said is masked, of what it sent nothing is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import ClientConnectorCertificateError, ClientHttpProxyError, ClientProxyConnectionError
from aiohttp.client_exceptions import ClientConnectorError
from tailscale.exceptions import (
    TailscaleNotFoundError,
    TailscalePermissionError,
    TailscaleUnauthorizedError,
)

from tailtrain.errors import TailnetError
from tailtrain.tailnet.credentials import HOW_TO_SET, OWN_TAILNET, TAILNET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscale.exceptions import TailscaleError, TailscaleResponseError

    from tailtrain.tailnet.credentials import Credentials

API_HOST = "api.tailscale.com"
WHERE_CLIENTS_ARE = "admin console, Settings, Trust credentials"

_SECRET = re.compile(r"tskey-[\w-]+")
_TOO_MANY_REQUESTS, _SERVER_ERRORS = 429, 500


def masked(text: str, credentials: Credentials) -> str:
    """A text as one printable line, without the credentials and without anything that looks like a key."""
    for secret in credentials.secrets:
        text = text.replace(secret, "***")
    return "".join(sign if sign.isprintable() else " " for sign in _SECRET.sub("***", text))


def refused(error: TailscaleResponseError, credentials: Credentials, what: str, scope: str) -> TailnetError:
    """The API answered with an HTTP error.

    Args:
        error: its answer.
        credentials: who asked.
        what: what was asked for, as in "make keys".
        scope: what an OAuth client needs for that.
    """
    said = masked(error.reason, credentials)
    who = "this OAuth client" if credentials.from_client else "this API access token"
    if isinstance(error, TailscaleUnauthorizedError):
        problem = f"Tailscale's API does not accept {who}: it is wrong, revoked or expired"
        return TailnetError(problem, found=said, fix=HOW_TO_SET)
    if isinstance(error, TailscalePermissionError):
        if credentials.from_client:
            expected, fix = f"the scope {scope}", f"Give the client the scope {scope} ({WHERE_CLIENTS_ARE})"
        else:
            expected, fix = "that of an admin", "Use the token of an Owner, Admin, IT admin or Network admin"
        return TailnetError(f"{who} may not {what}", found=said, expected=expected, fix=fix)
    if isinstance(error, TailscaleNotFoundError):
        named = "not set" if credentials.tailnet == OWN_TAILNET else credentials.tailnet
        return TailnetError(
            "Tailscale's API knows no such tailnet",
            field=TAILNET,
            found=f"{named}; {said}",
            fix=f"Unset {TAILNET} for the tailnet that the credentials belong to, or take its name from the "
            "admin console (Settings, General)",
        )
    if error.status == _TOO_MANY_REQUESTS:
        fix = "Wait a minute, then run again"
        return TailnetError("Tailscale's API was asked too often", found=said, fix=fix)
    if error.status >= _SERVER_ERRORS:
        problem = f"Tailscale's API is in trouble (HTTP {error.status})"
        return TailnetError(
            problem, found=said, fix="Look at https://status.tailscale.com, and run again later"
        )
    return TailnetError(f"Tailscale's API refused to {what} (HTTP {error.status})", found=said)


def tags_refused(
    error: TailscaleResponseError, tags: Sequence[str], credentials: Credentials
) -> TailnetError:
    """A key was asked for, and the tailnet does not let who asked give machines these tags."""
    fix = f'The policy must name it: "tagOwners": {{"{tags[0]}": ["autogroup:admin"]}}; see: tailtrain policy'
    if credentials.from_client:
        # The API takes all of a client's tags, and refuses some of them: tailscale/tailscale#15456.
        fix += ". An OAuth client gives all the tags that it has itself: name each of them with --tag"
    return TailnetError(
        f"these credentials may not tag a machine {', '.join(tags)}",
        found=masked(error.reason, credentials),
        fix=fix,
    )


def not_reached(cause: BaseException | None, seconds: float) -> TailnetError:
    """There was no answer. Of the cause only plain parts are shown: a proxy's address may hold a password."""
    where = f"https://{API_HOST}"
    if isinstance(cause, TimeoutError):
        fix = "Look at this machine's network, then run again"
        return TailnetError(f"{where} did not answer within {seconds:g} s", fix=fix)
    if isinstance(cause, ClientConnectorCertificateError):
        return TailnetError(
            f"{where} shows a certificate that this machine does not trust",
            found=getattr(cause.certificate_error, "verify_message", None),
            fix="Where a proxy opens connections to look inside, name its certificates in SSL_CERT_FILE",
        )
    if isinstance(cause, ClientHttpProxyError | ClientProxyConnectionError):
        status = (
            f"HTTP {cause.status}" if isinstance(cause, ClientHttpProxyError) else cause.os_error.strerror
        )
        return TailnetError(f"the proxy does not lead to {where}", field="HTTPS_PROXY", found=status)
    reason = cause.os_error.strerror if isinstance(cause, ClientConnectorError) else type(cause).__name__
    return TailnetError(
        f"{where} cannot be reached",
        found=reason,
        fix="Look at this machine's network; where a proxy leads out, name it in HTTPS_PROXY",
    )


def no_access(error: TailscaleError, credentials: Credentials) -> TailnetError:
    """No access token was to be had for the OAuth client."""
    said = masked(str(error), credentials)
    return TailnetError("Tailscale's API gave this OAuth client no access", found=said, fix=HOW_TO_SET)


def not_understood(error: Exception) -> TailnetError:
    """An answer that is none of the API's. It may hold a key all the same, so none of it is shown."""
    return TailnetError(
        f"what answers as https://{API_HOST} does not answer as Tailscale's API does",
        found=type(error).__name__,
        fix="Look whether a proxy or a portal answers in its place; if not, update tailtrain",
    )
