"""The sandbox of chat templates: the same texts as transformers, and no way out."""

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.template import BrokenTemplate, ChatTemplate

MESSAGES = [{"role": "user", "content": "a <b> 'é'"}, {"role": "assistant", "content": "yes"}]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).render(MESSAGES)


@pytest.mark.parametrize(
    "source, text",
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>a <b> 'é'</s>"),
        ("{% if add_generation_prompt %}\nGo{% endif %}", "Go"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "a <b> \'é\'"}'),
        ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("  {% for m in messages %}\n{{ m.role }}\n  {% endfor %}", "user\nassistant\n"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{{ tools is none }}{{ unknown is defined }}", "TrueFalse"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_environment(source: str, text: str) -> None:
    """Variables, filters, functions and white space are those that templates are written for."""
    assert render(source) == text


def test_developer_is_the_system_where_a_template_does_not_know_it() -> None:
    """The newer name of the role gives the older one's prompt; a template that has the newer one gets it."""
    roles = "{% for m in messages %}{{ m.role }} {% endfor %}"
    messages = [{"role": role, "content": ""} for role in ("developer", "user", "system")]
    assert ChatTemplate(roles, {}).render(messages) == "system user system "
    assert ChatTemplate(roles + "{# developer #}", {}).render(messages) == "developer user system "


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system role') }}",
        "{{ messages[5].content.x }}",
        "{{ 'a' + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ [].__class__.__base__.__subclasses__() }}",
        "{{ {}['x'] + 'y' }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_errors_are_the_requests(source: str) -> None:
    """A template that fails, or leaves the sandbox, is a request that the template does not take."""
    with pytest.raises(InvalidRequest) as raised:
        render(source)
    assert raised.value.param == "messages"


def test_refusal_of_the_template() -> None:
    """What a template says to a conversation that it does not take is what the client reads."""
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source, takes",
    [
        ("{{ messages }}", False),
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("tools{{ messages.tools }}", False),
    ],
)
def test_takes_tools(source: str, takes: bool) -> None:
    """A template takes tools if it uses the variable; then it prints what it is given."""
    template = ChatTemplate(source, {})
    assert template.takes_tools is takes
    assert ('"f"' in template.render(MESSAGES, tools=[{"name": "f"}])) is takes


def test_broken_template() -> None:
    """A template that is no template is found out before anything is rendered."""
    with pytest.raises(BrokenTemplate):
        render("{% for %}")


def test_as_transformers_renders() -> None:
    """The same text as transformers makes of a template with all of the above."""
    module = pytest.importorskip("transformers.utils.chat_template_utils")
    source = (
        "{%- for m in messages %}\n  {%- if m.role == 'user' %}\n{{ bos_token + m.content }}\n"
        "  {% else %}\n {{ m | tojson }}\n  {% endif %}\n{% endfor %}\n"
        "{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}"
    )
    theirs, _ = module.render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert [render(source)] == theirs
