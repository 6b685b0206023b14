"""Parses YAML into a tree that keeps the line of each value and its text as written.

Scalars stay text, and the type of the setting decides how they are converted. So an unquoted password
``0123`` keeps its zero, and a group named ``on`` keeps its name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from outbox_api.base.errors import ConfigError
from outbox_api.support.file_text import FileText, present_text

from outbox_core.config.environment import Environment
from outbox_core.config.problems import Place, Problem, Problems, join

_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"
_YAML = "tag:yaml.org,2002:"
_KNOWN = {
    f"{_YAML}{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value")
}

MAX_NODES = 100_000
"""How many values a document may have, those that aliases repeat included."""
MAX_DEPTH = 50
"""How deep sections and lists may be nested."""

_READ_LATER = ("http.viewerTokens", "http.operatorTokens")
"""Whose files only ``HttpSettings.check_files`` reads: most commands need none, and may not be allowed to."""

# The parser quotes what it found, maybe a part of a secret. Its words for tokens, brackets and tabs are none.
_HARMLESS = re.compile(r"""'(<[a-z ]+>|[-,:?\[\]{}]|\\t)'""")
_TO_QUOTE = "a value with special characters needs quotes around it"


@dataclass(frozen=True)
class Scalar:
    """A single value."""

    place: Place  # where it stands
    text: str | None
    """The text, with environment variables and files replaced; ``None`` for YAML's null or for nothing at
    all. Empty if it refers to files that are not read here."""
    boolean: bool | None = None  # its value if YAML reads the unquoted text as a boolean, else None
    substituted: bool = False  # whether an environment variable or a file was replaced in it
    files: FileText | None = None  # the same text with the references to files in it; None if it has none


@dataclass(frozen=True)
class Section:
    """A mapping: key → where the key is, and its value."""

    place: Place
    entries: Mapping[str, tuple[Place, "Node"]] = field(default_factory=dict)

    def value(self, key: str) -> "Node | None":
        """Returns the value of a key; ``None`` if the key is not written."""
        return self.entries[key][1] if key in self.entries else None


@dataclass(frozen=True)
class Items:
    """A list."""

    place: Place
    values: Sequence["Node"]


Node = Scalar | Section | Items


def is_null(node: Node | None) -> bool:
    """Returns whether a value is null, which is as good as not written, or is not written."""
    return node is None or (isinstance(node, Scalar) and node.text is None)


def read(text: str, source: str, environment: Environment, problems: Problems) -> Node | None:
    """Returns the document as a tree, or ``None`` for an empty one."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(str(_syntax_problem(error, text, source))) from None  # the cause quotes the file
    except RecursionError:
        raise ConfigError(f"{source}: nested deeper than {MAX_DEPTH} sections and lists") from None
    return _TreeBuilder(source, environment, problems).node(root, "", ()) if root else None


def tree(data: Mapping[str, Any], source: str, environment: Environment, problems: Problems) -> Node:
    """Returns plain Python data as a tree, as if it had been parsed from YAML."""
    try:
        root = yaml.SafeDumper("").represent_data(data)  # type: ignore[arg-type]  # the stream is not used
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: holds a value that YAML cannot express") from error
    return _TreeBuilder(source, environment, problems).node(root, "", ())


