"""Whether the disk is slow enough for a thread of its own to pay.

A commit on the loop's thread stops the loop for as long as the disk takes; a thread costs two hops of some 50
µs, and waits for the GIL when the loop is busy. The loop's own commits are therefore measured as they are,
smoothed, with outliers (a checkpoint) cut. The thread's measure is only an upper bound, because it includes
that waiting, so the way back is by count: a slow disk never shows several quick commits.
"""

from typing import Final

SLOW_SECONDS: Final = 0.001
QUICK_SECONDS: Final = 0.0005
QUICK_NEEDED: Final = 8
OUTLIER_SECONDS: Final = 0.004
WEIGHT: Final = 0.125


class Pace:
    def __init__(self) -> None:
        self.slow = False
        self._average = 0.0
        self._quick = 0

    def took(self, seconds: float) -> None:
        if self.slow:
            self._quick += seconds < QUICK_SECONDS
            if self._quick >= QUICK_NEEDED:
                self.slow, self._average = False, 0.0
        else:
            self._average += (min(seconds, OUTLIER_SECONDS) - self._average) * WEIGHT
            if self._average > SLOW_SECONDS:
                self.slow, self._quick = True, 0
