"""The learning rate was changed after a finished run; asked for with --diff."""

from tests.plans.situations import Situation

SITUATION = Situation().applied().with_settings(training={"learning_rate": 0.001}).shown_diff()
