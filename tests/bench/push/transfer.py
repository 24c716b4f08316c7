"""tailtrain's own transfer, as deploys/distribute.py does it, without the deploy around it.

    python -m tests.bench.push.transfer FOLDER_THERE HOST=FOLDER_HERE ...

Prints one line of JSON: the seconds from before the first login until the last host said that every file is
hashed, flushed to its disk and in place; and by host, how many of them it itself counted.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - what is imported before gevent's patches stays as it was
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402
from pyinfra.api.config import Config  # noqa: E402
from pyinfra.api.connect import connect_all, disconnect_all  # noqa: E402
from pyinfra.api.inventory import Inventory  # noqa: E402
from pyinfra.api.state import State  # noqa: E402

from tailtrain.data.send import SentFile  # noqa: E402
from tailtrain.fleet import transfer  # noqa: E402


def main() -> int:
    """Send each host its folder."""
    there, *pairs = sys.argv[1:]
    folders = {host: Path(folder) for host, _, folder in (pair.partition("=") for pair in pairs)}
    state = State(Inventory(([f"@tailscale/{host}" for host in folders], {"ssh_user": "root"})), Config())
    # As a deploy knows them: from the manifest, without reading them.
    paths = {
        host: [
            (SentFile(path.name, path.name, path.stat().st_size), path) for path in sorted(folder.iterdir())
        ]
        for host, folder in folders.items()
    }
    started = time.perf_counter()
    connect_all(state)
    jobs = {
        host.name: gevent.spawn(transfer.send_paths, host, there, paths[host.name], owner="root")
        for host in state.inventory.get_active_hosts()
    }
    gevent.joinall(jobs.values(), raise_error=True)
    seconds = time.perf_counter() - started
    receipts = {name: job.value.seconds for name, job in jobs.items()}
    disconnect_all(state)
    print(json.dumps({"seconds": seconds, "receipts": receipts}))
    return 0 if receipts.keys() == folders.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
