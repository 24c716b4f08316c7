"""Whether the tailnet's policy lets the fleet train: asked of the admin API, which saves nothing of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import TailnetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.tailnet.admin import AdminApi

_TESTS = ("tests", "sshTests")
# HuJSON is JSON with comments and commas at ends (https://github.com/tailscale/hujson). Strings come first in
# these, so that what looks like a comment in one stays.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


@dataclass(frozen=True)
class Access:
    """Who could reach a port of a node."""

    target: str
    """Address and port."""
    sources: tuple[str, ...]


@dataclass(frozen=True)
class PolicyVerdict:
    """What the API says of the policy.

    Attributes:
        lacking: what the fleet needs and the policy as it is does not give; empty where it gives all.
        wrong: what is wrong with the policy once the rules are merged into it; empty where it is right then.
        access: who could reach the nodes then.
    """

    lacking: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    access: tuple[Access, ...] = ()


def check_policy(api: AdminApi, rules: str, targets: Sequence[str]) -> PolicyVerdict:
    """Ask whether the policy gives what the rules give, and whether it is right with them merged.

    Args:
        api: the admin API.
        rules: HuJSON, as `policy_text` makes it.
        targets: addresses with ports to preview.

    Raises:
        TailnetError: the API does not answer, or the policy cannot be read.
    """
    current, wanted = (
        parse_hujson(api.policy_text(), "the tailnet's policy"),
        parse_hujson(rules, "the rules"),
    )
    only_tests = {name: wanted[name] for name in _TESTS if name in wanted}
    lacking = api.validate_policy(_written(merged(current, only_tests)))
    whole = _written(merged(current, wanted))
    wrong = api.validate_policy(whole) if lacking else ()
    if wrong:
        return PolicyVerdict(lacking, wrong)
    previews = api.preview_policy(whole if lacking else _written(current), targets)
    return PolicyVerdict(
        lacking,
        access=tuple(
            Access(
                preview.preview_for, tuple(dict.fromkeys(u for match in preview.matches for u in match.users))
            )
            for preview in previews
        ),
    )


def merged(policy: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """A policy with rules more; those that it has already are not doubled, and none is taken away."""
    whole = dict(policy)
    for section, new in rules.items():
        old = whole.get(section)
        if isinstance(new, dict):
            whole[section] = {**new, **(old or {})}
        else:
            whole[section] = [*(old or []), *(rule for rule in new if rule not in (old or []))]
    return whole


def parse_hujson(text: str, what: str) -> dict[str, Any]:
    """A policy as plain values.

    Raises:
        TailnetError: it is none; `what` says which.
    """
    plain = _LAST_COMMA.sub(r"\1", _COMMENT.sub(r"\1", text))
    try:
        found = json.loads(plain)
    except ValueError as error:
        raise TailnetError(f"{what} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise TailnetError(f"{what} cannot be read", found=type(found).__name__, expected="an object")
    return found


def _written(policy: Mapping[str, Any]) -> str:
    return json.dumps(policy, indent=2, ensure_ascii=False)
