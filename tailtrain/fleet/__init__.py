"""The fleet: one probe per host, pyinfra operations, phase gates, lock and receipts."""
