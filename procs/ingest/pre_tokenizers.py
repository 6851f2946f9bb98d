"""How byte-level BPE tokenizers of GGUF files cut a text into words, by the name in `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizer.json; names, and what else follows from them, are llama.cpp's
(src/llama-vocab.cpp). A text is cut by each pattern in turn; what no pattern matches stays together.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_FALCON = (r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class Splitting:
    """What a name stands for.

    `whole_words`: a word that is a token is that token, whatever the merges say. `add_bos`: a prompt begins with BOS
    unless the file says otherwise. `composes`: a text is brought into NFC first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    composes: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_KINDS = {
    "default": Splitting(_DEFAULT),
    "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling": Splitting((_GPT2,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": Splitting((r"\p{N}", _GPT2)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": Splitting((_LLAMA3,), True, True),
    "dbrx smaug-bpe chatglm-bpe glm4": Splitting((_LLAMA3,)),
    "qwen2": Splitting((_QWEN2,), composes=True),
    "deepseek-r1-qwen megrez stablelm2 hunyuan grok-2": Splitting((_QWEN2,)),
    "qwen35": Splitting((_QWEN35,), composes=True),
    "deepseek-v3 hunyuan-dense": Splitting(_DEEPSEEK3),
    "deepseek-coder": Splitting(_DEEPSEEK_CODER),
    "falcon": Splitting(_FALCON),
    "tekken": Splitting((_TEKKEN,), True, True),
    "gpt-4o llama4 kanana2": Splitting((_GPT4O,)),
}

SPLITTINGS = {name: splitting for names, splitting in _KINDS.items() for name in names.split()}
"""All that are known."""
