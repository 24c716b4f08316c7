"""The admin API: what is asked, what becomes of the answers, and what a person reads when it goes wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import TailnetError
from tailtrain.tailnet import admin, credentials
from tailtrain.tailnet.admin import AdminApi
from tests.plans.situations import PROJECT
from tests.unit.tailnet.admin_documents import (
    ACCESS_TOKEN,
    API_KEY,
    CLIENT_ID,
    CLIENT_SECRET,
    JOIN_KEY,
    device,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.tailnet.admin_stand_in import AdminStandIn

    Connected = Callable[..., AdminApi]

WITH_KEY = {credentials.API_KEY: API_KEY}
WITH_CLIENT = {credentials.CLIENT_ID: CLIENT_ID, credentials.CLIENT_SECRET: CLIENT_SECRET}


@pytest.fixture
def api(admin_stand_in: AdminStandIn) -> Connected:
    """The API as credentials of the environment reach it."""

    def connect(environment: dict[str, str] = WITH_KEY, **more: str) -> AdminApi:
        found = credentials.from_environment({**environment, **more})
        assert found is not None
        return AdminApi(found, connect=admin_stand_in.connect)

    return connect


def refused(api: AdminApi) -> str:
    """What is said when the devices are asked for in vain; never a secret."""
    with pytest.raises(TailnetError) as caught:
        api.devices()
    said = str(caught.value)
    for secret in (API_KEY, CLIENT_SECRET, ACCESS_TOKEN):
        assert secret not in said
        assert secret not in repr(caught.value)
    # Nor may a traceback show what came before.
    assert caught.value.__suppress_context__
    return said


def test_devices_are_listed_by_name(api: Connected, admin_stand_in: AdminStandIn) -> None:
    admin_stand_in.behave(devices=[device("judge", "100.64.0.4"), device("Architect", "100.64.0.3")])
    assert [found.hostname for found in api().devices()] == ["Architect", "judge"]
    asked = admin_stand_in.asked[0]
    assert (asked.method, asked.path) == ("GET", "/api/v2/tailnet/-/devices")
    assert asked.headers["Authorization"] == f"Bearer {API_KEY}"


def test_a_tailnet_with_shared_devices_is_listed_too(api: Connected, admin_stand_in: AdminStandIn) -> None:
    """tailscale/tailscale#21721: the API fails for all fields then."""
    admin_stand_in.behave(not_with_all_fields=True)
    admin_stand_in.behave(devices=[device("judge", "100.64.0.4")])
    assert len(api().devices()) == 1


def test_an_oauth_client_gets_a_token_first(api: Connected, admin_stand_in: AdminStandIn) -> None:
    api(WITH_CLIENT).devices()
    token, devices = admin_stand_in.asked
    assert token.path == "/api/v2/oauth/token"
    assert token.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert devices.headers["Authorization"] == f"Bearer {ACCESS_TOKEN}"


def test_a_key_is_made_as_the_api_documents_it(api: Connected, admin_stand_in: AdminStandIn) -> None:
    """https://tailscale.com/api#tag/keys/POST/tailnet/{tailnet}/keys."""
    made = api(TAILSCALE_TAILNET="example.com").make_key(tags=["tag:train"], expiry_seconds=3600)
    asked = admin_stand_in.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/v2/tailnet/example.com/keys")
    assert asked.json == {
        "keyType": "auth",
        "description": admin.KEY_DESCRIPTION,
        "expirySeconds": 3600,
        "capabilities": {
            "devices": {
                "create": {
                    "reusable": False,
                    "ephemeral": False,
                    "preauthorized": True,
                    "tags": ["tag:train"],
                }
            }
        },
    }
    assert made.secret == JOIN_KEY
    assert made.key_id == "kMadeCNTRL"
    assert made.tags == ("tag:train",)
    assert made.expires is not None
    assert timedelta(minutes=59) < made.expires - datetime.now(UTC) <= timedelta(hours=1)
    assert JOIN_KEY not in repr(made)


