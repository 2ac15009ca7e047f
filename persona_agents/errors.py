"""The one exception type that users of this plug-in are meant to see."""

from __future__ import annotations


class PersonaAgentsError(RuntimeError):
    """
    Something that the user can put right: a missing file, a wrong option, a broken checkpoint.

    The message is complete by itself: it names the file, line or option and the way out. The
    ``parlai`` command prints it without a traceback and exits with status 1.
    """
