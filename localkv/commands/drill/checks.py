"""What must hold after a kill: for the conversations, for the store, and for what lies around.

Changes nothing. Torch-free. Two strengths: right after a kill files without a row and temporary files may lie in the store, because the
next engine clears them away; once an engine has ended by itself nothing may. Thread: main.
"""

from collections.abc import Mapping

from localkv.chat.audit import audit_conversations
from localkv.chat.tree import Message
from localkv.commands.drill.report import Tally
from localkv.commands.drill.world import World
from localkv.files import TEMP_SUFFIX
from localkv.tiers.audit import Finding, audit_store

CLEARED_AWAY = {"no_row", "temp_file"}
"""What a killed engine may leave and the next one removes."""

LEFTOVERS = {*CLEARED_AWAY, "stray_file", "permissions"}


def check_store(world: World, tally: Tally, *, settled: bool) -> None:
    """Every row against its file, every byte against its checksum, all files against the budget."""
    audit = audit_store(world.home.store, world.budget_bytes, lambda *_: None)
    for finding in audit.findings:
        if world.is_flipped(finding.path) or (not settled and finding.kind in CLEARED_AWAY):
            continue
        if finding.kind == "over_budget":
            tally.add("budget_breaks", [finding.what])
        else:
            tally.add("leftovers" if finding.kind in LEFTOVERS else "wrong_restores", [_sentence(finding)])


def check_leftovers(world: World, tally: Tally) -> None:
    """Nothing temporary lies anywhere in the home once all processes have ended by themselves."""
    found = [path for path in world.base.rglob(f"*{TEMP_SUFFIX}") if world.home.store not in path.parents]
    tally.add("leftovers", [f"{path.relative_to(world.base)} was left behind" for path in found])


def check_messages(world: World, ledger: Mapping[str, Message], tally: Tally) -> None:
    """Every message that was finished is there, word for word and id for id, and the database is sound."""
    stored = world.messages()
    lost = [f"the message {key} is gone" for key in ledger if key not in stored]
    changed = [key for key, message in ledger.items() if key in stored and _content(stored[key]) != _content(message)]
    tally.add("lost_messages", lost + [f"the message {key} is not what it was" for key in changed])
    audit = audit_conversations(world.home.database)
    tally.add("lost_messages", [flaw.what for flaw in audit.flaws if flaw.kind != "schema"])


def _content(message: Message) -> tuple[object, ...]:
    return message.conversation, message.parent, message.role, message.text, message.ids, message.state


def _sentence(finding: Finding) -> str:
    return f"{finding.kind}: {finding.what}"
