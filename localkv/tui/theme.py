"""Themes: TOML files -> checked colours, Textual's Theme, and the Palette that rows are painted with.

Files come from the folder that ships with localkv and from the user's; the user's wins over a shipped one of the same name.
A file that cannot be used is a ConfigError naming file, key, value and the nearest known name; the others still load.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

from localkv.errors import ConfigError

DEFAULT_THEME = "localkv-dark"

ANSI_VARIABLES = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-cursor-foreground": "ansi_default",
    "input-cursor-background": "ansi_default",
    "input-selection-foreground": "ansi_black",
    "input-selection-background": "ansi_bright_blue",
    "screen-selection-foreground": "ansi_black",
    "screen-selection-background": "ansi_bright_blue",
}
"""What Textual derives by mixing colours, which those of a terminal can't be. It reverses cursors in these themes: of black on
white that would be the white on black of every other character."""


class Colors(msgspec.Struct, frozen=True):
    """[colors]: grounds, text, and what they mean."""

    background: str
    surface: str
    panel: str
    foreground: str
    muted: str
    rule: str
    primary: str
    accent: str
    success: str
    warning: str
    error: str


class Messages(msgspec.Struct, frozen=True):
    """[messages]: who speaks."""

    user: str
    assistant: str


class Tiers(msgspec.Struct, frozen=True):
    """[tiers]: the bars of the cache panel."""

    vram: str
    ram: str
    ssd: str


class MarkdownColors(msgspec.Struct, frozen=True):
    """[markdown]: parts of an answer."""

    heading: str
    code: str
    link: str
    quote: str


class Syntax(msgspec.Struct, frozen=True):
    """[syntax]: code in fences."""

    keyword: str
    name: str
    string: str
    number: str
    comment: str
    type: str
    operator: str


class ThemeFile(msgspec.Struct, frozen=True):
    """One theme file, checked."""

    name: str
    dark: bool
    colors: Colors
    messages: Messages
    tiers: Tiers
    markdown: MarkdownColors
    syntax: Syntax
    ansi: bool = False
    """All colours are those that the terminal is set to."""

    def text_colors(self) -> dict[str, str]:
        """Every colour that text is written in, by its key."""
        skip = {"background", "surface", "panel", "rule"}
        parts = {"colors": self.colors, "messages": self.messages, "markdown": self.markdown, "syntax": self.syntax}
        parts["tiers"] = self.tiers
        return {
            f"{section}.{key}": value
            for section, struct in parts.items()
            for key, value in msgspec.structs.asdict(struct).items()
            if key not in skip
        }


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of rows. Foregrounds only, code aside: the widget brings the ground."""

    name: str
    text: Style
    muted: Style
    bold: Style
    heading: Style
    code: Style
    block: Style
    """Code in fences, with its ground."""
    link: Style
    quote: Style
    rule: Style
    user: Style
    assistant: Style
    accent: Style
    success: Style
    warning: Style
    error: Style
    cursor: Style
    """The row that the cursor is on."""
    vram: Style
    ram: Style
    ssd: Style
    syntax: Mapping[str, Style]


