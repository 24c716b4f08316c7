"""The tailnet: netmap, the @tailscale connector, preflight. The only place that knows Tailscale."""
