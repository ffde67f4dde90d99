"""The error of a policy that breaks the contract."""

from __future__ import annotations

from wattkeeper.policies.errors import WattkeeperError


class ContractBreach(WattkeeperError):
    """A policy, or its config, does not keep the contract.

    Attributes:
        message: What was found, and what is allowed.
        method: The method that did it; empty: it is about the config.
        line: Line of the policy's file, if it is known.
    """

    def __init__(self, message: str, method: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.method, self.line = message, method, line


def require(kept: bool, message: str, method: str = "", *shown: object) -> None:
    """Check a rule of the contract.

    Args:
        kept: Whether it is kept.
        message: What was found, and what is allowed; a format where values are shown.
        method: The method that is asked.
        shown: The values.

    Raises:
        ContractBreach: If it is not kept.
    """
    if not kept:
        raise ContractBreach(message.format(*shown) if shown else message, method)