def read_theme(file: Path) -> ThemeFile:
    """The theme in `file`. Raises ConfigError."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as a theme ({error}); mend or move the file") from error
    _refuse_unknown(raw, file)
    try:
        theme = msgspec.convert(raw, ThemeFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}; compare with themes/{DEFAULT_THEME}.toml") from error
    for key, value in _colors(raw):
        try:
            parsed = Color.parse(value)
        except ColorParseError as error:
            raise ConfigError(f'{file}: {key} = "{value}" is not a colour; write #rrggbb') from error
        if theme.ansi and parsed.ansi is None:
            raise ConfigError(f'{file}: {key} = "{value}" must be a colour of the terminal, such as ansi_blue: ansi = true')
        if not theme.ansi and (parsed.a != 1 or parsed.ansi is not None):
            raise ConfigError(f'{file}: {key} = "{value}" must be an opaque #rrggbb colour')
    return theme


def read_themes(folders: Iterable[Path]) -> tuple[dict[str, ThemeFile], list[str]]:
    """Themes by name, later folders winning, and one sentence for each file that cannot be used."""
    themes: dict[str, ThemeFile] = {}
    problems = []
    for folder in folders:
        for file in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(file)
            except ConfigError as error:
                problems.append(str(error))
                continue
            themes[theme.name] = theme
    return themes, problems


def choose_theme(themes: Mapping[str, ThemeFile], name: str) -> tuple[ThemeFile, str]:
    """The theme called `name`, else the default and a sentence that says so."""
    if name in themes:
        return themes[name], ""
    nearest = difflib.get_close_matches(name, list(themes), n=1, cutoff=0.0)
    hint = f'; the nearest known name is "{nearest[0]}"' if nearest else ""
    if DEFAULT_THEME not in themes:
        raise ConfigError(f"the theme {DEFAULT_THEME} that belongs to localkv is missing; install localkv again")
    return themes[DEFAULT_THEME], f'chat.theme = "{name}": there is no such theme{hint}'


def textual_theme(theme: ThemeFile) -> Theme:
    """`theme` for Textual, with our own names as CSS variables."""
    colors = theme.colors
    return Theme(
        name=theme.name,
        dark=theme.dark,
        ansi=theme.ansi,
        primary=colors.primary,
        secondary=colors.primary,
        accent=colors.accent,
        success=colors.success,
        warning=colors.warning,
        error=colors.error,
        foreground=colors.foreground,
        background=colors.background,
        surface=colors.surface,
        panel=colors.panel,
        text_alpha=1.0,
        variables={
            "muted": colors.muted,
            "rule": colors.rule,
            "footer-foreground": colors.muted,
            "footer-background": colors.background,
            "footer-key-foreground": colors.primary,
            "footer-description-foreground": colors.muted,
            "input-selection-background": colors.rule,
            "screen-selection-background": colors.rule,
            "scrollbar": colors.rule,
            "scrollbar-hover": colors.muted,
            "scrollbar-active": colors.primary,
            "scrollbar-background": colors.background,
            "scrollbar-background-hover": colors.background,
            "scrollbar-background-active": colors.background,
            "scrollbar-corner-color": colors.background,
            "border": colors.rule,
            "border-blurred": colors.rule,
            **(ANSI_VARIABLES if theme.ansi else {}),
        },
    )


def palette(theme: ThemeFile) -> Palette:
    """The styles that rows are painted with."""
    colors, marks = theme.colors, theme.markdown
    ground = Style(bgcolor=Color.parse(colors.panel).rich_color)
    return Palette(
        name=theme.name,
        text=_ink(colors.foreground),
        muted=_ink(colors.muted),
        bold=_ink(colors.foreground, bold=True),
        heading=_ink(marks.heading, bold=True),
        code=_ink(marks.code),
        block=_ink(colors.foreground) + ground,
        link=_ink(marks.link, underline=True),
        quote=_ink(marks.quote),
        rule=_ink(colors.rule),
        user=_ink(theme.messages.user, bold=True),
        assistant=_ink(theme.messages.assistant, bold=True),
        accent=_ink(colors.accent),
        success=_ink(colors.success),
        warning=_ink(colors.warning),
        error=_ink(colors.error, bold=True),
        cursor=Style(reverse=True) if theme.ansi else ground,
        vram=_ink(theme.tiers.vram),
        ram=_ink(theme.tiers.ram),
        ssd=_ink(theme.tiers.ssd),
        syntax={key: _ink(value) + ground for key, value in msgspec.structs.asdict(theme.syntax).items()},
    )


def _ink(color: str, *, bold: bool | None = None, underline: bool | None = None) -> Style:
    return Style(color=Color.parse(color).rich_color, bold=bold, underline=underline)


def contrast(one: str, other: str) -> float:
    """The WCAG contrast ratio of two colours, 1 to 21."""
    bright, dark = sorted((_luminance(Color.parse(one)), _luminance(Color.parse(other))), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _colors(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"{name}.{key}", value) for name, body in raw.items() if isinstance(body, dict) for key, value in body.items()]


def _refuse_unknown(raw: Mapping[str, Any], file: Path) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(ThemeFile)}
    for name, body in raw.items():
        if name not in fields:
            raise ConfigError(f"{file}: unknown key {name} = {body!r}{_nearest(name, list(fields))}")
        known = getattr(fields[name], "__struct_fields__", ())
        for key, value in body.items() if known and isinstance(body, dict) else ():
            if key not in known:
                raise ConfigError(f"{file}: unknown key {name}.{key} = {value!r}{_nearest(key, list(known))}")


def _nearest(word: str, known: list[str]) -> str:
    return f'; the nearest known name is "{difflib.get_close_matches(word, known, n=1, cutoff=0.0)[0]}"'
