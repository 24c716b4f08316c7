"""This node among its peers: announcements, averagings, downloads (all of hivemind is here)."""
