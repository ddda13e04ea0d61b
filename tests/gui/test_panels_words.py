"""What the panels say and where they draw it, as plain functions: sentences, causes, tree and ribbon."""

from __future__ import annotations

import pytest

from app.panels import words
from app.panels.markup import plain
from app.panels.miss import explain, part_note, split
from app.panels.ribbon import COMPUTED, DIVERGED, EVICTED, GENERATED, REUSED, cells_of, squeeze
from app.panels.tree_layout import TreeLayout, chains_ending, preferred_chain
from app.panels.why_card import trim_common_end, without_markup
from engine.port import Prepared, ReleaseReport, Span, Turn
from engine.scheduling.events import Finished, Miss
from tests.gui.fakes_panels import NOW, scene


def finished(miss: Miss | None, n_prompt: int = 171, n_cached: int = 144) -> Finished:
    return Finished(1, "stop", n_prompt, n_cached, 58, 0, 0, 0, miss=miss)


PREPARED = Prepared(1, (), (Span(0, 40, 0), Span(40, 44, -1), Span(44, 171, 1)), None, 10, 10)
TURNS = (Turn("system", "Be brief."), Turn("user", "Hello"))


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (ReleaseReport((1,), 2, 8, 0, ("Invoice email", "turn 2")),
         "Release frees 2 pages; 8 stay, shared with “Invoice email” and “turn 2”."),
        (ReleaseReport((1,), 1, 1, 1, ("A", "B", "C", "D", "E")),
         "Release frees 1 page; 1 stays, shared with “A”, “B” and 3 more; 1 leaves when the reply that uses it ends."),
        (ReleaseReport((1,), 0, 0, 12),
         "Release frees no pages; 12 leave when the replies that use them end."),
        (ReleaseReport((1,), 0, 3, 0), "Release frees no pages; 3 stay, needed by other chains."),
        (ReleaseReport((1,), 0, 0, 0), "Release frees no pages: none of this chain is left in memory."),
    ],
)  # fmt: skip
def test_a_dry_run_in_words(report, said):
    assert words.release_preview(report) == said


def test_a_dry_run_says_first_what_is_pinned():
    one, three = ReleaseReport((1,), 2, 0, 0), ReleaseReport((1, 2, 3), 2, 0, 0)
    assert words.release_preview(one, 1) == "This chain is pinned; a release ends that. Release frees 2 pages."
    assert words.release_preview(three, 1).startswith("1 of these chains is pinned; a release ends that. ")
    assert words.release_preview(three, 2).startswith("2 of these chains are pinned; a release ends that. ")


def test_what_a_release_did_and_its_button():
    report = ReleaseReport((1,), 1_204, 8, 1, ("turn 2",))
    assert words.release_result(report) == (
        "Freed 1,204 pages; 8 stayed, shared with “turn 2”; 1 leaves when the reply that uses it ends."
    )
    assert words.release_button(report) == "Release 1,204 pages"
    assert words.release_button(ReleaseReport((1,), 0, 8, 0)) == "Release"


def test_numbers_in_words():
    assert words.size(264 * 368_640) == "97 MB"
    assert words.size(1_509_949_440) == "1.5 GB"
    assert words.size(900) == "900 bytes"
    assert [words.duration(s) for s in (0, 59, 60, 3600, 90_000, 200_000)] == [
        "0 s", "59 s", "1 min", "1 h", "25 h", "2 days",
    ]  # fmt: skip
    assert words.milliseconds(17_240) == "17.2 ms"
    assert words.milliseconds(1_234_000) == "1,234 ms"
    assert words.shorten("a  long\nline of text", 9) == "a long l…"
    assert words.count(1, "page") == "1 page"
    assert words.chain_name("Invoice email", "turn 3") == "Invoice email · turn 3"
    assert words.chain_name("Plan three days…", "Plan three days in Porto.") == "Plan three days in Porto."
    assert words.chain_name("", "turn 3") == "turn 3"


@pytest.mark.parametrize(
    ("position", "cause"),
    [(12, "System prompt changed"), (41, "The template's own text changed"), (60, "Message edited")],
)
def test_the_turn_of_the_first_difference_names_the_cause(position, cause):
    miss = Miss("diverged", position, token_position=position, chain_label="turn 2")
    found = explain(finished(miss), PREPARED, TURNS, chat="A")
    assert found.cause == cause
    assert found.sentence == (
        f"The first {position} tokens match; token {position + 1} differs from the chain “turn 2” that was stored."
    )


def test_a_divergence_from_another_chats_chain_is_no_edit():
    chain = scene().chains[0]
    miss = Miss("diverged", 60, token_position=60, chain=chain.id, chain_label=chain.label)
    found = explain(finished(miss), PREPARED, TURNS, chat="Physics", chain=chain, chat_title=str.upper)
    assert found.cause == "Another text in this chat"
    assert f"differs from the chain of INVOICE EMAIL stored at {words.clock(chain.born)}" in found.sentence
    same = explain(finished(miss), PREPARED, TURNS, chat=chain.chat, chain=chain)
    assert same.cause == "Message edited"
    assert "the chain “turn 2” stored at" in same.sentence


def test_a_rewritten_history_names_the_template():
    prepared = Prepared(1, (), PREPARED.spans, 50, 10, 10)
    miss = Miss("diverged", 48, token_position=60)
    assert explain(finished(miss), prepared, TURNS).cause == "Reasoning rewritten by the template"
    assert explain(finished(Miss("diverged", 0, token_position=0)), prepared, TURNS).sentence.startswith(
        "The first token differs"
    )


