"""What went wrong on the way to a host, in words that say what to do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tailtrain.errors import AccessError, DaemonError, HostKeyError, TailnetError
from tailtrain.tailnet.login import known_hosts_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paramiko import BadHostKeyException, PKey

    from tailtrain.tailnet.netmap import Netmap, Peer


def no_device(host: str) -> DaemonError:
    """This machine's daemon has no network device, so addresses of the tailnet cannot be dialled."""
    return DaemonError(
        "this machine's tailscaled runs in userspace networking, so tailnet addresses cannot be reached",
        host=host,
        fix="Start tailscaled without --tun=userspace-networking",
    )


def expired(host: str, peer: Peer) -> AccessError:
    """The host's node key expired, so the tailnet does not let it talk."""
    when = f" on {peer.key_expiry:%Y-%m-%d}" if peer.key_expiry else ""
    return AccessError(
        f"its Tailscale key expired{when}, so the tailnet does not reach it",
        host=host,
        fix="On that host run: sudo tailscale up --force-reauth; "
        "or disable key expiry for it in the admin console",
    )


def silent(host: str, port: int, netmap: Netmap, peer: Peer, seconds: float) -> TailnetError:
    """Nothing answered within the time."""
    where = f"no answer from {peer.address} port {port} within {seconds:.0f} s"
    if peer.online:
        return TailnetError(
            f"{where}, though the tailnet says that the host is online",
            host=host,
            found=f"path {peer.path}",
            fix=f"Try: tailscale ping {peer.name}. If that works, the tailnet's access rules or the host's "
            f"firewall keep port {port} from this machine" + _namesake_hint(netmap, peer),
        )
    seen = f", last seen {peer.last_seen:%Y-%m-%d %H:%M} UTC" if peer.last_seen else ""
    return TailnetError(
        f"{where}: the host is offline{seen}",
        host=host,
        fix="Switch it on, or run there: sudo systemctl start tailscaled" + _namesake_hint(netmap, peer),
    )


def not_connected(host: str, port: int, netmap: Netmap, peer: Peer, error: Exception) -> TailnetError:
    """The connection was refused, or ended before the login."""
    if isinstance(error, ConnectionRefusedError):
        if peer.host_keys:
            return TailnetError(
                f"{peer.address} refuses connections on port {port}",
                host=host,
                fix="On that host run: sudo systemctl restart tailscaled" + _namesake_hint(netmap, peer),
            )
        return AccessError(
            f"Tailscale SSH is off there and no SSH server answers on {peer.address} port {port}",
            host=host,
            fix="On that host run: sudo tailscale set --ssh" + _namesake_hint(netmap, peer),
        )
    return TailnetError(
        f"the connection to {peer.address} port {port} failed",
        host=host,
        found=_said(error),
        fix=f"Try: tailscale ping {peer.name}" + _namesake_hint(netmap, peer),
    )


def wrong_host_key(
    host: str, port: int, peer: Peer, error: BadHostKeyException, *, pinned: bool
) -> HostKeyError:
    """The host presents another key than the tailnet, or known_hosts, names."""
    found, expected = _fingerprint(error.key), _fingerprint(error.expected_key)
    if pinned:
        return HostKeyError(
            f"the SSH server at {peer.address} does not have the host key that the tailnet names",
            host=host,
            found=found,
            expected=expected,
            fix="Do not log in: somebody else may be answering. If the host was set up again just now, "
            "run there: sudo systemctl restart tailscaled",
        )
    known_as = known_hosts_name(host, port)
    return HostKeyError(
        "the host key is not the one in known_hosts",
        host=host,
        found=found,
        expected=expected,
        fix="Somebody else may be answering. If the host was set up again, run: "
        f"ssh-keygen -R {shlex.quote(known_as)}",
    )


def unknown_host_key(host: str, error: Exception) -> HostKeyError:
    """Strict checking is asked for, and known_hosts does not know the host."""
    return HostKeyError(
        "the host key is not in known_hosts, and strict checking is on",
        host=host,
        found=_said(error),
        fix=f"Compare and accept the key with: ssh {host}; or turn Tailscale SSH on there: "
        "sudo tailscale set --ssh",
    )


def check_not_done(host: str, banner: str, seconds: float) -> AccessError:
    """The tailnet's policy wants a person to confirm in a browser, and nobody did."""
    return AccessError(
        f"the tailnet's policy asks for a check in the browser, and it was not done within {seconds:.0f} s",
        host=host,
        found=banner,
        fix="Open that address while connecting, or let the policy's SSH rule say `accept`",
    )


def no_login_answer(host: str, banner: str, seconds: float) -> TailnetError:
    """The server took the connection and then did not decide about the login."""
    return TailnetError(
        f"the SSH server did not answer the login within {seconds:g} s",
        host=host,
        found=banner or None,
        fix="Run again; if it stays so, run on that host: sudo systemctl restart tailscaled",
    )


def denied(
    host: str, user: str, error: Exception, *, banner: str, accepts: Sequence[str], pinned: bool
) -> AccessError:
    """The login was refused."""
    if pinned:
        return AccessError(
            f"the tailnet's policy does not permit to log in as {user}",
            host=host,
            found=banner or _said(error),
            fix="Allow it in the SSH rules of the policy, or set ssh_user to a user who may",
        )
    offered = f"; it accepts {', '.join(accepts)}" if accepts else ""
    return AccessError(
        f"the SSH server refused the login as {user}",
        host=host,
        found=f"{banner or _said(error)}{offered}",
        fix="Set ssh_user and ssh_key for it, or turn Tailscale SSH on there: sudo tailscale set --ssh",
    )


def lost(host: str, peer: Peer | None, error: Exception | None = None) -> OSError:
    """The connection ended while a command ran; pyinfra counts an OSError against this host alone."""
    where = f" to {peer.address}" if peer else ""
    why = f" ({_said(error)})" if error is not None and _said(error) else ""
    return OSError(
        f"{host}: the connection{where} was lost while a command ran{why}; whether it finished is not known"
    )


def _namesake_hint(netmap: Netmap, peer: Peer) -> str:
    others = netmap.namesakes(peer)
    if not others:
        return ""
    listed = ", ".join(f"{other.dns_name or other.name} at {other.address}" for other in others)
    return f". Another machine also calls itself {peer.host_name}: {listed}"


def _fingerprint(key: PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