def with_value(section: Section, path: Sequence[str], value: Scalar) -> Section:
    """Returns ``section`` with ``value`` at ``path``; creates missing sections on the way."""
    key, rest = path[0], path[1:]
    place, old = section.entries.get(key, (value.place, None))
    new: Node = value
    if rest:
        new = with_value(old if isinstance(old, Section) else Section(value.place), rest, value)
    return Section(section.place, {**section.entries, key: (place, new)})


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    """Returns the parser's error, without the lines of the file that it quotes."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        context = error.context or ""
        reason = f"{context}, {error.problem}" if context.startswith("expected") else error.problem or ""
        return Problem(Place(source, error.problem_mark.line + 1), "", f"not valid YAML: {_shown(reason)}")
    line = text.count("\n", 0, getattr(error, "position", 0)) + 1
    return Problem(Place(source, line), "", "not valid YAML: a character that YAML does not allow")


def _shown(reason: str) -> str:
    """Cuts what the parser says before the first quotation of the file."""
    blank = _HARMLESS.sub(lambda found: "." * len(found[0]), reason)
    quote = re.search(r"""\s*['"]""", blank)
    return f"{reason[: quote.start()]}: {_TO_QUOTE}" if quote else reason


@dataclass
class _TreeBuilder:
    source: str
    environment: Environment
    problems: Problems
    nodes: int = 0

    def node(self, node: yaml.Node, path: str, ancestors: tuple[yaml.Node, ...]) -> Node:
        place = self.place(node)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ConfigError(f"{self.source}: more than {MAX_NODES:,} values, those of aliases included")
        if len(ancestors) > MAX_DEPTH:
            raise ConfigError(f"{place}: nested deeper than {MAX_DEPTH} sections and lists")
        if any(node is ancestor for ancestor in ancestors):
            self.problems.add(place, path, "an alias that contains itself")
            return Scalar(place, None)
        if node.tag not in _KNOWN:
            self.problems.add(place, path, f"tags are not supported: {_TO_QUOTE}")
        if isinstance(node, yaml.MappingNode):
            return self.section(node, path, (*ancestors, node))
        if isinstance(node, yaml.SequenceNode):
            values = [
                self.node(value, f"{path}[{index}]", (*ancestors, node))
                for index, value in enumerate(node.value)
            ]
            return Items(place, values)
        return self.scalar(node, path)

    def scalar(self, node: yaml.Node, path: str) -> Scalar:
        place, written = self.place(node), str(node.value)
        if node.tag == _NULL:
            return Scalar(place, None)
        try:
            written = _joined(written)
            replaced = self.environment.substitute(written)
            later = isinstance(replaced, FileText) and path.startswith(_READ_LATER)
            text = "" if later else present_text(replaced)
        except (ValueError, ConfigError) as error:
            self.problems.add(place, path, str(error))
            return Scalar(place, None)
        if isinstance(replaced, FileText):
            return Scalar(place, text, substituted=True, files=replaced)
        quoted = getattr(node, "style", None) is not None
        if not text and not quoted:
            return Scalar(place, None)
        boolean = None if quoted else _boolean(node.tag if text == written else _implicit_tag(text), text)
        return Scalar(place, text, boolean, substituted=text != written)

    def section(self, node: yaml.MappingNode, path: str, ancestors: tuple[yaml.Node, ...]) -> Section:
        entries: dict[str, tuple[Place, Node]] = {}
        merged: dict[str, tuple[Place, Node]] = {}
        for key, value in node.value:
            place = self.place(key)
            if key.tag == _MERGE:
                merged = {**self.merged(value, path, ancestors), **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self.problems.add(place, path, "a key must be a single value")
            elif key.value in entries:
                first = entries[key.value][0]
                self.problems.add(place, join(path, key.value), f"written twice; first in line {first.line}")
            else:
                entries[key.value] = (place, self.node(value, join(path, key.value), ancestors))
        return Section(self.place(node), {**merged, **entries})

    def merged(
        self, value: yaml.Node, path: str, ancestors: tuple[yaml.Node, ...]
    ) -> dict[str, tuple[Place, Node]]:
        # The first of several merged mappings wins, as YAML's merge key demands.
        entries: dict[str, tuple[Place, Node]] = {}
        for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            section = self.node(part, path, ancestors)
            if isinstance(section, Section):
                entries = {**section.entries, **entries}
            else:
                self.problems.add(self.place(value), path, "'<<' takes a mapping")
        return entries

    def place(self, node: yaml.Node) -> Place:
        return Place(self.source, node.start_mark.line + 1 if node.start_mark else 0)


def _joined(text: str) -> str:
    """Joins the two halves of characters that JSON writes as two escapes, which the parser reads alone."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("an escape is half a character: write the character itself") from None


def _implicit_tag(text: str) -> str:
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], []):
        if pattern.match(text):
            return str(tag)
    return ""


def _boolean(tag: str | None, text: str) -> bool | None:
    return bool(yaml.SafeLoader.bool_values[text.lower()]) if tag == _BOOL else None
