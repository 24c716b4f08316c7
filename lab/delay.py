"""A slow link without the kernel's help: frames are held back for a while between two interfaces.

Runs in the namespace of the bridge, as `python -m lab.delay PORT TAP SECONDS`: between PORT, the outer end of
a host's link, and TAP, which takes its place on the bridge. Each direction is delayed by the same time, so a
round trip takes twice as much longer. Nothing is lost, reordered or slowed down otherwise.

Frames are passed on with the kernel's notes about them (the virtio header: checksums still to be made,
segments still to be cut), since a host counts on its interface for these.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque

_ALL_PROTOCOLS = 0x0003
_SOL_PACKET = 263
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_TUNSETIFF = 0x400454CA
_TAP = 0x0002
_WITHOUT_PACKET_INFORMATION = 0x1000
_WITH_VIRTIO_HEADER = 0x4000
_LARGEST_FRAME = 1 << 17


def open_port(name: str) -> int:
    """A descriptor for the frames that come out of an interface, and into which frames can be written."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, 0))
    port.setblocking(False)
    return port.detach()


def open_tap(name: str) -> int:
    """The same for a tap interface that is there already."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _TAP | _WITHOUT_PACKET_INFORMATION | _WITH_VIRTIO_HEADER
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return tap


def pass_on(one: int, other: int, seconds: float) -> None:
    """Move frames between two descriptors for ever, each `seconds` after it came."""
    opposite = {one: other, other: one}
    held: dict[int, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}
    while True:
        due = min((queue[0][0] for queue in held.values() if queue), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        ready, _, _ = select.select([one, other], [], [], wait)
        now = time.monotonic()
        for source in ready:
            held[source].extend((now + seconds, frame) for frame in _waiting(source))
        for source, queue in held.items():
            while queue and queue[0][0] <= now:
                _, frame = queue.popleft()
                try:
                    os.write(opposite[source], frame)
                except OSError:
                    continue  # the other end is down or full: a link loses what it cannot carry


def _waiting(source: int) -> list[bytes]:
    """The frames that can be read now."""
    frames = []
    try:
        while frame := os.read(source, _LARGEST_FRAME):
            frames.append(frame)
    except BlockingIOError:
        pass  # no more of them
    except OSError as error:
        if error.errno != errno.ENETDOWN:  # the interface is not down, but gone
            raise SystemExit(f"a link's end is gone: {error.strerror}") from None
    return frames


if __name__ == "__main__":
    pass_on(open_port(sys.argv[1]), open_tap(sys.argv[2]), float(sys.argv[3]))