def test_the_other_causes():
    evicted = Miss("evicted", 96, evicted_at=NOW, evicted_for="b")
    found = explain(finished(evicted, 400, 96), None, (), chat_title={"b": "Chat B"}.__getitem__)
    assert found.cause == f"Evicted at {words.clock(NOW)} to make room for Chat B"
    assert found.sentence.startswith("The first 96 tokens were still there; from token 97 on")
    assert explain(finished(Miss("evicted", 0)), None, ()).cause == "Evicted"
    by_hand = explain(finished(Miss("evicted", 0, evicted_at=NOW)), None, ())
    assert by_hand.cause == f"Released at {words.clock(NOW)}"
    tail = explain(finished(Miss("partial_page", 144, 150, 3, "turn 2")), None, ())
    assert tail.sentence.startswith("The chain “turn 2” ends inside the page that begins at token 145;")
    never = explain(finished(Miss("never_stored", 0), 40, 0), None, ())
    assert (never.cause, never.sentence) == ("Never stored", "Nothing in the cache begins like this prompt.")
    assert explain(finished(Miss("never_stored", 32)), None, ()).sentence.startswith("The first 32 tokens match;")
    assert explain(finished(Miss("other_model", 0)), None, ()).cause == "Another model"
    part = explain(finished(Miss("partial_page", 160), 171, 160), None, ())
    assert part.cause == "Part of a page"
    assert part.note == "The last 11 tokens fill only part of a page."
    assert explain(finished(Miss("diverged", 8, token_position=9)), None, ()).cause == "The text differs"


@pytest.mark.parametrize(("n", "note"), [(0, ""), (16, ""), (17, "The last token fills"), (31, "The last 15 tokens")])
def test_the_rest_of_a_page(n, note):
    assert part_note(n, 16).startswith(note)
    assert bool(part_note(n, 16)) == bool(note)


def test_texts_are_split_at_their_first_difference():
    assert split((1, 2, 3, 4), (1, 2, 9, 4)) == ((1, 2), (3, 4), (9, 4))
    assert split((1, 2), (1, 2, 3)) == ((1, 2), (), (3,))
    assert trim_common_end("30 days late and add", "firmer and add") == ("30 days late", "firmer", "and add")
    assert trim_common_end("same", "same") == ("same", "same", "")


def test_control_tokens_are_left_out_unless_they_are_the_difference():
    texts = ("<|im_start|>user\nRivers in ", "Asia.<|im_end|>", "Africa")
    assert without_markup(*texts) == ("Rivers in ", "Asia. ", "Africa")
    same = ("a", "<|im_end|>", "<|endoftext|>")
    assert without_markup(*same) == same
    assert plain("<|im_start|>system\nYou are brief.<|im_end|>\n") == "You are brief."
    assert plain("<start_of_turn>user\nHi<end_of_turn>") == "Hi"


def test_ribbon_cells_follow_the_pages():
    assert cells_of(79, 48, 72, 16, None) == (REUSED,) * 3 + (COMPUTED,) * 2 + (GENERATED,) * 5
    assert cells_of(0, 0, 0, 16, None) == ()
    miss = Miss("diverged", 144, token_position=150)
    assert cells_of(171, 144, 0, 16, miss) == (REUSED,) * 9 + (DIVERGED, COMPUTED)
    assert cells_of(64, 32, 0, 16, Miss("evicted", 32))[2] == EVICTED
    assert cells_of(64, 32, 0, 16, Miss("never_stored", 32))[2] == COMPUTED


def test_a_long_ribbon_is_squeezed_and_keeps_the_news():
    cells = (REUSED,) * 70 + (DIVERGED,) + (COMPUTED,) * 29
    squeezed = squeeze(cells, 32)
    assert len(squeezed) <= 32
    assert sum(n for _, n in squeezed) == 100
    assert [kind for kind, _ in squeezed].count(DIVERGED) == 1


def test_tree_widths_are_tokens():
    snapshot = scene()
    layout = TreeLayout(snapshot.segments)
    root = layout.nodes[0]
    assert (root.x, root.width, root.level) == (0.0, 1.0, 0)
    assert root.total == sum(s.n_tokens for s in snapshot.segments)
    for node in layout.nodes.values():
        inside = [layout.nodes[c] for c in layout.children.get(node.segment.id, ())]
        assert sum(c.total for c in inside) + node.segment.n_tokens == node.total
        assert all(node.x <= c.x and c.x + c.width <= node.x + node.width + 1e-9 for c in inside)
    assert layout.n_levels == 4
    zoomed = TreeLayout(snapshot.segments, 4)
    assert set(zoomed.nodes) == {4, 5, 6}
    assert zoomed.nodes[4].width == 1.0


def test_moving_about_the_tree():
    layout = TreeLayout(scene().segments)
    assert layout.neighbour(0, "down") == 1
    assert layout.neighbour(1, "right") == 4
    assert layout.neighbour(4, "left") == 1
    assert layout.neighbour(1, "up") == 0
    assert layout.neighbour(0, "up") is None
    assert layout.neighbour(2, "down") is None
    assert layout.path(6) == [0, 4, 5, 6]
    assert layout.end_of(4) == 6


def test_a_segment_stands_for_the_chain_that_ends_there():
    snapshot = scene()
    layout = TreeLayout(snapshot.segments)
    chains = {c.id: c for c in snapshot.chains}
    assert chains_ending(layout.by_id[5], layout) == [3]
    assert preferred_chain(layout.by_id[5], layout, chains) == 3
    assert chains_ending(layout.by_id[0], layout) == []
    latest = max(snapshot.chains, key=lambda c: c.last_hit or c.born)
    assert preferred_chain(layout.by_id[0], layout, chains) == latest.id
