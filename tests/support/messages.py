"""Messages are checked by the facts that they state, not by their sentences."""

from __future__ import annotations


def assert_states(message: str, *facts: object) -> None:
    """Check that a message states facts: places, names, values found and values allowed.

    Args:
        message: All of it.
        facts: Each stands in it as its text.
    """
    missing = [str(fact) for fact in facts if str(fact) not in message]
    assert not missing, f"{missing} not in: {message}"


def drop_signs_of_life(errors: str) -> str:
    """What a command wrote to its standard error, without the lines that say that it is at work.

    It writes them after so many seconds of silence, which a busy host reaches.
    """
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("wattkeeper: at work for "))
