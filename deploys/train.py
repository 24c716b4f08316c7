"""All of it: prepare hosts, distribute data, train, aggregate on the primary, validate on all, clean up.

Each line is a deploy of its own. Between them stands a gate: who failed is left out, and without the primary
or two thirds of the nodes nothing goes on.
"""

from pyinfra import local

local.include("deploys/provision.py")
local.include("deploys/distribute.py")
local.include("deploys/train_workers.py")
local.include("deploys/aggregate.py")
local.include("deploys/validate.py")
local.include("deploys/clean.py")
