"""The words under a reply."""

from __future__ import annotations

import html

from app.state.document import Message, ReplyStats
from app.state.reply_tracker import LiveReply
from app.text import tr, trn
from engine.port import EngineState

PLAIN_CAUSES = ("partial_page", "never_stored")
"""Causes that every new turn has: they are told where somebody asks, but nobody is invited to ask."""


def duration(seconds: float) -> str:
    """A short time for people: "38 ms", "1.2 s", "2 min"."""
    if seconds < 0.9995:
        return tr("{ms:,.0f} ms", ms=seconds * 1000)
    if seconds < 99.5:
        return tr("{s:.1f} s", s=seconds)
    return tr("{min:.0f} min", min=seconds / 60)


def asks_why(stats: ReplyStats, expected: bool = False) -> bool:
    """Whether something could have been reused and was not, to a person's surprise.

    ``expected``: the first exchange of a chat parts from other chats' chains as a matter of course.
    """
    plain = (*PLAIN_CAUSES, "diverged") if expected else PLAIN_CAUSES
    return stats.miss is not None and stats.miss.cause not in plain


def _bold(text: str, color: str) -> str:
    return f'<span style="color:{color};font-weight:600">{text}</span>'


def speed_html(stats: ReplyStats, strong: str) -> str:
    """Tokens/s and time to first token, numbers in the colour ``strong``; rich text made of our own numbers only."""
    parts = []
    if stats.n_gen and stats.gen_s > 0:
        width = round(stats.width)
        chats = " " + tr("× {n} chats", n=width) if width > 1 else ""
        parts.append(f"{_bold(f'{stats.tokens_per_s:,.0f}', strong)} {tr('tok/s')}{chats}")
    if stats.ttft_s > 0:
        parts.append(f"{tr('first token')} {_bold(duration(stats.ttft_s), strong)}")
    return "&nbsp;&nbsp;&nbsp;".join(parts)


def tokens_html(stats: ReplyStats, strong: str, why: bool) -> str:
    """Where the tokens came from. ``why``: beside the question why not all was reused, "all" is a number too."""
    words = tr("{n:,} of {total:,}", n=stats.n_cached, total=stats.n_prompt) if why else f"{stats.n_cached:,}"
    reused = _bold(words, strong)
    if stats.chain is not None:
        reused = f'<a href="chain" style="text-decoration:none">{reused}</a>'
    computed = _bold(f"{max(stats.n_prompt - stats.n_cached, 0):,}", strong)
    generated = _bold(f"{stats.n_gen:,}", strong)
    return f"{tr('reused')} {reused} · {tr('computed')} {computed} · {tr('generated')} {generated}"


def progress_text(live: LiveReply, state: EngineState) -> str:
    """What a reply that is not finished is doing."""
    match live.phase:
        case "waiting_for_model":
            return html.escape(model_text(state))
        case "preparing":
            return tr("preparing the prompt")
        case "queued":
            return queue_text(live.place)
        case "prefilling":
            return tr("reading {read:,} / {total:,}", read=live.n_read, total=live.n_prompt)
    speed = f"{live.tokens_per_s:,.0f} {tr('tok/s')}" if live.tokens_per_s else ""
    chats = " " + tr("× {n} chats", n=live.width) if live.width > 1 else ""
    tokens = trn("{n:,} token", "{n:,} tokens", live.n_gen)
    return "   ".join(part for part in (speed + chats if speed else "", tokens) if part)


def model_text(state: EngineState) -> str:
    """What a question waits for that no model has yet."""
    match state.stage:
        case "compiling":
            return tr("waiting until the engine is ready for this processor: {p:.0%}", p=state.progress)
        case "loading" if state.detail:
            return tr("waiting for the model: {detail}, {p:.0%}", detail=state.detail, p=state.progress)
        case "loading" if state.progress:
            return tr("waiting for the model: loading, {p:.0%}", p=state.progress)
    return tr("waiting for the model")


def queue_text(place: int) -> str:
    """Where a chat stands among those that wait for a stream; ``place`` 0: that is not known yet."""
    match place:
        case 0:
            return tr("waiting for a free stream")
        case 1:
            return tr("waiting for a free stream: next in line")
    return tr("waiting for a free stream: number {n} in line", n=place)


def outcome_text(message: Message) -> str:
    """Why a reply is shorter than it might be; "" when it simply ended."""
    stops = {
        "model_changed": tr("stopped: another model was loaded"),
        "closed_early": tr("stopped: KVScope was closed"),
    }
    return {
        "stopped": stops.get(message.error_code, tr("stopped")),
        "length": tr("reached the length limit"),
        "evicted": tr("ended early: the KV memory ran out"),
    }.get(message.status, "")
