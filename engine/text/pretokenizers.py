"""How byte-level vocabularies cut text into words before merging, by the name a model file gives.

Each pattern isolates its matches; what lies between them stays a word of its own, and the next pattern of the list
works inside the words so far. The patterns are those the models were trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD_A = r"[^\r\n\p{L}\p{N}]?" + _UPPER + "*" + _LOWER + "+"
_WORD_B = r"[^\r\n\p{L}\p{N}]?" + _UPPER + "+" + _LOWER + "*"
_TEKKEN = f"{_WORD_A}|{_WORD_B}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL
_GPT4O = f"{_WORD_A}{_CONTRACTIONS}?|{_WORD_B}{_CONTRACTIONS}?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _TAIL
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``patterns`` in order; ``ignore_merges``: a word that is a token is that token; ``add_bos``: the default."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_FAMILIES: dict[PreTokenizer, str] = {
    _DEFAULT: "default",
    PreTokenizer((_GPT2,)): (
        "gpt-2 phi-2 mpt olmo jais trillion exaone4 gigachat a.x-4.0 mellum modern-bert granite-docling jina-es jina-de"
    ),
    PreTokenizer((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True): (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    PreTokenizer((_LLAMA3,)): "dbrx smaug-bpe glm4 chatglm-bpe",
    PreTokenizer((_QWEN2,)): ("qwen2 qwen3 deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 solar-open kormo f2llmv2"),
    PreTokenizer((_QWEN35,)): "qwen35",
    PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True): "tekken",
    PreTokenizer((_GPT4O,)): "gpt-4o llama4 kanana2 minimax-m2",
    PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)): "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")): "falcon",
}
_BY_NAME = {name: family for family, names in _FAMILIES.items() for name in names.split()}


def pretokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer that a model file names. Errors: ``UnsupportedModelError`` for a name that is not known."""
    if name not in _BY_NAME:
        raise UnsupportedModelError(
            f"This model cuts words by the rule {name[:40]!r}, which this engine does not know. Choose another model."
        )
    return _BY_NAME[name]
