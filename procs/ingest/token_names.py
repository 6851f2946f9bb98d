r"""What tokens are called in the `logprobs` objects of the two routes, as JSON.

A token is called by its text. One that is only a part of a character has no text, and is called as the
OpenAI API calls it: in chat by its bytes spelled `\xf0\x9f`, in completions by the same after `bytes:`.
One that is nothing at all, which a padded vocabulary has, is called `token_id:49153`, as vLLM does.
"""

from __future__ import annotations

from functools import lru_cache
from json.encoder import encode_basestring_ascii

from ..detokenizer import TokenTable
from .tokenizer import ModelTokenizer

_KEPT = 1 << 15
"""Names that are kept: about 300 bytes each, and a model's alternatives are mostly its frequent tokens."""


class TokenNames:
    """The names of a model's tokens. May be called from several threads."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self.tokenizer = tokenizer
        self.table = TokenTable.of(tokenizer.vocabulary)
        self.in_completion = lru_cache(_KEPT)(self._in_completion)
        self.in_chat = lru_cache(_KEPT)(self._in_chat)

    def _in_completion(self, token: int) -> str:
        """The name as a JSON string."""
        return encode_basestring_ascii(self._name(token, "bytes:"))

    def _in_chat(self, token: int) -> tuple[str, str]:
        """The beginning of a JSON object up to the log-probability, and what follows it but for the closing brace."""
        data = self._data(token)
        listed = f"[{','.join(map(str, data))}]" if data else "null"
        return f'{{"token":{encode_basestring_ascii(self._name(token, ""))},"logprob":', f',"bytes":{listed}'

    def _name(self, token: int, before_bytes: str) -> str:
        data = self._data(token)
        if not data:
            return f"token_id:{token}"
        try:
            return data.decode()
        except UnicodeDecodeError:
            return before_bytes + data.decode("utf-8", "backslashreplace")

    def _data(self, token: int) -> bytes:
        return self.table.shown[token if 0 <= token < self.table.unknown else self.table.unknown]
