"""The offline API and the commands on top of it, over real processes with the fake executor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from fourstroke import LLM, SamplingParams
from fourstroke.common.errors import ConfigError, InvalidRequest, ModelError, ServerError

from .server import leftovers, start_server, wait_gone, wait_metric

SHORT = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(executor="fake", max_num_seqs=8) as llm:
        yield llm


def started(before: set[psutil.Process]) -> dict[str, psutil.Process]:
    """The processes below this one that were not there before, by their roles."""
    new = set(psutil.Process().children(recursive=True)) - before
    return {child.cmdline()[0].removeprefix("fourstroke: "): child for child in new}


@pytest.fixture
def before() -> set[psutil.Process]:
    """The processes below this one before a test."""
    return set(psutil.Process().children(recursive=True))


def test_order_and_counts(llm: LLM) -> None:
    """There is a completion for each prompt, in order, however many there are."""
    prompts = [f"number {number}" for number in range(50)]
    completions = llm.generate(prompts, SHORT, progress=False)
    assert [completion.prompt for completion in completions] == prompts
    assert {completion.completion_tokens for completion in completions} == {4}
    assert {completion.finish_reason for completion in completions} == {"length"}


def test_one_is_a_list_of_one(llm: LLM) -> None:
    """A single text, or a single list of ids, is a batch of one."""
    assert llm.generate("Hi", SHORT, progress=False) == llm.generate(["Hi"], SHORT, progress=False)
    assert llm.generate([1, 2, 3], SHORT, progress=False) == llm.generate([[1, 2, 3]], SHORT, progress=False)
    assert llm.generate([], SHORT) == []


def test_params_for_each(llm: LLM) -> None:
    """Every prompt may have parameters of its own; a list of another length is refused."""
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (1, 2, 3)]
    completions = llm.generate(["Hi"] * 3, params, progress=False)
    assert [completion.completion_tokens for completion in completions] == [1, 2, 3]
    with pytest.raises(InvalidRequest, match="3 params for 2 prompts"):
        llm.generate(["Hi"] * 2, params)


def test_choices(llm: LLM) -> None:
    """With n choices a completion has n of them and counts the tokens of all."""
    (completion,) = llm.generate("Hi", SamplingParams(n=3, max_tokens=4, ignore_eos=True), progress=False)
    assert len(completion.choices) == 3
    assert completion.completion_tokens == 12


def test_chat(llm: LLM) -> None:
    """One conversation or several are answered; the template's tokens count as prompt."""
    messages = [{"role": "user", "content": "Hi"}]
    (one,) = llm.chat(messages, SHORT, progress=False)
    assert [one.choices] * 2 == [same.choices for same in llm.chat([messages, messages], SHORT, progress=False)]
    assert one.prompt_tokens > 1


def test_prefix_cache(llm: LLM) -> None:
    """A prompt is found in the prefix cache until that is reset, and never by another tenant."""

    def cached(**fields: str) -> int:
        (completion,) = llm.generate([[*range(100, 140)]], SamplingParams(max_tokens=1, **fields), progress=False)  # type: ignore[arg-type]
        return completion.cached_tokens

    assert (cached(), cached(), cached(cache_salt="x"), cached(cache_salt="x")) == (0, 32, 0, 32)
    llm.reset_prefix_cache()
    assert (cached(), cached(cache_salt="x")) == (0, 0)


def test_from_threads(llm: LLM) -> None:
    """Several threads may use one LLM."""
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(llm.generate, f"thread {number}", SHORT, False) for number in range(8)]
    assert [call.result()[0].prompt for call in calls] == [f"thread {number}" for number in range(8)]


def test_refused_prompt(llm: LLM) -> None:
    """A prompt that cannot be served raises the server's words, and the LLM goes on working."""
    with pytest.raises(InvalidRequest, match="tokens"):
        llm.generate(["Hi", "far too long " * 10_000], SHORT, progress=False)
    assert llm.generate("Hi", SHORT, progress=False)


def test_server_dies_in_the_middle(before: set[psutil.Process]) -> None:
    """When the server dies under a call, the call ends with the cause, and nothing is left."""
    endless = SamplingParams(max_tokens=8000, ignore_eos=True)
    with LLM(executor="fake", fake_step_s=0.05, max_restarts=0) as llm:
        processes = started(before)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(llm.generate, ["Hi"] * 4, endless, progress=False)
            wait_metric(llm.url, "requests_running", "scheduler0", lambda running: running == 4)
            processes["scheduler"].kill()
            with pytest.raises(ServerError, match="scheduler0 was killed by SIGKILL"):
                call.result()
        with pytest.raises(ServerError, match="scheduler0 was killed by SIGKILL"):
            llm.generate("Hi", SHORT, progress=False)
    assert leftovers(processes["launcher"].pid) == []


