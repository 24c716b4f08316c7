"""Six hosts with nothing on them, and a folder of Google Drive that lacks one pack."""

from tests.plans.situations import Situation

SITUATION = Situation().stored("googleDriveTopological", uploads={"5e1f0000": 4_290_000})
