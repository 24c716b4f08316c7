"""Six real hosts and a real tailnet on one machine."""
