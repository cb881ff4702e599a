"""What rendering tests share: a palette, a renderer, and a text with a bit of everything."""

from pathlib import Path

from localkv.tui.glyphs import DRAWN
from localkv.tui.markdown import Markdown, parser
from localkv.tui.theme import palette, read_theme

THEMES = Path(__file__).parent.parent.parent / "themes"

PALETTE = palette(read_theme(THEMES / "localkv-dark.toml"))
MARKDOWN = Markdown(parser(), PALETTE, DRAWN)

EVERYTHING = """# Title *x*

A paragraph with **bold**, _italic_, ~~gone~~, `code`, a [link](http://x.y "t") and ![pic](a.png).
A second line of it. 漢字も日本語も。 <think>secret</think>

[label]: http://hidden.example

- one
- two
  - nested

    with a paragraph
3. three
4. four

> quoted
> more

```python title=x
def f(x):
    return "a" + 1  # comment
```

    indented

<details>
inside
</details>

| a | b |
|---|:-:|
| 1 | long cell text |

---
end
"""


def texts(rows):
    """What rows show, without the spaces at their ends."""
    return [row.strip.text.rstrip() for row in rows]
