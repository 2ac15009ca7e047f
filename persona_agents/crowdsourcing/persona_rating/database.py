"""Mephisto's database of one study."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

from mephisto.abstractions.databases.local_database import LocalMephistoDB
from mephisto.data_model.constants.assignment_state import AssignmentState

from persona_agents.crowdsourcing.study import Study


class StudyDB(LocalMephistoDB):
    """
    Mephisto's SQLite database, without a flush of the disk for each of thousands of small writes.

    With a write-ahead log nothing that was written is lost when the process is killed. A power cut
    may cost the last seconds.
    """

    def _get_connection(self):
        is_new = self.conn.get(threading.get_ident()) is None
        connection = super()._get_connection()
        if is_new:
            connection.execute("PRAGMA synchronous=NORMAL")
        return connection


def open_database(study: Study) -> StudyDB:
    """The database of a study; made if there is none."""
    study.database.parent.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(study.database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # the file keeps this setting
    return StudyDB(str(study.database))


def take_back(unit) -> None:
    """Expire a unit unless somebody has finished it."""
    if unit.get_db_status() not in AssignmentState.incomplete():
        return
    if unit.provider_type == "mock":
        unit.set_db_status(AssignmentState.EXPIRED)  # there is no platform to tell
    else:
        unit.expire()
