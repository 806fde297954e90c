"""Long waits in C that Ctrl-C can end."""

from __future__ import annotations

import threading
from typing import Callable, List, TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T], undo: Callable[[T], object]) -> T:
    """`call()`. Python tells the main thread of signals only between its own instructions, so there another thread
    makes the call. If KeyboardInterrupt ends the wait, that thread goes on until the call's own deadline, and
    `undo` gets what came too late."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    lock = threading.Lock()
    given_up = False
    results: List[T] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # the waiting thread raises it
            errors.append(error)
            return
        with lock:
            if not given_up:
                results.append(result)
                return
        undo(result)

    thread = threading.Thread(target=run, daemon=True, name="shunt-wait")
    thread.start()
    try:
        thread.join()
    except BaseException:
        with lock:
            given_up = True
        for result in results:
            undo(result)
        raise
    if errors:
        raise errors[0]
    return results[0]
