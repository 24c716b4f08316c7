"""This node among its peers: announcements, averagings, downloads (all of hivemind is here)."""

from tailtrain.worker.peers.later import load_later

# hivemind imports it for a division of work that `averager` replaces: 20 MB, and seconds on a small host.
load_later("scipy.optimize")
