"""What a command and a group of commands are, for the program that is put together of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc

import typer


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        function: What it does; its parameters are the options, its docstring is the help.
        examples: Calls as they are typed, for ``--help``.
    """

    function: Callable[..., None]
    examples: Sequence[str]

    @property
    def name(self) -> str:
        """How it is called; a function that would hide a name of Python's ends in an underscore."""
        return self.function.__name__.rstrip("_").replace("_", "-")

    def add_to(self, app: typer.Typer) -> None:
        """Makes it a command of a program or group."""
        app.command(self.name, help=help_text(self.function.__doc__ or "", self.examples))(self.function)


@dataclass(frozen=True)
class Group:
    """Commands that share their first word.

    Attributes:
        name: That word.
        text: What they are about, in Markdown.
        commands: The commands; the first example of each is the group's too.
    """

    name: str
    text: str
    commands: Sequence[Command]

    def add_to(self, app: typer.Typer) -> None:
        """Makes it a group of a program."""
        group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
        for command in self.commands:
            command.add_to(group)
        examples = [command.examples[0] for command in self.commands]
        app.add_typer(group, name=self.name, help=help_text(self.text, examples))


def help_text(text: str, examples: Sequence[str]) -> str:
    """Returns help in Markdown: the text, and examples as they are typed."""
    return "\n".join([cleandoc(text), "", "**Examples**", "", "```", *examples, "```"])