def test_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment is for servers that others reach; a private one asks for none."""
    monkeypatch.setenv("FOURSTROKE_API_KEY", "sesame-4711")
    with LLM(executor="fake") as llm:
        assert llm.generate("Hi", SHORT, progress=False)


def test_closed(before: set[psutil.Process]) -> None:
    """After close() the processes are gone and calls are refused; closing again is nothing."""
    llm = LLM(executor="fake")
    pids = [child.pid for child in started(before).values()]
    llm.close()
    llm.close()
    assert wait_gone(pids, 0) == []
    with pytest.raises(ServerError, match="closed"):
        llm.generate("Hi")
    with pytest.raises(ServerError, match="closed"):
        llm.reset_prefix_cache()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"threads": -1}, ConfigError, "--threads"),
        ({"prefix_cache": "no"}, ConfigError, "prefix_cache"),
        ({"no_such_option": 1}, ConfigError, "no_such_option"),
        ({"port": 8000}, ConfigError, "port"),
        ({"model": "/no/such/model"}, ModelError, "/no/such/model"),
    ],
)
def test_refused_options(options: dict[str, object], kind: type[Exception], words: str) -> None:
    """What cannot start raises, with the cause in words."""
    with pytest.raises(kind, match=words):
        LLM(**options)  # type: ignore[arg-type]


def test_ends_with_its_program() -> None:
    """A program that is killed takes its server along, without closing anything."""
    program = "from fourstroke import LLM; llm = LLM(executor='fake'); print('up', flush=True); input()"
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdin is not None
    assert owner.stdout.readline() == b"up\n"
    pids = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert len(pids) == 6
    owner.kill()
    owner.wait()
    assert wait_gone(pids, 20) == []
    owner.stdin.close()
    owner.stdout.close()


def test_needs_no_torch() -> None:
    """The program that uses an LLM does not load torch."""
    program = "import sys, fourstroke; fourstroke.LLM; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the `fourstroke` command to its end."""
    command = [sys.executable, "-P", "-m", "fourstroke", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_generate_command() -> None:
    """`fourstroke generate` prints the text and nothing else to standard output; the same again is the same."""
    once, again = (command("generate", "Hi", "--executor=fake", "--max-tokens=4") for _ in range(2))
    assert once.returncode == 0, once.stderr
    assert once.stdout.strip()
    assert once.stdout == again.stdout


def test_chat_command() -> None:
    """`fourstroke chat` answers each line of a pipe, one after the other, until /exit or the end."""
    with start_server("--executor=fake") as server:
        url = server.wait_ready()
        once = command("chat", "--url", url, "--max-tokens=4", input="Hi\n")
        twice = command("chat", "--url", url, "--max-tokens=4", input="Hi\n\nHi\n/exit\nHi\n")
    assert once.returncode == twice.returncode == 0, once.stderr + twice.stderr
    assert len(once.stdout.splitlines()) == 1
    assert len(twice.stdout.splitlines()) == 2
    assert twice.stdout.startswith(once.stdout)


def test_chat_without_a_server() -> None:
    """A server that is not there is one line and status 1."""
    done = command("chat", "--url", "http://127.0.0.1:9", input="Hi\n")
    assert done.returncode == 1
    assert done.stderr.startswith("fourstroke: error: http://127.0.0.1:9 does not answer")


def test_terminated_command_leaves_nothing() -> None:
    """SIGTERM ends `fourstroke generate` and the server that it started."""
    arguments = ["generate", "Hi", "Ho", "--executor=fake", "--fake-step=0.05", "--max-tokens=8000"]
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "fourstroke", *arguments],
        stderr=subprocess.PIPE,
        env={**os.environ, "FORCE_COLOR": "1"},  # shows the progress bar on a pipe: the server is ready then
    )
    assert running.stderr is not None and running.stderr.read(1)
    below = [child.pid for child in psutil.Process(running.pid).children(recursive=True)]
    assert len(below) == 6
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 143
    assert wait_gone(below, 20) == []
    assert leftovers(running.pid) == []


def test_a_forked_child_leaves_the_server_alone() -> None:
    """A child of a program that has an LLM ends as any other, and the program's LLM goes on."""
    script = (
        "import os\n"
        "from fourstroke import LLM, SamplingParams\n"
        "with LLM(executor='fake') as llm:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        raise SystemExit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    print(len(llm.generate(['a', 'b'], SamplingParams(max_tokens=2), progress=False)))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2\n"
