"""A host joins that reaches one of the others by a relay only, and another one not at all."""

from tests.plans.situations import SEVENTH, Situation

SITUATION = (
    Situation()
    .stored("googleDriveTopological")
    .applied(state="training", round_number=5, unit="active")
    .add(SEVENTH)
    .path(SEVENTH.hostname, "qfox", "relayed")
    .path(SEVENTH.hostname, "architect", "")
)
