"""How many random examples a costly test takes."""

from hypothesis import settings


def examples(thorough: int) -> int:
    """A tenth of a number, and at least the profile's own; all in the profile `thorough`."""
    own = settings().max_examples
    is_thorough = own >= settings.get_profile("thorough").max_examples
    return thorough if is_thorough else max(own, thorough // 10)
