"""Standard streams line by line, for a chat without a screen. Thread: main."""

from dataclasses import dataclass
from typing import TextIO

from localkv.commands.output import for_stream, say_to

PROMPT = "you> "
CONTINUED = "...> "


@dataclass(slots=True)
class Console:
    """Where a person writes, where they read, and where they are told about the program."""

    source: TextIO
    out: TextIO
    errors: TextIO

    def tell(self, *lines: str) -> None:
        """Lines for the person."""
        for line in lines:
            print(for_stream(line, self.out), file=self.out, flush=True)

    def note(self, *lines: str) -> None:
        """Lines about the program: to stderr."""
        for line in lines:
            say_to(self.errors, line)

    def agrees(self, question: str) -> bool:
        """Whether the person says yes; where none can be asked, what was said is meant."""
        return not self.source.isatty() or (self.read(question) or "").strip().lower() in {"y", "yes"}

    def read(self, prompt: str = PROMPT) -> str | None:
        """The next message: lines that end in a backslash go on. None at the end of the input."""
        lines: list[str] = []
        while True:
            self.out.write(CONTINUED if lines else prompt)
            self.out.flush()
            line = self.source.readline()
            if not line:
                return "\n".join(lines) if lines else None
            text = line.removesuffix("\n")
            if text == line or not text.endswith("\\"):
                return "\n".join([*lines, text])
            lines.append(text[:-1])
