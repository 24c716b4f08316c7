"""`tailtrain invite`: a key with which one new machine joins the tailnet."""

from __future__ import annotations

import re
import sys
from datetime import timedelta

import click

from tailtrain.commands.credentials import credentials_help
from tailtrain.commands.duration import Duration, spoken
from tailtrain.errors import TailnetError

DEFAULT_TAG = "tag:train"
# What the API takes for an auth key is one second to 90 days; a minute is what a person needs to type.
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=90)

_TAG = re.compile(r"tag:[a-zA-Z][a-zA-Z0-9-]*")


class _Tag(click.ParamType[str]):
    name = "tag"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The tag with `tag:` before it, which may be left out."""
        tag = f"tag:{str(value).removeprefix('tag:')}"
        if not _TAG.fullmatch(tag):
            self.fail(f"{value!r} is no tag: letters, digits and hyphens, a letter first", param, ctx)
        return tag


@click.command(epilog=credentials_help("auth_keys"))
@click.option(
    "--tag",
    "tags",
    type=_Tag(),
    multiple=True,
    default=[DEFAULT_TAG],
    metavar="TAG",
    help=f"The tag that the machine will bear, {DEFAULT_TAG} if none is given; the policy must name it. "
    "Can be given more than once.",
)
@click.option(
    "--expires",
    type=Duration(least=SHORTEST, most=LONGEST),
    default="1h",
    show_default=True,
    metavar="SPAN",
    help="Until when the key must be used: 30m, 1h, 2d. The machine stays after that.",
)
@click.option("--show", is_flag=True, help="Print the key also where standard output is no terminal.")
def invite(tags: tuple[str, ...], expires: int, *, show: bool) -> None:
    """Make a key for one new machine, and print what to type there.

    The key works once, within the time; the machine that uses it is approved in advance and bears the tag,
    so it is not a person's, and its own key does not expire. The key is shown this once, as part of the
    command to type, and kept nowhere. Where standard output is no terminal, no key is made: it would stay
    in a file or a log. --show makes one all the same.

    A machine that is in your tailnet already needs no key: run `sudo tailscale set --ssh` on it.
    """
    import os

    from tailtrain.tailnet.admin import AdminApi
    from tailtrain.tailnet.credentials import required

    if not show and not sys.stdout.isatty():
        raise TailnetError(
            "no key was made: standard output is no terminal, and the key would stay in a file or a log",
            fix="Run it in a terminal, or with --show",
        )
    made = AdminApi(required(os.environ, "to make a key")).make_key(tags=tags, expiry_seconds=expires)
    until = f"{made.expires:%Y-%m-%d %H:%M} UTC" if made.expires else "it is used"
    named = ", ".join(made.tags or tags)
    click.echo(f"""\
A key for one machine, good until {until} ({spoken(timedelta(seconds=expires))}), tagged {named}.
Whoever has it can join your tailnet with it, once: show it to nobody else.

On the new machine (Linux on x86_64, with systemd and Python 3.11):

  curl -fsSL https://tailscale.com/install.sh | sh
  sudo tailscale up --ssh --auth-key={made.secret}

Then here:

  tailtrain devices              it is listed as soon as it has joined
  tailtrain add NAME --write     reads its hardware, puts its line into inventory.py
  tailtrain plan                 shows what it would take over

If this machine may not log in to it, the policy lacks a rule: tailtrain policy
To take the key back before it is used: key {made.key_id} at https://login.tailscale.com/admin/settings/keys""")
