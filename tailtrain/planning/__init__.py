"""Pure planning: shares, placement, per-node configuration, actions, and the plan as text."""
