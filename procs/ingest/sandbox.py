"""jinja2's sandbox with bounds on time and memory, for templates that come with a model from somewhere.

The sandbox keeps a template from Python's insides, not from `{% for %}` in `{% for %}` nor from 'x' * 10**9. So
whatever makes text or lists (operators, slices, calls, filters, output, turns of a loop) is paid for here in
characters, before it is made where that can be much from little, and each payment looks at the thread's processor
time. What comes between two payments takes no longer than one pass over what is there already.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from .sandbox_checks import REMOVED_FILTERS, REMOVED_METHODS, price, size, written

_CHARS, _CHARS_PER_CHAR = 16 << 20, 64
_SECONDS, _SECONDS_PER_CHAR = 0.5, 2e-6
"""What one rendering may use, and how much more for each character that goes in. A usual one of 4,000 characters
takes less than a millisecond and makes some ten times its input."""

_STEP_CHARS, _UNTIMED_CHARS = 256, 8192
"""The clock is a system call: it is read once for so many characters, of which each step counts as many."""


@dataclass(slots=True)
class _Account:
    """What is left of a rendering's characters, when its time is up, and what was paid since the clock was read."""

    chars: int
    until_s: float
    untimed: int = 0

    def pay(self, chars: int) -> None:
        self.chars -= chars + 1
        if self.chars < 0:
            raise SecurityError("it makes too much text")
        self.untimed += chars + _STEP_CHARS
        if self.untimed > _UNTIMED_CHARS:
            self.untimed = 0
            if time.thread_time() > self.until_s:
                raise SecurityError("it takes too long")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose templates are bounded. `begin` comes before each rendering. Safe in several threads."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        self._of_thread = threading.local()
        # Nothing is computed while compiling, where nothing is paid for.
        super().__init__(optimized=False, finalize=pass_context(lambda _, value: self.shown(value)), **options)
        self.filters = {
            name: self.paid(name, function) for name, function in self.filters.items() if name not in REMOVED_FILTERS
        }
        del self.globals["lipsum"]

    def begin(self, input_chars: int) -> None:
        """One rendering with so much input begins in this thread."""
        chars, seconds = _CHARS + _CHARS_PER_CHAR * input_chars, _SECONDS + _SECONDS_PER_CHAR * input_chars
        self._of_thread.account = _Account(chars, time.thread_time() + seconds)

    def pay(self, chars: int) -> None:
        """Take so many characters, and one for the step itself, out of what is left. Raises SecurityError."""
        self._of_thread.account.pay(chars)

    def paid(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that is paid for."""
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = _listed(args)
            return self._bought(name, args[first:], kwargs, functools.partial(function, *args, **kwargs))

        return call

    # What templates do

    def joined(self, *values: Any) -> str:
        """`a ~ b`."""
        return "".join(map(self.shown, values))

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        result = value[start:stop:step]
        self.pay(size(result))
        return result

    def shown(self, value: Any) -> str:
        """`{{ value }}`."""
        account = self._of_thread.account
        if isinstance(value, str):
            account.pay(len(value))
            return value
        account.pay(written(value, account.chars))
        return str(value)

    # What jinja2 asks an environment for

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Meters().visit(tree)
        return tree.set_environment(self)  # type: ignore[return-value]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in REMOVED_METHODS and super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)  # the sandbox wraps str.format
        if not isinstance(owner, str):
            result = super().call(__context, __obj, *args, **kwargs)
            __self.pay(size(result))
            return result
        args = _listed(args)
        # A text joins its argument; the filter of that name is given what is joined first.
        operands = (*args, owner) if __obj.__name__ == "join" else (owner, *args)
        # jinja2 hides variables of its own among a call's keywords.
        options = {name: value for name, value in kwargs.items() if not name.startswith("_")}
        call = functools.partial(super().call, __context, __obj, *args, **kwargs)
        return __self._bought(__obj.__name__, operands, options, call)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and isinstance(left, str) and isinstance(right, str):  # most of what templates do
            self._of_thread.account.pay(len(left) + len(right))
            return left + right
        call = functools.partial(super().call_binop, context, operator, left, right)
        return self._bought(operator, (left, right), {}, call)

    def _bought(self, name: str, operands: tuple[Any, ...], options: dict[str, Any], make: Callable[[], Any]) -> Any:
        """What an operation makes of its operands: paid for before as far as that tells, and then for what it is."""
        account = self._of_thread.account
        known = price(name, operands, options, account.chars)
        account.pay(known)
        result = make()
        if (more := size(result) - known) > 0:
            account.pay(more)
        return result


def _listed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with lists in place of what can be read only once, so that they can be looked at before."""
    return tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)


class _Meters(NodeTransformer):
    """Has loops, macros and the operators that jinja2 computes by itself pay."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        match node:
            case nodes.Concat():
                return _call("joined", node.nodes, node.lineno)
            case nodes.Getitem(arg=nodes.Slice() as cut):
                parts = [part or nodes.Const(None) for part in (cut.start, cut.stop, cut.step)]
                return _call("sliced", [node.node, *parts], node.lineno)
            case nodes.For() | nodes.Macro() | nodes.CallBlock() | nodes.Block():
                chars = sum(len(text.data) for inner in node.body for text in inner.find_all(nodes.TemplateData))
                pay = _call("pay", [nodes.Const(chars)], node.lineno)
                node.body.insert(0, nodes.ExprStmt(pay, lineno=node.lineno))
        return node


def _call(method: str, arguments: Sequence[nodes.Expr], line: int) -> nodes.Call:
    """A call of one of the environment's methods."""
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None, lineno=line)
