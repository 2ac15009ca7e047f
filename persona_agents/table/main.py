"""From the command's options to a folder of tables."""

from __future__ import annotations

import os
from pathlib import Path

from persona_agents.errors import PersonaAgentsError
from persona_agents.table import config as reading
from persona_agents.table import pages, pictures, plan
from persona_agents.table.checks import check
from persona_agents.table.files import write_json
from persona_agents.table.results import Results
from persona_agents.table.runner import Runner, locked
from persona_agents.table.scoring import Scoring


def main(opt) -> dict:
    """
    Do what is not done yet, then write tables and pictures.

    :return: the tables' rows as plain data, as in results.json
    :raises PersonaAgentsError: for a mistake in the YAML file, before anything is started; and, once
        everything else is written, if jobs failed
    """
    if not opt.get("table_file") or not opt.get("output_folder"):
        raise PersonaAgentsError(
            "Name the YAML file and a folder: parlai persona_table --table-file FILE "
            "--output-folder FOLDER."
        )
    if opt["jobs"] < 1:
        raise PersonaAgentsError(f"--jobs {opt['jobs']}: must be at least 1.")
    config = reading.read(opt["table_file"])
    jobs = plan.jobs_of(config)
    check(config, jobs)
    scoring = Scoring(config)
    if not pictures.available():
        print("There will be no pictures: they need matplotlib (pip install matplotlib).")
    folder = Path(opt["output_folder"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    except OSError as error:
        raise PersonaAgentsError(f"--output-folder {folder}: {error.strerror}.") from None
    with locked(folder) as lock:
        runner = Runner(folder, lock, config.threads, config.keep_models)
        runner.check(jobs)
        write_json(folder / "table.json", {"file": os.path.abspath(config.path), **config.resolved})
        write_json(folder / "versions.json", runner.versions)
        runner.run(jobs, opt["jobs"])
        results = Results(config, folder, jobs, {f.job.folder for f in runner.failures}, scoring)
        print("Scoring the replies and writing the tables.", flush=True)
        found = pages.write(results, jobs, runner)
    print(f"The tables are in {folder / 'tables.md'}.")
    if runner.failures:
        raise PersonaAgentsError(
            f"{len(runner.failures)} of {len(jobs)} jobs failed, and are tried again when the command "
            f"is given again: {'; '.join(map(str, runner.failures))}."
        )
    return found
