"""After a run with a bucket the control machine is to send again: nodes need no credentials any more."""

from tests.plans.situations import Situation

SITUATION = Situation().stored("s3").applied().stored_nowhere()
