"""Prepare hosts: packages, account, folders, the worker's environment and code, configuration, units."""

from pyinfra.operations import apt

from tailtrain.fleet import operations, session

here = session.here()

if here.does("packages"):
    apt.packages(
        name="Provision: packages",
        packages=list(here.missing_packages),
        no_recommends=True,
        update=True,
    )
if here.does("account"):
    operations.account(name="Provision: account and folders")
if here.does("environment"):
    operations.environment(name="Provision: worker environment")
if here.does("code"):
    operations.code(name="Provision: worker code")
if here.does("identity"):
    operations.identity(name="Provision: peer identity")
if here.does("files"):
    operations.files(name="Provision: configuration and units")
