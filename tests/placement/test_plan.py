"""Plans: where a turn resumes, from what, and whether that is exact; against an oracle that tries everything."""

import pytest
from hypothesis import given, settings

from localkv.events import Reason
from localkv.kv.record import Head
from localkv.placement.index import Index
from localkv.placement.plan import Ground, Question, SlotView, make_plan
from localkv.tally import sources
from tests.placement.worlds import IDENTITY, LAYOUTS, NOW, OLD, ROOT, SIZE, World, cases, ids_of


def plan_of(case):
    return make_plan(case.question, case.slot, case.world.index(), case.ground)


def in_slot(case):
    """The names of the prompt's blocks that the slot holds."""
    found = []
    for i, name in enumerate(case.slot.names):
        end = (i + 1) * SIZE
        if list(case.slot.ids[:end]) != list(case.question.ids[:end]):
            break
        found.append(name)
    return found


def parents(world, name):
    """The blocks before `name`."""
    chain = []
    while (name := world.parent.get(name, ROOT)) != ROOT:
        chain.append(name)
    return chain


def usable(case, name):
    """Whether the record can be the end of what is restored: it and all before it are there, and the prompt begins with it."""
    world, prompt = case.world, list(case.question.ids)
    limit = len(prompt) - 1 if case.question.at_most is None else min(len(prompt) - 1, case.question.at_most)
    record, held = world.records.get(name), in_slot(case)
    if record is None or not len(world.path[name]) <= limit:
        return False
    if list(world.path[name]) != prompt[: len(world.path[name])]:
        return False
    if record.kind == "block" and not world.layout.only_full:
        return False
    needed = [*parents(world, name), *([name] if record.kind == "block" else [])]
    if not all(world.present(block) or block in held or not world.layout.block_bytes for block in needed):
        return False
    return world.present(name) or (record.kind == "block" and name in held)


def own_end(case):
    """Where the conversation's own history ends, if all of it can be used; else 0."""
    head = case.question.head
    if head is None or head.identity != IDENTITY or head.name not in case.world.records:
        return 0
    if head.tokens != len(case.world.path[head.name]) or not case.world.present(head.name) or not usable(case, head.name):
        return 0
    return head.tokens


def live_end(case):
    n = len(case.slot.ids)
    return n if 0 < n < len(case.question.ids) and list(case.slot.ids) == list(case.question.ids)[:n] else 0


def slot_ends(case):
    """Block edges that the slot alone gives a model that may resume at any."""
    if not case.world.layout.only_full:
        return [0]
    limit = (
        len(case.question.ids) - 1 if case.question.at_most is None else min(len(case.question.ids) - 1, case.question.at_most)
    )
    return [0, *(end for i in range(len(in_slot(case))) if (end := (i + 1) * SIZE) <= limit)]


def furthest(case):
    return max(len(case.world.path[name]) if usable(case, name) else 0 for name in case.world.path)


@given(cases())
@settings(max_examples=600)
def test_it_resumes_where_trying_everything_would(case):
    """No place to resume is overlooked, whatever is where, and none is invented."""
    plan, own, live = plan_of(case), own_end(case), live_end(case)
    mine = case.slot.owner == "me"
    if own:
        expected = max(own, live if mine else 0)
    else:
        expected = max(furthest(case), live, *slot_ends(case))
    assert plan.resume_at == expected
    assert plan.resume_at < len(case.question.ids)


@given(cases())
@settings(max_examples=300)
def test_pieces_cover_the_prompt_without_a_gap(case):
    """The pieces follow each other from token 0 to where the plan resumes, and the tiers add up to it."""
    plan = plan_of(case)
    assert sources(plan).total == plan.resume_at
    if plan.live:
        assert plan.pieces == ()
        return
    edge = 0
    for piece in plan.pieces:
        assert piece.start == edge
        assert ids_of(piece) == list(case.question.ids[piece.start : piece.end])
        edge = piece.end
    assert edge == plan.resume_at
    assert plan.slot_tokens == sum(SIZE for piece in plan.pieces if piece.tier == "slot")
    assert len(plan.names) == plan.resume_at // SIZE


