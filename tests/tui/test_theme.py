"""Theme files."""

import pytest

from localkv.errors import ConfigError
from localkv.tui.theme import choose_theme, contrast, palette, read_theme, read_themes, textual_theme
from tests.tui.samples import THEMES

SHIPPED = sorted(THEMES.glob("*.toml"))
GOOD = (THEMES / "localkv-dark.toml").read_text()


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_text_can_be_read(file):
    """Every text colour reaches 4.5 : 1 on every ground, 7 : 1 in the high-contrast theme."""
    theme = read_theme(file)
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
