"""Bounds of the sandbox: no template takes long or much memory, and what templates need works as in jinja2's own."""

import tracemalloc

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "yes\nno"}]
DOUBLED = "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = EXPRESSION %}{% endfor %}"
NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
LARGE = "{% set x = 'x' * 1000000 %}"

TOO_MUCH = [
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ [0] * 10**9 }}",
    *(
        DOUBLED.replace("EXPRESSION", expression)
        for expression in (
            "ns.x + ns.x",
            "ns.x ~ ns.x",
            "ns.x.replace('x', 'xx')",
            "ns.x | replace('x', 'xx')",
            "ns.x | replace(old='x', new='xx')",
            "ns.x.join([ns.x, ns.x, ns.x])",
            "[ns.x, ns.x] | join",
            "[1, 2, 3] | join(ns.x + 'x')",
            "[1, 2, 3] | map('string') | join(d=ns.x + 'x')",
            "'%s%s' % (ns.x, ns.x)",
            "'{}{}'.format(ns.x, ns.x)",
        )
    ),
    *(
        NESTED + shown
        for shown in ("{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns }}", "{{ '%s' % ns.x }}", "{{ ns.x ~ '' }}")
    ),
    *(NESTED + shown for shown in ("{{ ns.x | upper }}", "{{ {'a': ns.x}.values() }}", "{{ '{}'.format(ns.x) }}")),
    LARGE + "{{ ([x] * 1000) | sort }}",
    LARGE + "{{ ('{0}' * 1000).format(x) }}",
    LARGE + "{{ ('%(a)s' * 1000) % {'a': x} }}",
    "{% set ns = namespace(x=[0]) %}{% for i in range(40) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ([ns.x] * 100000) | tojson(indent=16) }}",
    "{% set n = 10 ** 4000 %}{{ ([n] * 200000) | join }}",
    LARGE + "{{ ([x] * 1000) | map('upper') | list }}",
    LARGE + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
    LARGE + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x.upper()] %}{% endfor %}",
    LARGE + "{% macro f() %}{{ x }}{% endmacro %}{% for i in range(9999) %}{{ f() }}{% endfor %}",
    "{% macro f() %}" + "y" * 9999 + "{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}",
    "{% for i in range(99999) %}" + "y" * 9999 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "y" * 9999 + "{% endfor %}{% endset %}",
]
PADDING = [
    "{{ 'x'.center(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.rjust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%(a)1000000000d' % {'a': 1} }}",
    "{{ '%(a(b)c)1000000000d' % {'a(b)c': 1} }}",
    "{{ 1.5 | round(10**9) }}",
    "{{ 1.5 | round(10**9, 'floor') }}",
    "{{ 1.5 | round(precision=10**9, method='ceil') }}",
    "{% set ns = namespace(x=[0]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ns.x | tojson(indent=1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ 'x\ny' | indent(10**9) }}",
    "{{ messages | tojson(indent=10**9) }}",
    "{{ messages | tojson(separators=('x' * 1000, ':')) }}",
]
REMOVED = [
    "{{ 'x'.expandtabs(10**9) }}",
    "{{ 'x'.translate({120: 'y'}) }}",
    "{{ (1).to_bytes(10**9) }}",
    "{{ 'x'.encode() }}",
    "{{ lipsum(n=10**6) }}",
]
NUMBERS = [
    "{{ 9 ** 999999999 }}",
    "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
]
TOO_LONG = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in messages * 1000 %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
]
OTHER = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
]


def render(source: str) -> str:
    return ChatTemplate(source, {}).render(MESSAGES)


def refused(source: str) -> str:
    with pytest.raises(InvalidRequest) as raised:
        render(source)
    return str(raised.value)


@pytest.mark.parametrize(
    "source, words",
    [
        *((source, "too much text") for source in TOO_MUCH),
        *((source, "pads too far") for source in PADDING),
        *((source, "") for source in REMOVED + OTHER),
        *((source, "too large") for source in NUMBERS),
        *((source, "too long") for source in TOO_LONG),
    ],
)
def test_bombs(source: str, words: str) -> None:
    """What would take all memory or time is a request that the template does not take."""
    assert words in refused(source)


