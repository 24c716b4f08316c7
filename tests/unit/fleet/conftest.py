"""Tests that run commands on hosts do so on the stand-in for a tailnet, and as pyinfra does."""

from __future__ import annotations

from tests.unit.tailnet.conftest import pytest_runtest_protocol, tailnet

__all__ = ["pytest_runtest_protocol", "tailnet"]
