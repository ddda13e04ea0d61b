"""SentencePiece-style merging: of all neighbours that form a piece, the best-scored pair is joined first.

Written here because the library would need every merge spelled out (half a million for 262,144 pieces, seconds to
build); this needs the pieces alone, builds at once, and gives the same ids.
"""

from __future__ import annotations

import heapq
import re

from engine.text.vocab import BYTE, NORMAL, Vocabulary
from engine.text.windows import WINDOW, encode_in_windows

SPACE = "▁"
"""The character that stands for a space in the pieces."""

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CACHED_WORDS = 16384
_CACHED_LENGTH = 64


class SentencePieceModel:
    """Text to ids and ids to bytes for vocabularies of the ``llama`` kind."""

    add_bos = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._ids = vocabulary.ids
        self._scores = vocabulary.scores
        self.add_space_prefix = vocabulary.flags.get("add_space_prefix", True)
        self._byte_ids = [self._ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._unknown = vocabulary.special.get("unk")
        self._word = _word_pattern(vocabulary)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, *, after_special: bool = True) -> list[int]:
        """Ids of plain text; ``after_special``: it starts the text or follows a control token."""
        if self.add_space_prefix and after_special:
            text = " " + text
        if len(text) <= WINDOW:
            return self.encode_whole(text)
        return encode_in_windows(text, self.encode_whole, self.n_bytes)

    def encode_whole(self, text: str) -> list[int]:
        """Ids of plain text as it is, at one go however long it is."""
        ids: list[int] = []
        for word in self._word.findall(text.replace(" ", SPACE)):
            ids += self._encode_word(word)
        return ids

    def n_bytes(self, token: int) -> int:
        """Bytes of an id that ``encode`` gave."""
        return len(self.token_bytes(token))

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of one token, whatever its type."""
        text = self._vocabulary.tokens[token]
        kind = self._vocabulary.types[token]
        if kind == BYTE and (match := _BYTE_NAME.fullmatch(text)):
            return bytes([int(match[1], 16)])
        return text.replace(SPACE, " ").encode() if kind == NORMAL else text.encode()

    def _encode_word(self, word: str) -> list[int]:
        cached = self._cache.get(word)
        if cached is not None:
            return cached
        ids = self._merge(word)
        if len(word) <= _CACHED_LENGTH:
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _merge(self, word: str) -> list[int]:
        """Join neighbours, best score first and leftmost among equals, until no pair is a piece."""
        ids, scores = self._ids, self._scores
        parts: list[str] = list(word)
        before = list(range(-1, len(parts) - 1))
        after = [*range(1, len(parts)), -1]
        heap: list[tuple[float, int, int, int]] = []
        for left in range(len(parts) - 1):
            token = ids.get(parts[left] + parts[left + 1])
            if token is not None:
                heap.append((-scores[token], left, left + 1, 2))
        heapq.heapify(heap)
        while heap:
            _, left, right, size = heapq.heappop(heap)
            joined = parts[left] + parts[right]
            # An emptied part, or one that has grown since, makes this entry stale.
            if not parts[left] or not parts[right] or len(joined) != size:
                continue
            parts[left], parts[right] = joined, ""
            follower = after[left] = after[right]
            if follower >= 0:
                before[follower] = left
            for first, second in ((before[left], left), (left, follower)):
                if first >= 0 and second >= 0:
                    text = parts[first] + parts[second]
                    token = ids.get(text)
                    if token is not None:
                        heapq.heappush(heap, (-scores[token], first, second, len(text)))
        return [token for part in parts if part for token in self._tokens_of(part)]

    def _tokens_of(self, part: str) -> list[int]:
        token = self._ids.get(part)
        if token is not None:
            return [token]
        tokens = []
        for byte in part.encode():
            known = self._byte_ids[byte]
            known = self._unknown if known is None else known
            if known is not None:
                tokens.append(known)
        return tokens


def _word_pattern(vocabulary: Vocabulary) -> re.Pattern[str]:
    """Cuts text where no piece can reach across, so that short words can be merged alone and remembered.

    A piece reaches across "x▁" only if some piece holds that pair; those x are few (one in Gemma's 262,144).
    """
    bridges = set(re.findall(f"([^{SPACE}\0])(?={SPACE})", "\0".join(vocabulary.tokens)))
    keep = "".join(re.escape(char) for char in sorted(bridges))
    if not keep:
        return re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
    bridge = f"[{keep}]"
    return re.compile(f"{SPACE}*(?:[^{SPACE}]|(?<={bridge}){SPACE})+|{SPACE}+")
