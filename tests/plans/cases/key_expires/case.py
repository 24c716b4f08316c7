"""A relayed path, a key that expires soon, little disk: what preflight says."""

from tailtrain.planning.observed import TailnetState
from tests.plans.situations import GIB, Situation

EXPIRY = "its Tailscale key expires on 2026-11-05, in 3 days"
SITUATION = Situation()
SITUATION.on("judge", path="relayed via fra", tailnet=TailnetState("2026-11-05", 3.2, (EXPIRY,)))
SITUATION.hardware("netcup-router", disk_free_bytes=GIB, clock_skew_seconds=1.4)
