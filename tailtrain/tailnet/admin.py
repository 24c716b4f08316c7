"""Tailscale's admin API: devices that the local daemon does not see, keys for new machines, policy checks.

The requests are those of the `tailscale` package (https://tailscale.com/api); here they are calls that wait,
with errors that say what to do. Credentials and keys are in none of them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.request import getproxies, proxy_bypass

from aiohttp import ClientSession
from tailscale import Tailscale
from tailscale.exceptions import TailscaleConnectionError, TailscaleError, TailscaleResponseError

from tailtrain.tailnet import refusals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from tailscale.models import Device, PolicyFileValidation, PolicyRulePreview

    from tailtrain.tailnet.credentials import Credentials

REQUEST_SECONDS = 15.0
"""How long one request may take; the API answers within a second, more slowly through a proxy."""
CLOSING_SECONDS = 0.01
"""For connections to end that were closed: aiohttp does not wait for those that were given up."""
KEY_DESCRIPTION = "tailtrain invite"
"""How a key that was made here is called in the admin console: letters, digits, hyphens and spaces only."""

_BAD_REQUEST = 400

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JoinKey:
    """A key with which one machine joins the tailnet."""

    key_id: str
    """Names the key in the admin console; no secret."""
    secret: str = field(repr=False)
    expires: datetime | None
    tags: tuple[str, ...]


def open_session() -> ClientSession:
    """Connections through the proxy that HTTPS_PROXY names, if it names one.

    aiohttp's own reading of the environment would take passwords from ~/.netrc as well.
    """
    proxy = None if proxy_bypass(refusals.API_HOST) else getproxies().get("https")
    return ClientSession(proxy=proxy)


class AdminApi:
    """The admin API of one tailnet. Each call opens its own connection, and closes it.

    Every call raises TailnetError, which says what went wrong and what to do.

    Args:
        credentials: who asks.
        connect: opens the connections.
    """

    def __init__(
        self, credentials: Credentials, *, connect: Callable[[], ClientSession] = open_session
    ) -> None:
        self._credentials = credentials
        self._connect = connect

    def devices(self) -> tuple[Device, ...]:
        """Every device of the tailnet, by name."""
        found = self._call(lambda api: api.devices(), "list the devices", "devices:core:read")
        return tuple(sorted(found.values(), key=lambda device: (device.name, device.device_id)))

    def make_key(self, *, tags: Sequence[str], expiry_seconds: int) -> JoinKey:
        """A key that lets one machine join, once, tagged and approved in advance.

        Args:
            tags: with `tag:`, at least one.
            expiry_seconds: until when it must be used; a machine that joined stays.
        """

        async def make(api: Tailscale) -> JoinKey:
            try:
                made = await api.create_key(
                    description=KEY_DESCRIPTION,
                    expiry_seconds=expiry_seconds,
                    reusable=False,
                    ephemeral=False,
                    preauthorized=True,
                    tags=list(tags),
                )
            except TailscaleResponseError as error:
                if error.status == _BAD_REQUEST and "tags" in error.reason:
                    raise refusals.tags_refused(error, tags, self._credentials) from None
                raise
            return JoinKey(made.key_id, made.key, made.expires, tuple(made.capabilities.devices.create.tags))

        return self._call(make, "make keys", "auth_keys")

    def policy_text(self) -> str:
        """The tailnet's policy file, as HuJSON."""
        return self._call(lambda api: api.policy_file(), "read the policy", "policy_file:read").policy

    def validate_policy(self, policy: str) -> tuple[str, ...]:
        """Have a policy checked, its tests included; it is not saved. What is wrong with it, a line each."""

        async def validate(api: Tailscale) -> tuple[str, ...]:
            try:
                return tuple(_problems(await api.validate_policy_file(policy)))
            except TailscaleResponseError as error:
                # A policy that cannot be read at all is answered so, in one sentence.
                if error.status == _BAD_REQUEST:
                    return (refusals.masked(error.reason, self._credentials),)
                raise

        return self._call(validate, "check a policy", "policy_file:read")

    def preview_policy(self, policy: str, targets: Iterable[str]) -> tuple[PolicyRulePreview, ...]:
        """Which rules of a policy let traffic in; it is not saved.

        Args:
            policy: HuJSON or JSON.
            targets: addresses with ports, as in `100.64.0.2:22`.
        """

        async def preview(api: Tailscale) -> list[PolicyRulePreview]:
            asked = (
                api.preview_policy_rules(policy, preview_type="ipport", preview_for=target)
                for target in targets
            )
            return await asyncio.gather(*asked)

        return tuple(self._call(preview, "preview a policy", "policy_file:read"))

    def _call(self, request: Callable[[Tailscale], Awaitable[T]], what: str, scope: str) -> T:
        """Ask the API and wait for the answer."""

        async def ask() -> T:
            try:
                async with self._connect() as session, self._client(session) as api:
                    return await request(api)
            finally:
                await asyncio.sleep(CLOSING_SECONDS)

        try:
            return asyncio.run(ask())
        except TailscaleResponseError as error:
            raise refusals.refused(error, self._credentials, what, scope) from None
        except TailscaleConnectionError as error:
            raise refusals.not_reached(error.__cause__, REQUEST_SECONDS) from None
        except TailscaleError as error:
            raise refusals.no_access(error, self._credentials) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise refusals.not_understood(error) from None

    def _client(self, session: ClientSession) -> Tailscale:
        mine = self._credentials
        return Tailscale(
            tailnet=mine.tailnet,
            api_key=mine.api_key,
            oauth_client_id=mine.client_id,
            oauth_client_secret=mine.client_secret,
            request_timeout=REQUEST_SECONDS,
            session=session,
        )


def _problems(found: PolicyFileValidation) -> Iterator[str]:
    if found.valid:
        return
    lines = [
        f"{test.user}: {line}" if test.user else line
        for test in found.data
        for line in (*test.errors, *test.warnings)
    ]
    yield from lines or [str(found.message)]
