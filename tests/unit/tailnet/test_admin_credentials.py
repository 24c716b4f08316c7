"""Credentials of the environment: one kind, whole, of the right sort, never shown."""

from __future__ import annotations

import pytest

from tailtrain.errors import TailnetError
from tailtrain.tailnet.credentials import Credentials, from_environment, required

KEY, ID, SECRET, TAILNET = (
    "TAILSCALE_API_KEY",
    "TAILSCALE_OAUTH_CLIENT_ID",
    "TAILSCALE_OAUTH_CLIENT_SECRET",
    "TAILSCALE_TAILNET",
)


def test_none_are_none_and_empty_ones_too() -> None:
    assert from_environment({}) is None
    assert from_environment({KEY: "", ID: " ", TAILNET: "example.com"}) is None
    with pytest.raises(TailnetError, match=f"needed to make a key, and no credentials are set. Set {KEY}"):
        required({}, "to make a key")


def test_a_key_or_a_client() -> None:
    assert from_environment({KEY: " tskey-api-a\n"}) == Credentials("-", api_key="tskey-api-a")
    found = from_environment({ID: "k1", SECRET: "tskey-client-b", TAILNET: "example.com"})
    assert found == Credentials("example.com", client_id="k1", client_secret="tskey-client-b")  # noqa: S106
    assert found.from_client
    assert found.secrets == ("tskey-client-b",)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({KEY: "tskey-api-a", ID: "k1", SECRET: "tskey-client-b"}, "two kinds"),
        ({ID: "k1"}, f"{SECRET}: is not set, but {ID} is"),
        ({SECRET: "tskey-client-b"}, f"{ID}: is not set, but {SECRET} is"),
        ({KEY: "tskey-auth-a"}, f"{KEY}: holds another kind of key .found a key with which machines join"),
        ({KEY: "tskey-client-a"}, "the secret of an OAuth client"),
        ({ID: "k1", SECRET: "tskey-api-a"}, f"{SECRET}: holds another kind of key"),
        ({KEY: "tskey-api-a\r\nX-Other: b"}, "white space"),
        ({KEY: "tskey-api-a b"}, "white space"),
        ({KEY: "tskey-api-ä"}, "white space"),
        ({KEY: "tskey-api-a", TAILNET: ".."}, f"{TAILNET}: is no tailnet's name"),
    ],
)
def test_what_cannot_be_right_is_said_before_anything_is_sent(
    environment: dict[str, str], words: str
) -> None:
    with pytest.raises(TailnetError, match=words) as caught:
        from_environment(environment)
    for name in (KEY, SECRET):
        assert environment.get(name, "nothing") not in str(caught.value)


def test_they_are_not_shown_where_they_are_printed() -> None:
    shown = repr(from_environment({KEY: "tskey-api-a"})) + repr(
        from_environment({ID: "k1", SECRET: "tskey-client-b"})
    )
    assert "tskey" not in shown
