"""Tables of measured trainings that are shipped, each in the format ``profiles``."""

from pathlib import Path

from wattkeeper.traces.trace import Trace

SUFFIX = ".csv"


def names() -> tuple[str, ...]:
    """The names of all shipped tables, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob(f"*{SUFFIX}")))


def read(name: str) -> Trace:
    """The profiles of a shipped table."""
    from wattkeeper.traces.formats.profiles import read as read_profiles

    return read_profiles([Path(__file__).with_name(f"{name}{SUFFIX}")])
