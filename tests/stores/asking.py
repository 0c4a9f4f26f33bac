"""Threads that ask all the while something else is done to what they ask."""

import threading
from contextlib import contextmanager


@contextmanager
def asking(*asks):
    """Call each of these in a thread, again and again as long as the block lasts; yields the errors, which end one.

    However the block ends, they end: a thread that went on would keep the process from its end.
    """
    failed, done = [], threading.Event()

    def ask_on(ask):
        while not done.is_set():
            try:
                ask()
            except Exception as error:  # any error at all is one too many
                failed.append(error)
                return

    threads = [threading.Thread(target=ask_on, args=(ask,), daemon=True) for ask in asks]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a question has no answer after 60 s"
