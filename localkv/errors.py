"""Every failure localkv names itself, as one tree.

    LocalKVError
    ├── ConfigError            a setting that cannot be used: file, key, value, nearest name
    ├── PathError              a directory that cannot be made, read, or trusted
    ├── StoreError             the cache on SSD
    │   ├── BadRecord          a record file that must not be used; carries the fallback reason
    │   ├── CacheClosed        the model was let go of while its cache was asked about
    │   ├── StoreLocked        another engine holds the store
    │   └── NoSpace            a budget or the free-space floor forbids the write
    ├── ConversationError      the database of conversations
    │   ├── UnknownConversation
    │   ├── ConversationExists
    │   ├── UnusableName
    │   ├── SchemaTooNew
    │   ├── ConversationsLost  the database is missing or damaged, and has backups
    │   └── NotWritable        the database refuses writes; the answer is shown as UNSAVED
    ├── ModelError             a model that cannot be found, fetched or loaded
    │   ├── ModelMissing
    │   ├── ModelGated
    │   ├── ModelTooBig        carries needed and available bytes
    │   └── FetchFailed
    ├── SearchRefused          a filter of a search that is not understood; carries its name
    ├── UnusableFile           a file that cannot be attached to a message; carries its path
    ├── TemplateError          the chat template refuses these messages
    ├── ContextFull            carries prompt tokens and the limit
    ├── ImportRefused          a file, or one of its conversations, that is not taken in
    ├── ExportRefused          a file that cannot be written
    ├── ClipboardRefused       a program did not take what was to be copied
    ├── Cancelled              the person stopped it
    ├── TooLittleMemory        carries needed and available bytes; nothing was begun
    ├── OutOfMemory            a forward found no memory, after all that can be given back was
    └── EngineError            the engine process
        ├── EngineUnavailable  it could not be started or reached
        ├── EngineDied         it ended in the middle of a request
        └── ProtocolError      a frame that is too large or not understood

Messages say what happened, to what, and what to do. Errors carry the values they speak of.
"""


class LocalKVError(Exception):
    """Any failure that localkv names itself; `str()` is a sentence for the user."""


class ConfigError(LocalKVError):
    """A setting that cannot be used."""


class PathError(LocalKVError):
    """A directory or file that cannot be made, read or trusted."""


class StoreError(LocalKVError):
    """The cache on SSD failed; the chat goes on without that tier."""


class BadRecord(StoreError):
    """A record that must not be used; `reason` is one of the closed list of fallback reasons."""

    def __init__(self, name: str, reason: str, detail: str) -> None:
        super().__init__(f"record {name[:12]} is not usable ({reason}): {detail}; it will be computed again")
        self.name = name
        self.reason = reason
        self.detail = detail


class CacheClosed(StoreError):
    """The model was let go of while its cache was asked about."""


class StoreLocked(StoreError):
    """Another engine holds the store."""


class NoSpace(StoreError):
    """A budget or the free-space floor forbids this write."""

    def __init__(self, what: str, needed_bytes: int, allowed_bytes: int) -> None:
        super().__init__(f"no room for {what}: {needed_bytes:,} bytes needed, {allowed_bytes:,} allowed")
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes


class ConversationError(LocalKVError):
    """The database of conversations refused."""


class UnknownConversation(ConversationError):
    """No conversation has this name."""


class ConversationExists(ConversationError):
    """A conversation of this name exists already."""


class UnusableName(ConversationError):
    """A text that cannot be the name of a conversation."""


class SchemaTooNew(ConversationError):
    """The database was written by a newer localkv."""


class ConversationsLost(ConversationError):
    """The database is missing or damaged, and there are backups to go back to."""

    def __init__(self, what: str, way_back: str) -> None:
        super().__init__(f"{what}; {way_back}")
        self.what = what


class NotWritable(ConversationError):
    """The database refuses writes; what could not be saved is shown as UNSAVED."""


class SearchRefused(LocalKVError):
    """A filter of a search that is not understood."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


class ModelError(LocalKVError):
    """A model that cannot be found, fetched or loaded."""


class ModelMissing(ModelError):
    """No such model on this machine."""


class ModelGated(ModelError):
    """The hub wants a licence accepted or a token first."""


class ModelTooBig(ModelError):
    """Memory cannot hold the model."""

    def __init__(self, message: str, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class FetchFailed(ModelError):
    """A download that did not complete or is not what was asked for."""


class UnusableFile(LocalKVError):
    """A file that cannot be attached to a message."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f'"{path}" {reason}')
        self.path = path
        self.reason = reason


class TemplateError(LocalKVError):
    """The model's chat template refuses these messages."""


class ContextFull(LocalKVError):
    """The conversation does not fit the context."""

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"this conversation is {prompt_tokens:,} tokens long and the context holds {context_tokens:,}; "
            "start a new conversation, branch from an earlier message, or raise engine.context_tokens"
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class TooLittleMemory(LocalKVError):
    """A conversation whose state would not fit into memory."""

    def __init__(self, n_tokens: int, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(
            f"the state of these {n_tokens:,} tokens needs {needed_bytes >> 20:,} MiB more and {available_bytes >> 20:,} MiB are "
            "available, with everything given back that can be; close other programs, or go on in a shorter conversation"
        )
        self.n_tokens = n_tokens
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class OutOfMemory(LocalKVError):
    """A forward found no memory."""

    def __init__(self, n_tokens: int, position: int) -> None:
        super().__init__(
            f"memory ran out while the model read {n_tokens:,} tokens after {position:,} others, with everything given back that "
            "can be; what was said is kept: close other programs, take a smaller model, or go on in a shorter conversation"
        )
        self.n_tokens = n_tokens
        self.position = position


class ImportRefused(LocalKVError):
    """A file of conversations, or one of them, that is not taken in."""


class ExportRefused(LocalKVError):
    """A conversation cannot be written to a file."""


class ClipboardRefused(LocalKVError):
    """A program of this machine did not take what was to be copied."""


class Cancelled(LocalKVError):
    """The person stopped it."""


class EngineError(LocalKVError):
    """The engine process failed."""


class EngineUnavailable(EngineError):
    """The engine could not be started or reached."""


class EngineDied(EngineError):
    """The engine ended in the middle of a request."""


class ProtocolError(EngineError):
    """A frame that is too large or not understood."""