@given(cases())
@settings(max_examples=300)
def test_no_record_is_used_that_does_not_fit(case):
    """Every piece is a record for exactly these tokens, is where the plan says, and follows the piece before it."""
    plan, world, parent = plan_of(case), case.world, ROOT
    for i, piece in enumerate(plan.pieces):
        assert list(world.path[piece.name]) == list(case.question.ids[: piece.end])
        if piece.tier in ("ram", "ssd"):
            assert world.where[piece.name] == piece.tier
            assert world.records[piece.name].parent == parent
        if piece.tier == "slot":
            assert case.slot.names[i] == piece.name
        parent = piece.name


@given(cases())
@settings(max_examples=600)
def test_exact_is_claimed_only_for_ones_own_whole_history(case):
    """Exact means: the slot goes on, or the own history is whole and of this fingerprint, or there was none."""
    plan, head = plan_of(case), case.question.head
    own, mine = own_end(case), case.slot.owner == "me"
    prints = [case.world.records[piece.name].fingerprint for piece in plan.pieces if piece.name in case.world.records]
    whole = bool(own) and plan.resume_at == own and not plan.live
    if plan.exact:
        assert plan.because == ""
        assert (plan.live and mine) or (whole and OLD not in prints) or (head is None and plan.resume_at == 0)
        if whole:
            assert [piece.name for piece in plan.pieces if piece.n_bytes][-1] == head.name
        assert plan.lost == ()
    else:
        assert plan.because != ""
        unknown = any(piece.tier == "slot" and not case.world.present(piece.name) for piece in plan.pieces)
        assert plan.lost or not (whole and OLD not in prints) or (unknown and case.slot.mixed)


@given(cases())
@settings(max_examples=300)
def test_what_is_lost_adds_up(case):
    """All tokens that the head covered and that are computed again are counted, each under one reason of the closed list."""
    plan, head = plan_of(case), case.question.head
    covered = min(head.tokens, len(case.question.ids) - 1) if head else 0
    assert sum(n for _, n in plan.lost) == max(0, covered - plan.resume_at)
    assert all(reason in set(Reason) for reason, _ in plan.lost)


def world_with_chain(n_blocks, kind="only_full", where="ram"):
    """A world with one chain of blocks and a checkpoint at its end; returns (world, names, prompt)."""
    world = World(LAYOUTS[kind])
    names = [ROOT]
    for i in range(n_blocks):
        names.append(world.add("block", names[-1], [i] * SIZE, 0, NOW, where))
    names.append(world.add("checkpoint", names[-1], [99] * 5, 0, NOW, where))
    return world, names[1:], [*world.path[names[-1]], 7]


def plan_for(world, prompt, head, slot=None, **question):
    ground = Ground(world.layout, IDENTITY, NOW)
    return make_plan(Question("me", prompt, head, **question), slot or SlotView(), world.index(), ground)


def head_of(world, name):
    return Head(name, IDENTITY, len(world.path[name]), NOW)


def test_own_history_goes_before_others_of_the_same_tokens():
    """Two conversations said the same: each gets its own bytes back, even if the other's were used later or reach further."""
    world, names, prompt = world_with_chain(3)
    other = ROOT
    for i in range(3):
        other = world.add("block", other, [i] * SIZE, 1, NOW, "ram")
    world.add("checkpoint", other, [99] * 5, 1, NOW, "ram")
    plan = plan_for(world, prompt, head_of(world, names[-1]))
    assert [piece.name for piece in plan.pieces] == names
    assert plan.exact


def test_a_checkpoint_counts_whichever_version_of_the_prefix_it_belongs_to():
    """Of two versions of a prefix, the one with the checkpoint is taken, although the other was used later."""
    world, names, prompt = world_with_chain(2, "sliding")
    other = world.add("block", ROOT, [0] * SIZE, 1, NOW, "ram")
    world.add("block", other, [1] * SIZE, 1, NOW, "ram")
    plan = plan_for(world, prompt, None)
    assert plan.resume_at == 2 * SIZE + 5
    assert [piece.name for piece in plan.pieces] == names


