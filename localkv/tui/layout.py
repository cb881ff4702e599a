"""The style sheet of the chat screen, and which panes are seen at which size.

Wide (120 columns and more): list, conversation, cache panel. Normal (100 to 119): list, conversation with a row of tiers.
Narrow: the conversation alone; list and panel lie over it when asked for. Short (under 20 rows): no footer, less composer.
"""

WIDTHS = [(0, "-narrow"), (100, "-normal"), (120, "-wide")]
HEIGHTS = [(0, "-short"), (20, "-tall")]


def classes_at(width: int, height: int) -> tuple[str, str]:
    """What the screen is called at this size: how wide, how tall."""
    wide = max(each for each in WIDTHS if each[0] <= width)
    tall = max(each for each in HEIGHTS if each[0] <= height)
    return wide[1], tall[1]


CSS = """
ChatScreen { background: $background; color: $foreground; }

#body { height: 1fr; layers: default over; }
#main { width: 1fr; height: 100%; }
#header { height: 2; padding: 0 1; background: $background; border-bottom: solid $rule; }
#transcript { height: 1fr; }
#tiers { height: 1; padding: 0 1; }
#phase { height: 2; padding: 0 1; border-top: solid $rule; }
#writing { height: auto; }
#prompt { width: auto; height: 1; padding: 0 1; color: $primary; }
#composer { width: 1fr; padding: 0 1 0 0; }
#count { width: auto; height: 1; padding: 0 1 0 0; color: $muted; display: none; }
#count.-shown { display: block; }
#count.-over { color: $error; text-style: bold; }

#side { width: 27; height: 100%; background: $surface; border-right: vkey $rule; }
#side-head { height: 1; padding: 0 1; background: $surface; }
#filter {
    height: 1; border: none; padding: 0 1; background: $panel; color: $foreground; display: none;
    &:focus { border: none; }
}
#filter.-open { display: block; }
#sessions { height: 1fr; margin: 1 0 0 0; }

#right { width: 35; height: 100%; background: $surface; border-left: vkey $rule; }
#panel { height: 1fr; padding: 0 0 0 1; overflow-y: scroll; background: $surface; scrollbar-background: $surface; }


ChatScreen.side-closed #side { display: none; }
ChatScreen.panel-closed #right { display: none; }
ChatScreen.-normal #right, ChatScreen.-narrow #right { display: none; }
ChatScreen.-narrow #side { display: none; }
ChatScreen.-wide #tiers { display: none; }
ChatScreen.-wide.panel-closed #tiers { display: block; }
ChatScreen.-narrow.side-open #side { display: block; layer: over; dock: left; width: 34; }
ChatScreen.-normal.panel-open #right, ChatScreen.-narrow.panel-open #right {
    display: block; layer: over; dock: right; width: 37;
}

ChatScreen.-short KeyLine { display: none; }
ChatScreen.-short #composer { max-height: 3; }
ChatScreen.-short #header { height: 1; border-bottom: none; }

ChatScreen.-ascii #header { border-bottom: ascii $rule; }
ChatScreen.-ascii.-short #header { border-bottom: none; }
ChatScreen.-ascii #phase { border-top: ascii $rule; }
ChatScreen.-ascii #side { border-right: ascii $rule; }
ChatScreen.-ascii #right { border-left: ascii $rule; }
/* Textual's is black on white reversed: on a dark terminal like any other character. */
Input:ansi > .input--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
ChatScreen:nocolor #composer { text-style: none; }

/* Below the header: what is written and the keys stay in view. */
ToastRack { dock: top; align: right top; margin-bottom: 0; margin-top: 1; }
Toast { background: $panel; color: $foreground; padding: 0 1; max-width: 70%; }
Toast.-information { border-left: outer $primary; }
Toast.-error { border-left: outer $error; }
Toast.-warning { border-left: outer $warning; }
.-ascii Toast.-information, .-ascii Toast.-error, .-ascii Toast.-warning { border-left: ascii $primary; }
"""
