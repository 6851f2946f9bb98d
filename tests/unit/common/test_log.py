"""A log line is one line, whoever wrote its words."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.log import Seldom, configure


@pytest.fixture(autouse=True)
def handlers():
    """Leave logging as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def line(text):
    configure("ingest0")
    handler = logging.getLogger().handlers[0]
    return handler.format(logging.LogRecord("fourstroke", logging.INFO, __file__, 1, "model %s", (text,), None))


@given(st.text())
def test_one_line(text):
    """Nothing in a message can begin a new line or move the cursor, and ordinary text is kept."""
    written = line(text)
    assert len(written.splitlines()) == 1
    assert all(char == "\t" or not ord(char) < 32 for char in written)
    assert "\x9b" not in written


@pytest.mark.parametrize(
    "text, shown",
    [
        ("a\nb", r"a\x0ab"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x85", r"\x85"),
        ("\u2028", r"\u2028"),
        ("世界 👋\t", "世界 👋\t"),
    ],
    ids=["newline", "escape", "next-line", "line-separator", "text"],
)
def test_escapes(text, shown):
    """Control characters are shown escaped; text is shown as it is."""
    assert line(text).endswith(f"I ingest0: model {shown}")


def test_a_traceback_forges_nothing():
    """Its lines are kept, indented and escaped: not even the message of an error looks like a line of the log."""
    configure("ingest0")
    try:
        raise ValueError("cause\n12:00:00.000 I ingest0: forged \x1b[2J")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("fourstroke", logging.ERROR, __file__, 1, "it failed", (), info)
    first, *rest = logging.getLogger().handlers[0].format(record).splitlines()
    assert first.endswith("E ingest0: it failed")
    assert rest[-2:] == ["    ValueError: cause", r"    12:00:00.000 I ingest0: forged \x1b[2J"]
    assert all(line.startswith("    ") for line in rest)


def test_level():
    """What is below the level asked for is not written."""
    log = configure("ingest0", "warning")
    assert (log.isEnabledFor(logging.WARNING), log.isEnabledFor(logging.INFO)) == (True, False)


def test_what_happens_again_and_again_is_logged_seldom():
    """Once in 10 s, counted from the last line."""
    times = iter([0.0, 1.0, 9.9, 10.0, 11.0, 30.0])
    seldom = Seldom(lambda: next(times))
    assert [seldom.is_due() for _ in range(6)] == [True, False, False, True, False, True]
