"""Who may read what of a host's files, by owner and mode. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .weights import Entry


@dataclass(frozen=True, slots=True)
class User:
    """Who the container's processes are on the host; None where that is not known."""

    uid: int | None
    gid: int | None = None

    @classmethod
    def named(cls, text: str | None) -> User:
        """Docker's form: a number or name, and the group's behind a colon; None is root."""
        name, _, group = (text or "0").partition(":")
        uid = 0 if name == "root" else int(name) if name.isdigit() else None
        return cls(uid, int(group) if group.isdigit() else 0 if not group else None)

    def may(self, entry: Entry) -> bool:
        """Whether the mode lets it read a file, or list and enter a directory; no ACLs."""
        if self.uid is None or self.uid == 0:
            return True
        wanted = 0o5 if entry.is_directory else 0o4
        shift = 6 if entry.uid == self.uid else 3 if entry.gid == self.gid else 0
        return (entry.mode >> shift) & wanted == wanted
