"""What a word that is being written may become, offered in a few rows over the composer.

It is shown while there is something to offer and takes the keys that choose: up, down, tab, enter, esc. Everything else goes
on being text. It knows no store: `offers` says what a text may become. Thread: the UI's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from localkv.commands.registry import completions
from localkv.tui.glyphs import DRAWN, Glyphs
from localkv.tui.rows import Row, row
from localkv.tui.rowsview import RowsView
from localkv.tui.theme import Palette

ROWS = 6
"""More offers scroll."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that the text may become."""

    shown: str
    about: str
    text: str
    """The whole text once it is taken."""


KEYS = frozenset(("up", "down", "tab", "enter", "escape"))

Offers = Callable[[str], Sequence[Offer]]


def command_offers(text: str) -> list[Offer]:
    """The slash commands that `text` may become; none once a command is written whole and alone fits."""
    found = completions(text)
    if len(found) == 1 and text == f"/{found[0].slash}":
        return []
    return [Offer(each.usage, each.help, f"/{each.slash}" + " " * bool(each.arguments)) for each in found]


def all_offers(text: str) -> list[Offer]:
    """What the text before the cursor may become: a command, or with a file's name after "@" another one."""
    from localkv.tui.filenames import file_offers  # not needed for the first frame

    return command_offers(text) or file_offers(text)


class Completion(RowsView):
    """Offers, one of them marked or none."""

    DEFAULT_CSS = """
    Completion {
        height: auto; max-height: 6; display: none; background: $panel; padding: 0 1; scrollbar-gutter: stable;
    }
    Completion.-open { display: block; }
    """

    def __init__(
        self,
        palette: Palette,
        glyphs: Glyphs = DRAWN,
        offers: Offers = all_offers,
        *,
        id: str | None = None,  # noqa: A002  textual's
    ) -> None:
        super().__init__(id=id)
        self._palette = palette
        self._glyphs = glyphs
        self._offers = offers
        self.more: Offers = lambda _: ()
        """What a text may become for which there are no other offers. Enter takes none of these unless one was marked: a command
        with words after it can be done as it stands."""
        self._found: Sequence[Offer] = ()
        self._at = 0
        self._text = ""
        self._refused = ""
        """The text whose offers were turned down with esc."""

    @property
    def is_open(self) -> bool:
        """Whether something is offered."""
        return bool(self._found)

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self._draw()

    def suggest(self, text: str) -> None:
        """Offer what `text` may become."""
        if text == self._text:
            return
        self._text = text
        if text != self._refused:
            self._refused = ""
        self._found, self._at = (), 0
        if not text or text != self._refused:
            self._found = self._offers(text)
            if not self._found and (found := self.more(text)):
                self._found, self._at = found, -1
        self._draw()

    def take_key(self, key: str, text: str) -> str | None:
        """What a key means for `text` while something is offered: the text from now on; None if the key is not for here.

        Offers are those of `text` even if it was written so fast that `suggest` has not heard of it yet.
        """
        if key not in KEYS:
            return None
        self.suggest(text)
        if not self._found:
            return None
        if key in {"up", "down"}:
            self._at = (max(self._at, 0) - 1 if key == "up" else self._at + 1) % len(self._found)
            self._draw()
            return text
        if key == "escape":
            self._refused = text
            self._found = ()
            self._draw()
            return text
        chosen = self._found[max(self._at, 0)].text
        if key == "tab" or (key == "enter" and self._at >= 0 and chosen.rstrip() != text):
            return chosen
        return None

    def _draw(self) -> None:
        found, at = tuple(self._found), self._at
        self.set_class(bool(found), "-open")
        self.styles.height = min(ROWS, len(found)) or 1
        self.draw((found, at, self._palette.name), lambda width: offer_rows(found, at, self._palette, self._glyphs, width))
        self.scroll_to(y=max(0, at - ROWS + 1), animate=False, force=True)


def offer_rows(found: Sequence[Offer], at: int, palette: Palette, glyphs: Glyphs, width: int) -> list[Row]:
    """One row for each offer: what it is in a column, and as much as fits of what is to be said about it."""
    size = min(max((cell_len(each.shown) for each in found), default=0) + 2, max(8, 2 * width // 5))

    def part(text: str, room: int) -> str:
        return text if cell_len(text) <= room else set_cell_size(text, max(0, room - 1)).rstrip() + glyphs.ellipsis

    return [
        row(
            [
                ("> " if index == at else "  ", palette.user),
                (set_cell_size(part(each.shown, size - 1), size), palette.user if index == at else palette.text),
                (part(each.about, max(1, width - size - 2)), palette.bold if index == at else palette.muted),
            ]
        )
        for index, each in enumerate(found)
    ]
