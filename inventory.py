"""The machines that train. A host is its tailnet name and its hardware; adding one is one line.

A host may also say `ssh_user` and `_sudo` (a login user with sudo), `reserve_cores` and `reserve_ram_gb`
(kept free for whoever works on that machine), and `nice` (5 if not said; 19 gives way to everything else).
"""

primary = [
    ("@tailscale/qfox", {"cores": 16, "ram_gb": 32, "gpu": True, "storage_gb": 800}),
]

compute = [
    ("@tailscale/architect", {"cores": 8, "ram_gb": 16, "storage_gb": 500}),
    ("@tailscale/judge", {"cores": 4, "ram_gb": 8, "storage_gb": 200}),
    ("@tailscale/ip-172-31-25-81", {"cores": 2, "ram_gb": 4, "storage_gb": 100}),
    ("@tailscale/netcup-router", {"cores": 4, "ram_gb": 8, "storage_gb": 100}),
    ("@tailscale/racknerd-510bd9c", {"cores": 2, "ram_gb": 4, "storage_gb": 100}),
]
