"""How many random examples a costly test takes."""

from hypothesis import settings


def examples(thorough: int, few: int | None = None) -> int:
    """All in the profile `thorough`; otherwise `few`, or a tenth and at least the profile's own."""
    own = settings().max_examples
    if own >= settings.get_profile("thorough").max_examples:
        return thorough
    return max(own, thorough // 10) if few is None else few
