"""Who else may change a file that a program takes up unasked, from its working directory or a cache."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


def other_writer(file: Path) -> str:
    """Says why a file may be another user's work, in words that follow its name; empty if it may not.

    Like git and ssh, trusts root, this user, and a group that has nobody but this user. A symbolic link must
    be theirs, too. Folders in which everybody may create, but not replace what is another's, do no harm.

    Raises:
        OSError: There is no such file, or it cannot be looked at.
    """
    link, status = file.lstat(), file.stat()
    for each in (link, status):
        if each.st_uid not in (0, os.geteuid()):
            return f"belongs to user {_name(each.st_uid)}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "may be written by everybody"
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and not _is_own(status.st_gid):
        return f"may be written by group {status.st_gid}"
    return ""


def other_writer_above(file: Path) -> str:
    """Says the same of a file and all folders above it: whoever may write to one may replace the file."""
    place = file.resolve()
    for each in (file, place, *place.parents):
        if why := other_writer(each):
            return f"{each} {why}"
    return ""


def _is_own(group: int) -> bool:
    """Tells whether a group is the one that a system makes for this user: of its name, with nobody else."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


class Lease(Protocol):
    """A connection to the one lease of an outbox; used by one thread.

    A lease runs out after ``seconds`` by the database's clock, or when a process that wants it has seen the
    same renewal for that long by a monotonic clock of its own (:class:`outbox_sdk.election.LeaseWatch`),
    whichever comes first. The holder counts from before its call, by a monotonic clock, too.

    * If the database's clock goes back, a holder that renews keeps its lease, and one that is gone is
      replaced once somebody else has looked at the lease for its length.
    * If the clock goes forward, another process may take the lease early. The former holder learns it at its
      next renewal; until then both believe that they have it.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. It is then unknown
    until the next call whether the call took effect.
    """

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own; durable on return.

        Standbys call it several times a second: it writes nothing and locks nothing for a process that does
        not get the lease.

        Args:
            holder: A name that no other process has ever used.
            seconds: For how long, from now on.

        Returns:
            The number of the leadership: the same while the holder stays the same, and larger with each new
            holder; ``None`` while another process holds the lease.
        """
        ...

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it. Idempotent."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...


class Members(Protocol):
    """A connection to the list of members; used by one thread.

    The list says who is here and how many outboxes each leads. Nothing depends on it but how evenly the
    leaderships are spread, so it need not survive a crash of the database.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached. It is then
    unknown until the next call whether the call took effect.
    """

    def note(self, group: str, member: str, leads: int, seconds: float) -> Mapping[str, int]:
        """Notes that a member is here, and how many outboxes it leads.

        A list that is kept by a database never grows beyond the most members that were alive at a time: the
        place of one that has left, or has not noted itself for ten times ``seconds``, is given to the next.

        Args:
            group: The members that share outboxes; 64 characters. A longer name is cut and made distinct.
            member: A name that no other process has ever used; 128 characters, as above.
            leads: How many outboxes the member leads, 0 or more.
            seconds: For how long a member counts after it has noted itself, by the database's clock.

        Returns:
            Member → how many outboxes it leads, for all members of the group that count, itself included.
        """
        ...

    def leave(self, member: str) -> None:
        """Takes a member off the list at once. Idempotent, as is a note afterwards, which puts it back."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