@pytest.mark.parametrize("source", [source for source in TOO_MUCH if NESTED not in source])
def test_memory(source: str) -> None:
    """Little was made before it was refused."""
    tracemalloc.start()
    try:
        refused(source)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ (messages | attr('__class__')).mro() }}",
        "{{ self.__init__.__globals__.x }}",
        "{{ render.x }}{{ environment.begin(1) }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}",
    ],
)
def test_no_way_out(source: str) -> None:
    """A template reaches neither Python's insides nor the environment, and changes nothing that it is given."""
    assert refused(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m['content'].replace('a', 'bb').strip().split('\n')[-1] ~ loop.index }}{% endfor %}",
        "{% for m in messages[1:] %}{{ m.content[:2] + m.content[::-1] + '%s' % m.role }}{% endfor %}",
        "{{ '-'.join(messages | map(attribute='role')) }}{{ messages | map(attribute='role') | join(', ') }}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list }}{{ messages | rejectattr('x') | first }}",
        "{% for k, v in messages[0].items() %}{{ k }}={{ v }}{% endfor %}{{ messages[0] | items | list }}",
        "{{ messages[0].keys() | list }}{{ messages[0] | dictsort }}{{ messages[0].get('x', 'y') }}",
        "{% macro f(x, n) -%}{{ x * n }}{% if n %}{{ f(x, n - 1) }}{% endif %}{%- endmacro %}{{ f('ab', 3) | upper }}",
        "{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(n) f() %}{{ n + 1 }}{% endcall %}",
        "{% set x %}{% filter upper %}a{{ messages[0].role }}{% endfilter %}{% endset %}{{ x | length }}{{ x }}",
        "{% set ns = namespace(a=1, b='x') %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
        "{{ 'a\nb' | indent(2) }}{{ 'a\nb' | indent(width=1, first=True) }}{{ 'a'.center(5) }}{{ '%05.1f' % 2 }}",
        "{{ '{:>5}{}'.format(1, 2) }}{{ 7 % 3 }}{{ 2 ** 10 }}{{ 3 * 4 }}{{ [1] + [2] }}{{ [1] * 2 }}{{ (1, 2)[1:] }}",
        "{{ messages[0].content.startswith('a') }}{{ 'x' in 'xyz' }}{{ 'b' in messages[0].content.split() }}",
        "{{ none }}{{ true }}{{ 1.5 }}{{ undefined }}{{ undefined | default('d') }}{{ 'a' ~ 1 ~ none ~ undefined }}",
        "{{ messages | last | string | trim | title | truncate(9) }}{{ 'a,b'.rsplit(',', 1) }}{{ dict(a=1) }}",
        "{% for c in 'héé' | list | unique | sort %}{{ loop.previtem }}{{ c | e | safe }}{% else %}-{% endfor %}",
        "{% block b %}{{ messages | groupby('role') | length }}{% endblock %}{{ range(3) | list | reverse | list }}",
    ],
)
def test_same_as_without_bounds(source: str) -> None:
    """Whatever a template may do gives what jinja2 gives."""
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    assert render(source) == plain.from_string(source).render(messages=MESSAGES)


def test_bounds_grow_with_the_input() -> None:
    """A long conversation may make a long prompt, many times over."""
    messages = [{"role": "user", "content": "x" * 4_000_000}]
    source = "{% for i in range(30) %}{{ messages[0].content | trim }}{% endfor %}"
    assert len(ChatTemplate(source, {}).render(messages)) == 120_000_000


def test_each_rendering_has_its_own() -> None:
    """What one rendering used up is there for the next."""
    template = ChatTemplate("{{ 'x' * 7000000 }}", {})
    assert [len(template.render(MESSAGES)) for _ in range(5)] == [7_000_000] * 5
