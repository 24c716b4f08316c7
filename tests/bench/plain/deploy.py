"""The state that tailtrain's deploy leaves on a host, written with pyinfra's own operations.

Each host's data names what belongs on it; `tests.bench.same_state` writes that down.
"""

from __future__ import annotations

from pathlib import Path

from pyinfra import host
from pyinfra.facts.files import File
from pyinfra.facts.server import Command
from pyinfra.operations import apt, files, server, systemd

wanted = host.data.wanted
account = wanted["account"]

apt.packages(packages=wanted["packages"])
server.group(group=account, system=True)
server.user(  # noqa: S604 - the login shell of an account, no command
    user=account,
    group=account,
    home=wanted["home"],
    shell="/usr/sbin/nologin",
    system=True,
    create_home=False,
)
for path, owner, mode in wanted["folders"]:
    files.directory(path=path, user=owner, group=owner, mode=mode)
for marker, command in wanted["built"]:
    if not host.get_fact(File, path=marker):
        server.shell(commands=[command])
files.file(path=wanted["identity"], user=account, group=account, mode="600")
for source, path, group, mode in wanted["files"]:
    files.put(src=source, dest=path, user="root", group=group, mode=mode)

# One command hashes all chunks, instead of one for each; only what it complains about is sent.
sums = Path(wanted["sums"]).read_text()
complaints = (
    host.get_fact(Command, command=f"sha256sum --check --quiet 2>&1 <<'END' || true\n{sums}END") or ""
)
for line in complaints.splitlines():
    if ": FAILED" in line:
        path = line.partition(": FAILED")[0]
        files.put(
            src=f"{wanted['sources']}/{Path(path).name}", dest=path, user=account, group=account, mode="640"
        )

systemd.service(service=wanted["unit"], enabled=True, running=None)
