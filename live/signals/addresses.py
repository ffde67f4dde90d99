"""Addresses of web services."""

from typing import Final
from urllib.parse import urlsplit

from wattkeeper.policies.errors import InputError

MAPS: Final = "https://api.electricitymaps.com"
WATTTIME: Final = "https://api.watttime.org"


def check_address(address: str) -> str:
    """An address without the slash at its end.

    Raises:
        InputError: If it is no address of a web service, or has secrets in it.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"address: found {address!r}; an address as https://HOST is needed")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InputError(
            "address: it has a user, a query or a fragment; secrets belong into the environment"
        )
    return address.rstrip("/")
