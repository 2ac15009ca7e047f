"""Launch a study: hand its items to reviewers until each is rated as often as it shall be.

    parlai persona_rate launch STUDY
    python -m persona_agents.crowdsourcing.persona_rating.run mephisto.blueprint.study=STUDY

The second form is how ParlAI's own crowdsourcing tasks are started and takes hydra's options, such
as `conf=mturk_sandbox`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_agents.crowdsourcing.compat import import_mephisto

import_mephisto()

import hydra
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from mephisto.operations.hydra_config import config as config_store
from mephisto.operations.registry import get_crowd_provider_from_type
from mephisto.tools.scripts import augment_config_from_db
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from parlai.crowdsourcing.utils.mturk import MTurkRunScriptConfig

from persona_agents.crowdsourcing.persona_rating import architect, blueprint  # noqa: F401
from persona_agents.crowdsourcing.persona_rating.costs import costs_of
from persona_agents.crowdsourcing.persona_rating.database import open_database
from persona_agents.crowdsourcing.persona_rating.ledger import Ledger, settle_old_runs
from persona_agents.crowdsourcing.persona_rating.operator import RatingOperator
from persona_agents.crowdsourcing.study import Study, read_study
from persona_agents.errors import PersonaAgentsError

HERE = Path(__file__).resolve().parent
CONFIGS = HERE / "hydra_configs"
SECONDS_BETWEEN_REPORTS = 30
HYDRA = "1.1"  # ParlAI's and Mephisto's scripts are written for its behaviour
warnings.filterwarnings("ignore", message='(?s).*version_base="1.1"')


class LaunchError(PersonaAgentsError):
    """The study cannot be launched."""


@dataclass
class ScriptConfig(MTurkRunScriptConfig):
    """The defaults of the script; the files in hydra_configs/conf hold the rest."""

    defaults: list[Any] = field(default_factory=lambda: ["_self_", {"conf": "local"}])
    task_dir: str = str(HERE)


config_store.store(name="scriptconfig", node=ScriptConfig)


def configuration(conf: str, study, overrides=()) -> DictConfig:
    """
    The whole configuration of a launch.

    :param conf: a file of hydra_configs/conf: local, mturk_sandbox, mturk
    :param overrides: further settings as hydra takes them, `mephisto.architect.port=3001`
    """
    settings = [f"conf={conf}", *overrides]
    try:
        with initialize_config_dir(str(CONFIGS), version_base=HYDRA):
            config = compose("scriptconfig", overrides=settings)
        config.mephisto.blueprint.study = str(Path(study).expanduser().resolve())
    except (HydraException, OmegaConfBaseException) as error:
        raise LaunchError(f"--set or --config: {error}") from error
    return config


def launch(config: DictConfig, say=print) -> dict:
    """
    Run a study until it is complete or somebody stops it (Ctrl-C, SIGTERM); then clean up.

    Started again, it asks for what is missing only.

    :param config: see :func:`configuration`
    :param say: receives what is to be told to the user
    :return: `{"missing": ratings that are still missing, "stopped": why, None if complete}`
    """
    study = read_study(config.mephisto.blueprint.study)
    study.database.parent.mkdir(exist_ok=True)
    with _only_one(study):
        db = open_database(study)
        settle_old_runs(db, study)
        missing = Ledger(db, study).total_missing()
        everything = len(study.items) * study.reviewers
        say(f"{study.folder}: {everything - missing} of {everything} ratings are there")
        if not missing:
            return {"missing": 0, "stopped": None}
        say(costs_of(missing, config.mephisto.task.task_reward, config.mephisto.provider))
        _register_requester(config, db)
        config = augment_config_from_db(config, db)
        config.mephisto.task.task_name = study.task_name
        with _signals() as stop:
            return _run(config, db, stop, say)


def _run(config, db, stop: threading.Event, say) -> dict:
    operator = RatingOperator(db)
    try:
        operator.launch_task_run_or_die(config.mephisto)
        operator.run.blueprint.note_assignments(operator.run.task_launcher.assignments)
        runner = operator.run.task_runner
        if config.mephisto.architect._architect_type == "persona_local":
            host, port = config.mephisto.architect.hostname, config.mephisto.architect.port
            say(
                f"Reviewers open http://{host}:{port}/ (each with a name of their own). "
                "Ctrl-C stops; launching again goes on where it stopped."
            )
        reported = [time.monotonic()]

        def report():
            if time.monotonic() - reported[0] > SECONDS_BETWEEN_REPORTS:
                reported[0] = time.monotonic()
                say(f"{runner.ledger.total_missing()} ratings are missing")

        patience = config.mephisto.task.no_submission_patience
        reason = operator.serve(stop, patience, report)
    except ConnectionRefusedError as error:
        raise LaunchError("The page's server went away while the launch began") from error
    finally:
        # From here on signals only set an event that nobody reads: cleaning up goes to its end.
        operator.close()
    missing = runner.ledger.total_missing()
    say(
        "All ratings are there."
        if not missing
        else f"Stopped ({reason}): {missing} ratings are missing. Launch again to go on."
    )
    return {"missing": missing, "stopped": reason if missing else None}


@contextlib.contextmanager
def _signals():
    """Turn Ctrl-C and SIGTERM into an event, so that none of them can interrupt cleaning up."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # a test; signals belong to the main thread
        return

    def handler(number, frame):
        print("Cleaning up ..." if not stop.is_set() else "Still cleaning up ...", flush=True)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, handler) for number in numbers]
    try:
        yield stop
    finally:
        for number, old in zip(numbers, previous):
            signal.signal(number, old)


@contextlib.contextmanager
def _only_one(study: Study):
    """Two launches of one study would hand out the same items."""
    import portalocker

    lock = portalocker.Lock(
        study.database.with_name("launch.lock"),
        flags=portalocker.LOCK_EX | portalocker.LOCK_NB,
    )
    try:
        lock.acquire(timeout=0)
    except portalocker.LockException as error:
        raise LaunchError(f"{study.folder} is being run by another process") from error
    try:
        yield
    finally:
        lock.release()


def _register_requester(config: DictConfig, db) -> None:
    """
    Enter the requester into the study's database, with the account that AWS's own files hold.

    :raises LaunchError: if that account is missing
    """
    provider = config.mephisto.provider
    if provider._provider_type == "mock":
        return
    # in the sandbox Mephisto's name for the requester is that of the account with "_sandbox" added
    known = db.find_requesters(provider_type=provider._provider_type)
    named = [r for r in known if provider.requester_name in (r.requester_name, r._requester_name)]
    cls = get_crowd_provider_from_type(provider._provider_type).RequesterClass
    requester = named[0] if named else cls.new(db, provider.requester_name)
    if not requester.is_registered():
        raise LaunchError(
            f"There is no AWS profile {requester._requester_name!r}. Make one with "
            f"`aws configure --profile {requester._requester_name}`, or name another: "
            "--set mephisto.provider.requester_name=NAME"
        )
    provider.requester_name = requester.requester_name


@hydra.main(config_path="hydra_configs", config_name="scriptconfig", version_base=HYDRA)
def main(config: DictConfig) -> None:
    if OmegaConf.is_missing(config.mephisto.blueprint, "study"):
        raise LaunchError("Name the study's folder: mephisto.blueprint.study=FOLDER")
    # hydra has changed into a folder of its own
    config.mephisto.blueprint.study = hydra.utils.to_absolute_path(config.mephisto.blueprint.study)
    launch(config)


if __name__ == "__main__":
    main()