def test_the_description_of_a_key_is_one_that_the_api_takes() -> None:
    """At most 50 letters, digits, hyphens and spaces."""
    assert len(admin.KEY_DESCRIPTION) <= 50
    assert all(sign.isalnum() or sign in "- " for sign in admin.KEY_DESCRIPTION)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (WITH_KEY, ['"tagOwners": {"tag:gpu"', "tailtrain policy"]),
        (WITH_CLIENT, ['"tagOwners": {"tag:gpu"', "all the tags that it has itself", "--tag"]),
    ],
    ids=["key", "client"],
)
def test_a_tag_that_nobody_owns(api: Connected, environment: dict[str, str], words: list[str]) -> None:
    with pytest.raises(TailnetError, match="may not tag a machine tag:gpu") as caught:
        api(environment).make_key(tags=["tag:gpu"], expiry_seconds=60)
    assert "requested tags [tag:gpu] are invalid or not permitted" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {credentials.API_KEY: "tskey-api-old"},
            ["does not accept this API access token", "wrong, revoked or expired", "settings/keys"],
        ),
        (
            {**WITH_CLIENT, credentials.CLIENT_SECRET: "tskey-client-other"},
            ["does not accept this OAuth client", "Trust credentials"],
        ),
        ({**WITH_KEY, credentials.TAILNET: "nowhere.example"}, ["no such tailnet", "nowhere.example"]),
    ],
    ids=["key", "client", "tailnet"],
)
def test_wrong_credentials(api: Connected, environment: dict[str, str], words: list[str]) -> None:
    said = refused(api(environment))
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("error", "environment", "words"),
    [
        ((403, "user does not have access"), WITH_KEY, ["may not list the devices", "Owner, Admin"]),
        ((403, "user does not have access"), WITH_CLIENT, ["OAuth client", "scope devices:core:read"]),
        ((429, "rate limit"), WITH_KEY, ["asked too often", "Wait a minute"]),
        ((502, "bad gateway"), WITH_KEY, ["in trouble (HTTP 502)", "status.tailscale.com"]),
        ((400, "what?"), WITH_KEY, ["refused to list the devices (HTTP 400)", "what?"]),
        ((400, f"odd key {API_KEY} \x1b[2Jtskey-auth-another"), WITH_KEY, ["odd key ***  [2J***"]),
    ],
)
def test_what_the_api_refuses(
    api: Connected,
    admin_stand_in: AdminStandIn,
    error: tuple[int, str],
    environment: dict[str, str],
    words: list[str],
) -> None:
    admin_stand_in.behave(error=error)
    said = refused(api(environment))
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    "page", ["<html>Please log in</html>", "{}", '{"devices": [{}]}', '{"devices": 5}', "[]"]
)
def test_a_portal_answers_in_its_place(api: Connected, admin_stand_in: AdminStandIn, page: str) -> None:
    admin_stand_in.behave(page=page)
    assert "does not answer as Tailscale's API does" in refused(api())
    admin_stand_in.behave(page=f'{{"id": 5, "key": "{JOIN_KEY}", "created": "never"}}')
    with pytest.raises(TailnetError) as caught:
        api().make_key(tags=["tag:train"], expiry_seconds=60)
    assert JOIN_KEY not in str(caught.value)


def test_silence_is_not_waited_for_without_end(
    api: Connected, admin_stand_in: AdminStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "REQUEST_SECONDS", 0.3)
    admin_stand_in.behave(silence=5)
    started = time.monotonic()
    assert "did not answer within 0.3 s" in refused(api())
    assert time.monotonic() - started < 3


def test_a_policy_is_checked_and_not_saved(api: Connected, admin_stand_in: AdminStandIn) -> None:
    assert api().validate_policy("{}") == ()
    answers: list[dict[str, Any]] = [
        {
            "message": "test(s) failed",
            "data": [{"user": "tag:train", "errors": ['address "tag:train:22": want: Accept, got: Drop']}],
        },
        {"message": "invalid rule"},
    ]
    admin_stand_in.behave(validation=answers)
    assert api().validate_policy("{}") == ('tag:train: address "tag:train:22": want: Accept, got: Drop',)
    assert api().validate_policy("{}") == ("invalid rule",)
    admin_stand_in.behave(error=(400, "line 3, column 4: unexpected token"))
    assert api().validate_policy("{") == ("line 3, column 4: unexpected token",)
    assert {asked.path for asked in admin_stand_in.asked} == {"/api/v2/tailnet/-/acl/validate"}


def test_a_policy_is_read_and_previewed(api: Connected, admin_stand_in: AdminStandIn) -> None:
    admin_stand_in.behave(policy="{ /* mine */ }")
    assert api().policy_text() == "{ /* mine */ }"
    rule = {"users": ["alice@example.com"], "ports": ["*:22"], "lineNumber": 7}
    admin_stand_in.behave(previews={"100.64.0.3:22": [rule]})
    first, second = api().preview_policy("{}", ["100.64.0.3:22", "100.64.0.4:22"])
    assert first.matches[0].users == ["alice@example.com"]
    assert second.matches == []
    assert {asked.query["type"] for asked in admin_stand_in.asked[1:]} == {"ipport"}


PROGRAM = """
import os, sys
if "patched" in sys.argv:
    from gevent import monkey
    monkey.patch_all()
from tailtrain.errors import TailnetError
from tailtrain.tailnet.admin import AdminApi
from tailtrain.tailnet.credentials import from_environment
try:
    print(*(found.hostname for found in AdminApi(from_environment(os.environ)).devices()))
except TailnetError as error:
    print(error)
"""


@pytest.fixture
def run(admin_stand_in: AdminStandIn) -> Callable[..., str]:
    """Ask for the devices in a process that finds the API as on a machine behind a proxy."""

    def start(*words: str, **environment: str) -> str:
        found = {**admin_stand_in.environment, **WITH_KEY, "PATH": "", **environment}
        command = [sys.executable, "-W", "error", "-c", PROGRAM, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT, env=found)
        assert not done.stderr
        return done.stdout.strip()

    return start


@pytest.mark.parametrize("words", [[], ["patched"]])
def test_it_is_reached_through_a_proxy_also_where_gevent_replaced_blocking_calls(
    run: Callable[..., str], admin_stand_in: AdminStandIn, words: list[str]
) -> None:
    admin_stand_in.behave(devices=[device("judge", "100.64.0.4")])
    assert run(*words) == "judge"


def test_roads_that_do_not_lead_there(run: Callable[..., str], admin_stand_in: AdminStandIn) -> None:
    assert "certificate that this machine does not trust" in run(SSL_CERT_FILE="/dev/null")
    closed = run(HTTPS_PROXY="http://me:word@127.0.0.1:1")
    assert closed.startswith("HTTPS_PROXY: the proxy does not lead to https://api.tailscale.com")
    assert "word" not in closed
    # The stand-in's HTTPS port is no proxy.
    other = run(HTTPS_PROXY=f"http://me:word@127.0.0.1:{admin_stand_in.port}")
    assert "cannot be reached" in other or "HTTPS_PROXY" in other
    assert "word" not in other