def test_state_of_another_conversation_does_not_replace_ones_own():
    """A slot that happens to hold the same tokens, fed by another conversation, is not taken for one's own state."""
    world, names, prompt = world_with_chain(2)
    slot = SlotView(prompt[:-1], names[:2], "other")
    plan = plan_for(world, prompt, head_of(world, names[-1]), slot)
    assert not plan.live
    assert plan.exact
    assert plan_for(world, prompt, None, slot).live
    assert not plan_for(world, prompt, None, slot).exact


def test_a_block_is_no_place_to_resume_for_a_model_that_keeps_more():
    """A head that names a block, in a model with sliding layers, restores nothing by itself: the windows would be missing."""
    world, names, prompt = world_with_chain(2, "sliding")
    world.where[names[-1]] = "evicted"
    plan = plan_for(world, prompt, head_of(world, names[1]))
    assert plan.resume_at == 0
    assert not plan.exact


@pytest.mark.parametrize(
    ("tombstone", "reason"),
    [
        ("checksum", Reason.CHECKSUM),
        ("missing_file", Reason.MISSING_FILE),
        ("evicted", Reason.EVICTED),
        ("superseded", Reason.KIND_BOUNDARY),
        ("", Reason.ENGINE_RESTARTED),
    ],
)
def test_the_reason_is_on_the_tombstone(tombstone, reason):
    """Why tokens are computed again is what the record was lost for; without a tombstone it was never saved."""
    world, names, prompt = world_with_chain(3)
    world.where[names[1]] = tombstone
    plan = plan_for(world, prompt, head_of(world, names[-1]))
    assert plan.resume_at == SIZE
    assert plan.lost == ((reason, 2 * SIZE + 5),)


def test_another_models_history_is_named_as_such():
    """A head of another identity is not looked at, and that is the reason."""
    world, names, prompt = world_with_chain(2)
    head = Head(names[-1], "cd" * 20, 2 * SIZE + 5, NOW)
    assert plan_for(world, prompt, head).lost == ()  # the blocks fit the ids all the same
    for name in names:
        world.where[name] = "evicted"
    assert plan_for(world, prompt, head).lost == ((Reason.IDENTITY_CHANGED, 2 * SIZE + 5),)


def test_an_edited_prompt_and_a_diverged_template_are_told_apart():
    """All records are there but the prompt is another one: that is an edit, or the template's doing if it says so."""
    world, names, prompt = world_with_chain(2)
    prompt[SIZE] = 55
    head = head_of(world, names[-1])
    assert plan_for(world, prompt, head).lost == ((Reason.EDITED, SIZE + 5),)
    assert plan_for(world, prompt, head, diverged=True).lost == ((Reason.TEMPLATE_DIVERGED, SIZE + 5),)


def test_without_room_for_all_of_it_the_beginning_is_brought():
    """A plan that may bring so many tokens at most ends before them, and says that room was missing."""
    world, names, prompt = world_with_chain(3)
    plan = plan_for(world, prompt, head_of(world, names[-1]), at_most=2 * SIZE)
    assert plan.resume_at == 2 * SIZE
    assert plan.lost == ((Reason.NO_ROOM, SIZE + 5),)


def test_other_fingerprints_are_used_and_said():
    """Records made by other versions or threads are brought, and the turn is not exact."""
    world = World(LAYOUTS["only_full"])
    block = world.add("block", ROOT, [1] * SIZE, 0, OLD, "ssd")
    plan = plan_for(world, [*[1] * SIZE, 2], head_of(world, block))
    assert plan.resume_at == SIZE
    assert not plan.exact
    assert plan.because.startswith(Reason.FINGERPRINT_CHANGED)


def test_a_new_conversation_with_nothing_to_restore_is_exact():
    """Where there is no history and no record, computing everything is what would have happened anyway."""
    ground = Ground(LAYOUTS["only_full"], IDENTITY, NOW)
    plan = make_plan(Question("me", [1, 2, 3], None), SlotView(), Index(ROOT), ground)
    assert (plan.resume_at, plan.exact, plan.lost) == (0, True, ())
