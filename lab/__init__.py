"""Real hosts and a real tailnet on one machine: the place where everything else is tried.

Each host of an inventory is a whole Debian under systemd-nspawn, with its own network namespace, tailscaled
and Tailscale SSH, limited to its share of this machine by cgroups. They are joined by a bridge in a namespace
of the lab's own, from which no route leads out, and coordinated by a server built around Tailscale's test
control plane. The control side is one more namespace with its own tailscaled; `lab exec` runs commands there.

    settings, inventory, shares      what is wanted, and what everything is called
    cache, base, binaries, environment   what hosts are made from, kept under what it was made from
    cgroups, network, processes      the kernel's part
    hosts, tailnet, state            one host; the tailnet; what is remembered between commands
    bringup, lab, status, cli        the lab as a whole

Nothing is found by a process's name: a lab's processes are those in its cgroups, whatever was killed.
"""
