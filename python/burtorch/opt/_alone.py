"""One call at a time on a method."""

from __future__ import annotations

from threading import RLock

from burtorch._core import BusyError


class Alone:
    """`with alone:` is a BusyError during a block of another thread; callbacks in a block may begin others."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise BusyError("this method is in use by another call; wait until it has returned")

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
