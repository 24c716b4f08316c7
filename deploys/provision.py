"""Prepare hosts: packages, account, folders, the worker's environment and code, configuration, units."""

from pyinfra.operations import apt

from tailtrain.fleet import operations, serf, session

if session.anywhere("mask"):
    serf.mask(name="Provision: Debian's own Serf unit")
if session.anywhere("packages"):
    apt.packages(
        name="Provision: packages",
        packages=list(session.here().missing_packages),
        no_recommends=True,
        update=True,
    )
if session.anywhere("account"):
    operations.account(name="Provision: account and folders")
if session.anywhere("environment"):
    operations.environment(name="Provision: worker environment")
if session.anywhere("code"):
    operations.code(name="Provision: worker code")
if session.anywhere("identity"):
    operations.identity(name="Provision: peer identity")
if session.anywhere("credentials"):
    operations.credentials(name="Provision: storage credentials")
if session.anywhere("gossip"):
    serf.secrets(name="Provision: gossip key and Serf's configuration")
if session.anywhere("files"):
    operations.files(name="Provision: configuration and units")
if session.anywhere("serve"):
    operations.serve(name="Provision: chunk server")
if session.anywhere("agent"):
    serf.agent(name="Provision: membership")
if session.anywhere("retire"):
    serf.retire(name="Provision: membership that is not needed any more")
