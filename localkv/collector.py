"""Python's collector of cyclic garbage, kept from work that makes objects by the hundred thousand and leaves none behind.

Why: importing torch and transformers and loading the starter model takes 2.5 s without it and 3.1 with it [measured]: it looks
through all that is there again and again, and all of that is needed. Thread: any; the collector is one for the whole process, so
only the engine's start does this, not what may overlap.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_collected() -> Iterator[None]:
    """A block in which no garbage is looked for; afterwards it is again, if it was before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
