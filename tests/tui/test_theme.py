"""Theme files."""

import pytest

from localkv.errors import ConfigError
from localkv.tui.theme import choose_theme, contrast, palette, read_theme, read_themes, textual_theme
from tests.tui.samples import THEMES

SHIPPED = sorted(THEMES.glob("*.toml"))
GOOD = (THEMES / "localkv-dark.toml").read_text()


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_text_can_be_read(file):
    """Every text colour reaches 4.5 : 1 on every ground, 7 : 1 in the high-contrast theme; the terminal's own are its own."""
    theme = read_theme(file)
    if theme.ansi:
        assert all(color.startswith("ansi_") for color in theme.text_colors().values())
        assert not {"ansi_black", "ansi_white", "ansi_bright_black", "ansi_bright_white"} & set(theme.text_colors().values())
        return
    least = 7.0 if "high-contrast" in theme.name else 4.5
    grounds = (theme.colors.background, theme.colors.surface, theme.colors.panel)
    bad = {
        (key, ground): round(contrast(color, ground), 2)
        for key, color in theme.text_colors().items()
        for ground in grounds
        if contrast(color, ground) < least
    }
    assert bad == {}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_names_and_use(file):
    """A shipped file is called like its theme, and both Textual and the rows can use it."""
    theme = read_theme(file)
    assert theme.name == file.stem
    assert textual_theme(theme).to_color_system().generate()["background"]
    assert textual_theme(theme).variables["muted"] == theme.colors.muted
    assert palette(theme).syntax["keyword"].color is not None


@pytest.mark.parametrize("name", ["catppuccin-like", "nord-like"])
def test_palettes_of_others_carry_their_licence(name):
    """Colours that others chose come with their copyright and permission notice."""
    text = (THEMES / f"{name}.toml").read_text()
    assert "Copyright (c)" in text
    assert "Permission is hereby granted" in text


def test_the_terminals_own_colours_stay_names():
    """The ansi theme writes no colour of its own: rows use the sixteen, or the terminal's default."""
    styles = palette(read_theme(THEMES / "ansi.toml"))
    assert styles.user.color.number == 6
    assert styles.text.color.is_default


def test_contrast():
    """The ratio is WCAG's: 21 for black on white, 1 for equal colours."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("[tiers]", "[teirs]", ["teirs", '"tiers"']),
        ("foreground =", "foregruond =", ["colors.foregruond", '"foreground"']),
        ("#7fb4e8", "#7fb4ezz", ["colors.primary", "#7fb4ezz", "#rrggbb"]),
        ("#7fb4e8", "ansi_red", ["colors.primary", "opaque"]),
        ("dark = true", "dark = true\nansi = true", ["colors.background", "#14161a", "ansi_blue"]),
        ("dark = true", 'dark = "yes"', ["dark"]),
        ('muted = "#9aa1ac"', "", ["muted"]),
        ("[tiers]", "[tiers", ["cannot be read"]),
    ],
)
def test_errors_name_file_key_and_nearest(tmp_path, old, new, parts):
    """A file that cannot be used says which, where and what is near."""
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_theme(file)
    assert all(part in str(caught.value) for part in [str(file), *parts])


def test_user_themes_win_and_broken_ones_are_said(tmp_path):
    """A user's theme of a shipped name replaces it; one bad file does not keep the others out."""
    (tmp_path / "a.toml").write_text(GOOD.replace("#14161a", "#000000"))
    (tmp_path / "b.toml").write_text("nonsense")
    themes, problems = read_themes([THEMES, tmp_path])
    assert themes["localkv-dark"].colors.background == "#000000"
    assert len(themes) == len(SHIPPED)
    assert [str(tmp_path / "b.toml") in problem for problem in problems] == [True]


def test_an_unknown_name_gives_the_default_and_the_nearest():
    """chat.theme that names nothing is said with the nearest name."""
    themes, _ = read_themes([THEMES])
    theme, problem = choose_theme(themes, "localkv-lihgt")
    assert theme.name == "localkv-dark"
    assert '"localkv-light"' in problem


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.stem for file in SHIPPED])
def test_dialogs_open_in_every_theme(world, name):
    """Help, palette and a question are drawn in each shipped theme, also where colours cannot be mixed."""
    from tests.tui.conftest import play, text_of, until

    app = world.app(theme=name)

    async def scene(pilot):
        await pilot.press("f1")
        await until(pilot, lambda: "Writing" in text_of(app), "help")
        await pilot.press("escape", "ctrl+p")
        await until(pilot, lambda: "what to do" in text_of(app), "the palette")
        await pilot.press("escape", "c", "ctrl+n")
        await until(pilot, lambda: app.screen is app.chat_screen, "the chat")

    play(app, scene)


def test_another_theme_while_chatting(world):
    """/theme NAME repaints at once; a name that is none is answered with those that are."""
    from tests.tui.conftest import notices, play, until

    app = world.app()

    async def scene(pilot):
        screen = app.chat_screen
        screen.composer.insert("/theme nord-like")
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == "nord-like" and screen._palette.name == "nord-like", "the theme")
        screen.composer.insert("/theme nrod")
        await pilot.press("enter")
        await until(pilot, lambda: "catppuccin-like" in notices(app), "the names")

    play(app, scene)


@pytest.mark.slow
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_cursor_can_be_seen(world, file):
    """Where one writes, in the chat and in a dialog: it stands out from the ground, 3 : 1, or is the terminal's own colours reversed."""
    from textual.widgets import Input

    from tests.tui.conftest import play, until

    theme = read_theme(file)
    app = world.app(theme=theme.name)

    def cursor(widget):
        return next(segment.style for segment in widget.render_line(0) if segment.text.strip("> ") == "b")

    def stands_out(style):
        if theme.ansi:
            return style.reverse and style.color.is_default and style.bgcolor.is_default
        front, ground = (color.get_truecolor().hex for color in (style.color, style.bgcolor))
        if style.reverse:
            front, ground = ground, front
        return contrast(front, ground) >= 3 and contrast(ground, theme.colors.background) >= 3

    async def scene(pilot):
        await pilot.press("a", "b", "left")
        await pilot.pause()
        assert stands_out(cursor(app.chat_screen.composer))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: app.screen is not app.chat_screen, "a dialog")
        await pilot.press("a", "b", "left")
        await pilot.pause()
        assert stands_out(cursor(app.screen.query_one(Input)))

    play(app, scene)
