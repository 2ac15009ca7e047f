"""Looking at ParlAI commands before they are run: an unknown option must not show after an hour."""

from __future__ import annotations

import contextlib
import io

from persona_agents.errors import PersonaAgentsError


def parse(script, arguments, where: str):
    """
    The options of a ParlAI command.

    :param script: its ParlaiScript class
    :param arguments: what follows its name
    :param where: how an error calls the place that they come from
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return script.setup_args().parse_args(list(arguments))
    except SystemExit:  # argparse has said what is wrong, in the last line
        reason = (said.getvalue().strip().splitlines() or ["it cannot be parsed"])[-1]
    except Exception as error:  # noqa: BLE001 - whatever the import of an agent or task raises
        reason = f"{type(error).__name__}: {error}"
    raise PersonaAgentsError(f"{where}: {reason.strip()}")


def check_sizes(opt, where: str) -> None:
    """Raise PersonaAgentsError for a batch of no samples, or an update of no batches."""
    for name in ("batchsize", "update_freq"):
        if opt.get(name) is not None and opt[name] < 1:
            raise PersonaAgentsError(f"{where}: {name} {opt[name]}: must be at least 1.")
