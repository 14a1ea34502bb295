"""What the subjects of `free_threaded.py` share: threads, and the comparison with the model."""

from __future__ import annotations

import threading
from collections.abc import Callable

THREADS = 8


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs in a thread each; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def expect(found: object, expected: object) -> None:
    """Raise where a result is not the model's."""
    if found != expected:
        raise AssertionError(f"{found} instead of {expected}")
