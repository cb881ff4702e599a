"""localkv: chat with a local model; every conversation's KV cache stays within reach."""

__version__ = "0.1.0"
