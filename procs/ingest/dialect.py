"""How the served model writes what is no plain text, calls and thoughts, and what that means for a request.

Decided once, by flags and the chat template. Who calls: generate.py for each chat request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ...common.errors import InvalidRequest
from .reading import Speech
from .reasoning import CLOSING, OPENING, is_opened
from .structure import Structure, grammar_text
from .tokenizer import ModelTokenizer
from .tools.format import CallFormat
from .tools.grammar import Thought, after_thought, calls_grammar
from .tools.hermes import HERMES
from .tools.registry import choose
from .tools.request import Tools


@dataclass(frozen=True, slots=True)
class Dialect:
    """`form` is the format of calls, None if none are read; `thinks`: answers may begin with a thought.

    `controls` are the ids of the marks that are control tokens, `thought_end` is that of the mark that ends a thought,
    if it is a token of its own.
    """

    form: CallFormat | None
    thinks: bool
    controls: Mapping[str, int]
    thought_end: int | None

    @classmethod
    def of(cls, tool_call_parser: str, reasoning_parser: str, tokenizer: ModelTokenizer) -> Dialect:
        """That of a model; "auto" is what its chat template speaks of."""
        template = tokenizer.chat_template or ""
        form = choose(tool_call_parser, template)
        thinks = reasoning_parser == "think" or (reasoning_parser == "auto" and CLOSING in template)
        marks = [form.opening, form.closing] if form else []
        marks += [OPENING, CLOSING] if thinks else []
        controls = {control.text: control.id for control in tokenizer.controls if control.text in marks}
        mark, tokens = CLOSING.encode(), tokenizer.token_bytes
        return cls(form, thinks, controls, tokens.index(mark) if mark in tokens else None)

    @property
    def written(self) -> CallFormat:
        """The format in which calls stand in prompts, where the chat template knows none."""
        return self.form or HERMES

    def check(self, tools: Tools) -> None:
        """Raises InvalidRequest if calls are wanted that this server would not find."""
        if tools.functions and tools.names and self.form is None:
            raise InvalidRequest(
                "this server was started with --tool-call-parser none: it takes tools only with tool_choice none",
                "tools",
            )

    def speech(self, tools: Tools, prompt: str) -> Speech | None:
        """How the answers to a prompt, of which the end is given, are to be read; None if they are text alone."""
        if not tools.names and not self.thinks:
            return None
        opened = self.thinks and is_opened(prompt)
        form = self.form if tools.names else None
        markers = tuple(self.controls.values())
        return Speech(form, tools.names, self.thinks, opened, self.thought_end, markers)

    def structure(self, answer: Structure | None, tools: Tools, speech: Speech | None) -> Structure | None:
        """What the whole text must obey, where `answer` is what the client asks of the answer alone.

        Raises InvalidRequest if calls are forced and something else is asked for.
        """
        if answer is not None and tools.forced:
            raise InvalidRequest(f"{answer.param} and a tool_choice that forces calls exclude each other", answer.param)
        if speech is None or (answer is None and not tools.constrained):
            return answer
        thought = Thought(OPENING, CLOSING, speech.opened) if self.thinks else None
        param = answer.param if answer is not None else "tools"
        return Structure("parts", partial(self._grammar, answer, tools, thought), param)

    def _grammar(self, answer: Structure | None, tools: Tools, thought: Thought | None) -> str:
        text = None if answer is None else grammar_text(answer)
        if self.form is not None and tools.names:
            text = calls_grammar(tools, self.form, self.controls, text)
        assert text is not None
        return text if thought is None else after_thought(thought, self.controls, text)
