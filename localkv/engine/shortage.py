"""Memory that runs out in a forward: how that is recognised, whatever device and library say so.

Imports torch. Knows errors and nothing of models. A CUDA error that is no allocation's (an illegal access, say) is not meant:
after one nothing in the process can be trusted.
"""

import errno
import traceback

import torch

SAYINGS = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory")
"""What torch's allocators, its BLAS and the system say, in lower case."""

CANDIDATES = (RuntimeError, MemoryError, OSError)
"""What an allocation that fails may raise; most RuntimeErrors are something else."""


def is_shortage(error: BaseException) -> bool:
    """Whether `error` says that there was no memory to be had."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error)
    if "CUBLAS_STATUS_ALLOC_FAILED" in text:  # a handle or its workspace could not be had; the next call may find room
        return True
    return isinstance(error, RuntimeError) and "CUDA error" not in text and any(saying in text.lower() for saying in SAYINGS)


def let_go(error: BaseException) -> None:
    """Empty the frames that `error` and what led to it came through.

    An error keeps them, and they keep every tensor of the forward that failed: nothing of it could be given back or used for the
    next try as long as the error, or one raised from it, is being dealt with.
    """
    seen: set[int] = set()
    chain: BaseException | None = error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
