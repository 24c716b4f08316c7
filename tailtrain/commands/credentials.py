"""What the help of a command says about credentials for Tailscale's admin API."""

from __future__ import annotations

from tailtrain.tailnet.credentials import API_KEY, CLIENT_ID, CLIENT_SECRET, TAILNET


def credentials_help(scope: str) -> str:
    """The end of a command's help; click leaves its lines as they are.

    Args:
        scope: what an OAuth client needs.
    """
    return f"""\b
Credentials come from the environment, and are shown nowhere:
  {API_KEY:<30} an API access token, or both of
  {CLIENT_ID:<30} the id of an OAuth client
  {CLIENT_SECRET:<30} and its secret; scope {scope}
  {TAILNET:<30} where it is not the credentials' own
"""
