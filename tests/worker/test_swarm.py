"""A node among its peers: identity, clock, what is refused from strangers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailtrain.fleet.identity import new_identity

ROOT = Path(__file__).parents[2]
MakeFleet = Callable[..., Any]


def _run(script: str, *arguments: str) -> Any:
    """Run a script in a process of its own; the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_daemon_reports_the_peer_id_that_was_computed_beforehand(tmp_path: Path) -> None:
    key, peer_id = new_identity()
    path = tmp_path / "identity.key"
    path.write_bytes(key)
    script = (
        "import asyncio, json, sys\n"
        "from hivemind.p2p import P2P\n"
        "async def main():\n"
        "    p2p = await P2P.create(identity_path=sys.argv[1])\n"
        "    print(json.dumps(str(p2p.peer_id)))\n"
        "    await p2p.shutdown()\n"
        "asyncio.run(main())\n"
    )
    assert _run(script, str(path)) == peer_id


_LONE = """
import json, sys, time
from pathlib import Path
import torch
from tailtrain.errors import TailtrainError
from tailtrain.worker.config import load_config
from tailtrain.worker.reading.supply import load_shards
from tailtrain.worker.peers.swarm import open_swarm
config = load_config(Path(sys.argv[1]))
"""


def test_an_address_that_is_not_this_nodes_is_said(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2)
    fleet.configs[0]["coordination"]["address"] = "192.0.2.7"  # reserved for documentation (RFC 5737)
    script = _LONE + (
        "try:\n"
        "    open_swarm(config, 10, load_shards(config), lambda: ({}, []))\n"
        "except TailtrainError as error:\n"
        "    print(json.dumps(str(error)))\n"
    )
    message = _run(script, str(fleet.write_config(0)))
    assert "n0: 192.0.2.7:45001: cannot listen for peers" in message


def test_a_peers_clock_is_compared_and_its_state_loads_to_the_bit(make_fleet: MakeFleet) -> None:
    """Two swarms in one script, each with processes of its own; a third that is a stranger gets nothing."""
    fleet = make_fleet(3)
    stranger = fleet.configs[2]
    for config in fleet.configs[:2]:  # the third is not in their configurations
        config["coordination"]["peers"] = [p for p in config["coordination"]["peers"] if p["node"] != "n2"]
        for domain in config["data"]:
            del domain["others"]["n2"]
    script = _LONE + (
        "configs = [load_config(Path(path)) for path in sys.argv[1:4]]\n"
        "vectors = [torch.full((1000,), float(i)) for i in range(3)]\n"
        "def opened(i):\n"
        "    shards = load_shards(configs[i])\n"
        "    return open_swarm(configs[i], 1000, shards, lambda: ({'round': i}, [vectors[i]]))\n"
        "swarms = [opened(i) for i in range(3)]\n"
        "for swarm in swarms:\n"
        "    swarm.introduce(['n0', 'n1'])\n"
        "time.sleep(2)\n"
        "offset = swarms[1].clock_of('n0').offset\n"
        "metadata, (tensor,) = swarms[1].download('n0')\n"
        "try:\n"
        "    swarms[2].download('n0')\n"
        "    refused = ''\n"
        "except TailtrainError as error:\n"
        "    refused = str(error)\n"
        "print(json.dumps([offset, metadata, bool(torch.equal(tensor, vectors[0])), refused]), flush=True)\n"
        "for swarm in swarms:\n"
        "    swarm.close()\n"
    )
    paths = [str(fleet.write_config(index)) for index in range(3)]
    assert stranger["node"] == "n2"
    offset, metadata, equal, refused = _run(script, *paths)
    assert abs(offset) < 0.5
    assert metadata == {"round": 0}
    assert equal
    assert "n0: a peer's state did not arrive" in refused


def test_memory_beyond_the_model_is_bounded(make_fleet: MakeFleet) -> None:
    """A node's main process keeps at most ten times the weights at its peak, a commit included."""
    fleet = make_fleet(1, quorum=1)
    script = (
        "import json, resource, sys, time, dataclasses\n"
        "from pathlib import Path\n"
        "from tailtrain.worker.config import load_config\n"
        "from tailtrain.worker.ledger import Contribution, Entry\n"
        "from tailtrain.worker.node_state import NodeState\n"
        "from tailtrain.worker.reading.supply import Supply\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "config = load_config(Path(sys.argv[1]))\n"
        "def work(layers):\n"
        "    model = dataclasses.replace(config.model, width=512, layers=layers)\n"
        "    changed = dataclasses.replace(config, model=model)\n"
        "    state = NodeState(changed, Supply(changed))\n"
        "    state.roll_back()\n"
        "    count = [2]\n"
        "    def stopping():\n"
        "        count[0] -= 1\n"
        "        return count[0] < 0\n"
        "    done = state.trainer.train_until(time.time() + 60, 0.0, stopping)\n"
        "    base, ones = state.commit.digest, [1.0] * 5\n"
        "    own = Contribution('n0', 0, Entry(), done.tokens, 0, *ones, base, {}, {}, {})\n"
        "    state.average_into({'n0': own}, state.provisional(), 1.0)\n"
        "    state.save()\n"
        "    return state.commit.weights.numel() * 4\n"
        "small, before = work(1), peak()\n"
        "large, after = work(8), peak()\n"
        "print(json.dumps([small, large, after - before]))\n"
    )
    small, large, growth = _run(script, str(fleet.write_config(0)))
    assert growth < 10 * large
    assert large > 7 * small


@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_ends_when_a_process_of_its_hivemind_does(make_fleet: MakeFleet, which: int) -> None:
    """Its unit then starts it again; before, it would have waited for an answer without end."""
    fleet = make_fleet(2, round_seconds=1.0)
    fleet.start()
    fleet.until(lambda: len(fleet.progress(0)) > 0, 60, "they average")
    os.kill(_hivemind(fleet.processes[1].pid)[which], signal.SIGKILL)
    assert fleet.wait(60, 1) == [1]
    assert "hivemind" in fleet.status(1)["message"]
    assert fleet.status(1)["state"] == "failed"


def _hivemind(worker: int) -> list[int]:
    """A worker's processes of hivemind in the order of their start: the table's, the averager's."""
    children = [int(pid) for pid in Path(f"/proc/{worker}/task/{worker}/children").read_text().split()]
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    forks = sorted(pid for pid, said in words.items() if b"tailtrain.worker" in said)
    assert len(forks) == 2, words
    return forks
