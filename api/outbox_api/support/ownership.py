"""Who else may change a file that a program takes up unasked, from its working directory or a cache."""

import grp
import os
import pwd
import stat
from pathlib import Path


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
