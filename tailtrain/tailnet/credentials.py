"""Which credentials the environment holds for Tailscale's admin API; never shown, not even in errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailtrain.errors import TailnetError

if TYPE_CHECKING:
    from collections.abc import Mapping

API_KEY = "TAILSCALE_API_KEY"
CLIENT_ID = "TAILSCALE_OAUTH_CLIENT_ID"
CLIENT_SECRET = "TAILSCALE_OAUTH_CLIENT_SECRET"  # noqa: S105  # the name of a variable
TAILNET = "TAILSCALE_TAILNET"
HOW_TO_SET = (
    f"Set {API_KEY} to an API access token (https://login.tailscale.com/admin/settings/keys), or {CLIENT_ID} "
    f"and {CLIENT_SECRET} to those of an OAuth client (there under Trust credentials)"
)
OWN_TAILNET = "-"
"""How the API calls the tailnet that the credentials belong to."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API access token, or an OAuth client that gets such tokens; and the tailnet that is meant."""

    tailnet: str
    api_key: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)

    @property
    def from_client(self) -> bool:
        """Whether an OAuth client is used: what it may do is decided by its scopes, not by a user's role."""
        return self.api_key is None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen anywhere."""
        return tuple(secret for secret in (self.api_key, self.client_secret) if secret)


def from_environment(environment: Mapping[str, str]) -> Credentials | None:
    """The credentials that the environment holds, None where it holds none.

    Raises:
        TailnetError: they are incomplete, of the wrong kind, or there are two of them.
    """
    values = {
        name: environment.get(name, "").strip() for name in (API_KEY, CLIENT_ID, CLIENT_SECRET, TAILNET)
    }
    for name, value in values.items():
        if not value.isascii() or not value.isprintable() or " " in value:
            raise TailnetError("has white space or other signs in it that never belong there", field=name)
    tailnet = values[TAILNET] or OWN_TAILNET
    if set(tailnet) == {"."}:
        raise TailnetError("is no tailnet's name", field=TAILNET, found=tailnet)
    api_key, client_id, client_secret = values[API_KEY], values[CLIENT_ID], values[CLIENT_SECRET]
    if api_key and (client_id or client_secret):
        raise TailnetError(
            "there are two kinds of credentials",
            field=API_KEY,
            fix=f"Unset it, or {CLIENT_ID} and {CLIENT_SECRET}",
        )
    if api_key:
        _require_kind(API_KEY, api_key)
        return Credentials(tailnet, api_key=api_key)
    if client_id and client_secret:
        _require_kind(CLIENT_SECRET, client_secret)
        return Credentials(tailnet, client_id=client_id, client_secret=client_secret)
    if client_id or client_secret:
        missing, there = (CLIENT_SECRET, CLIENT_ID) if client_id else (CLIENT_ID, CLIENT_SECRET)
        raise TailnetError(
            f"is not set, but {there} is", field=missing, fix="An OAuth client has both: set both"
        )
    return None


def required(environment: Mapping[str, str], purpose: str) -> Credentials:
    """The credentials that the environment holds, for a command that cannot do without.

    Args:
        environment: as `os.environ`.
        purpose: what they are needed for, as in "to make a key".

    Raises:
        TailnetError: as `from_environment`, or there are none.
    """
    found = from_environment(environment)
    if found is None:
        raise TailnetError(
            f"Tailscale's admin API is needed {purpose}, and no credentials are set", fix=HOW_TO_SET
        )
    return found


# By their prefixes: https://tailscale.com/kb/1277/key-prefixes
_KINDS = {
    "tskey-auth-": "a key with which machines join",
    "tskey-client-": "the secret of an OAuth client",
    "tskey-api-": "an API access token",
}
_EXPECTED = {API_KEY: "tskey-api-", CLIENT_SECRET: "tskey-client-"}


def _require_kind(name: str, value: str) -> None:
    for prefix, kind in _KINDS.items():
        if value.startswith(prefix) and prefix != _EXPECTED[name]:
            raise TailnetError(
                "holds another kind of key",
                field=name,
                found=kind,
                expected=_KINDS[_EXPECTED[name]],
                fix=HOW_TO_SET,
            )
