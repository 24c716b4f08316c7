"""Membership by gossip: who is alive, how healthy, how far away, and who averages with whom."""
