"""Several hosts cannot take part, for reasons of their own: all of them are told at once."""

from tests.plans.situations import Situation

SITUATION = (
    Situation()
    .hardware("judge", architecture="aarch64")
    .hardware("netcup-router", clock_skew_seconds=-40.0)
    .hardware("racknerd-510bd9c", disk_free_bytes=0)
    .on("architect", superuser=False)
)
