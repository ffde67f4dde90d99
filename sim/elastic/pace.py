"""Time of a training beside slow nodes, against the time that it takes at full pace."""

from __future__ import annotations

from bisect import bisect_right


class PaceClock:
    """What is done over time, in s at full pace; between changes of the pace it grows evenly.

    Args:
        now_s: When it begins, s.
        factor: Time that anything takes over that at full pace, from then on.
        done_s: What was done before, s.
    """

    def __init__(self, now_s: float, factor: float, done_s: float = 0.0) -> None:
        self._since_s = [now_s]
        self._done_s = [done_s]
        self._factors = [factor]

    @property
    def is_slow(self) -> bool:
        """Whether it ever was not at full pace."""
        return self._factors != [1.0]

    def change(self, now_s: float, factor: float) -> None:
        """Go on at another pace."""
        done_s = self.done_s(now_s)
        self._since_s.append(now_s)
        self._done_s.append(done_s)
        self._factors.append(factor)

    def done_s(self, now_s: float) -> float:
        """What is done at a time since the last change, in s at full pace."""
        return self._done_s[-1] + (now_s - self._since_s[-1]) / self._factors[-1]

    def time_s(self, done_s: float) -> float:
        """When so much is or was done; at the present pace, where it is not yet."""
        at = max(0, bisect_right(self._done_s, done_s) - 1)
        return self._since_s[at] + (done_s - self._done_s[at]) * self._factors[at]

    def span_s(self, end_s: float, length_s: float) -> float:
        """How long a part took that ended when `end_s` was done; both in s at full pace."""
        span_s, left_s = 0.0, length_s
        for at in range(len(self._factors) - 1, 0, -1):
            part_s = min(left_s, max(0.0, end_s - self._done_s[at]))
            span_s += part_s * self._factors[at]
            left_s -= part_s
            end_s -= part_s
        return span_s + left_s * self._factors[0]
