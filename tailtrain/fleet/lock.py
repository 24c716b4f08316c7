"""The deploy lock, seen from the control machine: taken on the primary, held on its connection, let go.

A small program on the primary (`tailtrain.fleet.lock_program`) holds it for as long as its standard input
lives; a greenlet here keeps that open and writes to it every few seconds. If the connection is cut and comes
back, the lock is taken again, unless somebody else deployed in between or broke it.
"""

from __future__ import annotations

import getpass
import json
import secrets
import shlex
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from tailtrain.data import send
from tailtrain.errors import FleetError, LockedError
from tailtrain.fleet import lock_program, remote
from tailtrain.planning.observed import LockHolder
from tailtrain.tailnet.commands import BinaryStdin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyinfra.api.host import Host

HEARTBEAT_SECONDS = 5.0
_TAKING_SECONDS = 30


def own_name() -> str:
    """Who runs this: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def holder_of(reply: Mapping[str, Any]) -> LockHolder | None:
    """Who is deploying, from what `lock_program.observed_lock` gave."""
    holder = reply["holder"]
    return LockHolder(*(_plain(holder[key]) for key in ("token", "who", "since", "plan"))) if holder else None


class DeployLock:
    """The right to change this fleet, for one deploy at a time.

    Args:
        primary: the host that keeps the lock, connected.
        plan: the id of the plan that is to be carried out.
        expected: the number that the primary's probe gave as `deploys` when the plan was made; None where
            somebody was deploying then, so that the plan cannot be trusted.
        folder: where on the primary.
        silence_seconds: after how long without a sign of life the primary frees the lock.
    """

    def __init__(
        self,
        primary: Host,
        plan: str,
        expected: int | None,
        *,
        folder: str = lock_program.FOLDER,
        silence_seconds: float = lock_program.SILENCE_SECONDS,
    ) -> None:
        self.token = secrets.token_hex(4)
        self._primary, self._folder = primary, folder
        self._request = {
            "do": "hold",
            "folder": folder,
            "token": self.token,
            "who": own_name(),
            "plan": plan,
            "expected": expected,
            "silence_seconds": silence_seconds,
        }
        self._holder: gevent.Greenlet | None = None
        self._enough = Event()
        self._taken = False

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here."""
        return self._holder is not None and not self._holder.ready()

    def require(self) -> str | None:
        """Hold the lock from now on: take it, or take it again where the connection was cut.

        Gives, in words, who had it before, where that was a process that is gone without having let go of it.

        Raises:
            LockedError: somebody else is deploying, has deployed since the plan was made, or broke the lock.
            FleetError: the primary could not be asked.
        """
        if self.held:
            return None
        self._enough.clear()
        self._holder = gevent.spawn(self._hold, {**self._request, "resumes": self._taken})
        asking = gevent.spawn(self._record)
        gevent.wait([self._holder, asking], count=1)
        if not self._holder.ready():
            record = asking.get()
            if record is not None:
                self._taken = True
                left = record.get("left_by")
                return described(left) if left else None
            self.release()
        asking.kill()
        raise self._refusal(self._holder.get())

    def release(self) -> None:
        """Let go of the lock, where it is held."""
        self._enough.set()
        if self._holder is not None:
            self._holder.join(timeout=_TAKING_SECONDS)

    def _hold(self, request: dict[str, Any]) -> dict[str, Any] | FleetError:
        """Run the holder on the primary until it ends; its reply, or why there is none."""
        stdin = BinaryStdin(_SignsOfLife(request, self._enough))
        try:
            output = remote.run(self._primary, send.command(), stdin=stdin, timeout=None)
            reply = json.loads(output.stdout.rstrip().rpartition("\n")[2])
        except FleetError as error:
            return error
        except ValueError:
            return FleetError(
                "the deploy lock's program ended without a reply",
                host=self._primary.name,
                found=output.complaint or "no output",
            )
        return reply if isinstance(reply, dict) else {}

    def _record(self) -> dict[str, Any] | None:
        """Wait until the holder's record on the primary is ours, and read it."""
        path = shlex.quote(f"{self._folder}/holder.json")
        ours = shlex.quote(f'^{{"token": "{self.token}"')
        # The shell, not Python: its start would take longer than the holder's own.
        script = (
            f"for i in $(seq {_TAKING_SECONDS * 20}); do"
            f" grep -qs {ours} {path} && exec cat {path}; sleep 0.05; done; exit 1"
        )
        try:
            output = remote.run(self._primary, ["sh", "-c", script], timeout=_TAKING_SECONDS + 10)
            record = json.loads(output.stdout)
        except (FleetError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def _refusal(self, reply: dict[str, Any] | FleetError) -> FleetError:
        name = self._primary.name
        if isinstance(reply, FleetError):
            return reply
        if reply.get("refused") == "held":
            return locked(name, reply["holder"])
        if reply.get("refused") != "outdated":
            return FleetError("the deploy lock could not be taken", host=name, found=reply or "no reply")
        since = reply["since"]
        if "broken_by" in since:
            return LockedError(
                f"the deploy lock was broken by {_plain(since['broken_by'])} at {_plain(since['at'])}",
                host=name,
                fix="Training goes on on the hosts; see what is left to do: tailtrain plan",
            )
        whose = f", by {_plain(since['who'])} at {_plain(since['at'])}" if since else ""
        return LockedError(
            f"somebody deployed since this plan was made{whose}",
            host=name,
            fix="Run the same command again, for a plan of how it is now",
        )


@dataclass(frozen=True)
class _SignsOfLife:
    """Standard input for the holder: its program, what is asked, and something every few seconds."""

    request: dict[str, Any]
    enough: Event

    def __iter__(self) -> Iterator[bytes]:
        yield send.program(lock_program)
        yield json.dumps(self.request).encode() + b"\n"
        while not self.enough.wait(HEARTBEAT_SECONDS):
            yield b"\n"


def look(primary: Host, folder: str = lock_program.FOLDER) -> Mapping[str, Any] | None:
    """Who is deploying: token, who, since, plan, and for how many seconds; None where nobody is.

    Raises:
        FleetError: the primary could not be asked.
    """
    reply = remote.ask(primary, [lock_program], {"do": "look", "folder": folder})
    holder: Mapping[str, Any] | None = reply["holder"]
    return holder


def break_lock(primary: Host, token: str, folder: str = lock_program.FOLDER) -> str:
    """End the holder of the deploy lock on the primary; its deploy stops at its next step.

    Gives whose lock it was, in words.

    Raises:
        LockedError: the lock is held under another token.
        FleetError: nobody holds it, or the primary could not be asked.
    """
    request = {"do": "break", "folder": folder, "token": token, "who": own_name()}
    reply = remote.ask(primary, [lock_program], request)
    if "broken" in reply:
        return described(reply["broken"])
    if reply["refused"] == "other":
        error = locked(primary.name, reply["holder"])
        raise LockedError(
            f"{token} is not the lock's token: {error.problem}", host=primary.name, fix=error.fix
        )
    raise FleetError("nobody is deploying", host=primary.name, fix="There is nothing to unlock")


def locked(primary: str, holder: Mapping[str, Any]) -> LockedError:
    """The refusal that says who is deploying, since when, which plan, and how to break the lock."""
    return LockedError(
        described(holder),
        host=primary,
        fix=(
            f"Wait until it is done, or break it: tailtrain unlock {_plain(holder['token'])}"
            if holder["token"]
            else "Run the same command again in a moment"
        ),
    )


def described(holder: Mapping[str, Any]) -> str:
    """Who is deploying what, and since when, in words."""
    if not holder["token"]:
        return "somebody else is deploying"
    age = f" ({duration(float(holder['seconds']))})" if "seconds" in holder else ""
    who, plan, since = (_plain(holder[key]) for key in ("who", "plan", "since"))
    return f"{who} is deploying plan {plan}, since {since}{age}"


def duration(seconds: float) -> str:
    """A length of time in words, by its two largest units."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def _plain(text: object) -> str:
    """Words from a host without anything that a terminal would obey."""
    return "".join(sign for sign in str(text) if sign.isprintable())
