"""The rating task by ParlAI's own crowdsourcing tests: mock architect, mock provider, no browser."""

from __future__ import annotations

import importlib.util
import time

import pytest

if importlib.util.find_spec("mephisto") is None:
    pytest.skip("Mephisto is not installed: make test-crowdsourcing", allow_module_level=True)

from persona_agents.crowdsourcing.compat import import_mephisto

import_mephisto()

from mephisto.tools.scripts import augment_config_from_db
from parlai.crowdsourcing.utils.tests import AbstractOneTurnCrowdsourcingTest
from reviewers import free_port, make_study, stored_answers

from persona_agents.crowdsourcing.persona_rating import run
from persona_agents.crowdsourcing.persona_rating.database import open_database
from persona_agents.crowdsourcing.persona_rating.ledger import Ledger, settle_old_runs
from persona_agents.crowdsourcing.study import onboarding_examples

GOOD = {"fluency": 2, "relevance": 1, "consistency": 0}


class TestPersonaRating(AbstractOneTurnCrowdsourcingTest):
    @pytest.fixture(autouse=True)
    def setup_and_teardown(self, tmp_path):
        self.study = make_study(tmp_path, samples=1, systems=["alpha"], reviewers=2)
        self._setup()
        yield
        self._teardown()

    def start(self, *overrides):
        """As `_set_up_config`, which passes an argument twice to this Mephisto."""
        port = f"mephisto.architect.port={free_port()}"
        self.config = run.configuration(
            "local", self.study.folder, ["mephisto/architect=mock", port, *overrides]
        )
        self.config.mephisto.architect.should_run_server = True
        self.config.mephisto.task.task_name = self.study.task_name
        self.db = open_database(self.study)
        self.config = augment_config_from_db(self.config, self.db)
        self._set_up_server()

    def submit(self, agent_id, data):
        self.server.submit_mock_unit(agent_id, data)
        self.await_channel_requests()

    def wait_for(self, condition):
        assert self.operator._run_loop_until(condition, 5)

    def test_answers_are_stored_beside_what_was_shown(self):
        self.start("mephisto.blueprint.onboarding_qualification=???")
        (item,) = self.study.items
        state = self._get_agent_state({"item": item["id"], "answers": GOOD})
        assert state == {"inputs": item, "outputs": {"item": item["id"], "answers": GOOD}}

    def test_malformed_and_repeated_submissions_change_nothing(self):
        self.start("mephisto.blueprint.onboarding_qualification=???")
        (item,) = self.study.items
        (agent_id,) = self._register_mock_agents(1)
        for bad in ({}, {"item": item["id"], "answers": {**GOOD, "fluency": 9}}, "text", []):
            self.submit(agent_id, bad)
            agent = self.db.find_agents()[0]
            assert agent.state.get_data()["outputs"] is None
            assert agent.get_status() == "in task"
        self.submit(agent_id, {"item": item["id"], "answers": GOOD})
        self.wait_for(lambda: self.db.find_agents()[0].db_status == "completed")
        self.submit(agent_id, {"item": item["id"], "answers": {**GOOD, "fluency": 0}})
        time.sleep(0.2)
        assert self.db.find_agents()[0].state.get_data()["outputs"]["answers"] == GOOD

    def test_onboarding_must_be_right(self):
        self.start()
        right = [e["answers"] for e in onboarding_examples("scales", "en")]
        for number, answers in enumerate(([GOOD] * len(right), right)):
            name = f"MOCK_WORKER_{number}"
            self.server.register_mock_agent(name, f"assignment {number}")
            self.assert_sandbox_worker_created(f"{name}_sandbox")
            self.await_channel_requests()
            onboarding = self.db.find_onboarding_agents()[number]
            data = onboarding.state.get_init_state()
            assert [e["en"]["answers"] for e in data["examples"]] == right
            (worker,) = self.db.find_workers(worker_name=f"{name}_sandbox")
            self.server.register_mock_agent_after_onboarding(
                worker.db_id, onboarding.get_agent_id(), {"answers": answers}
            )
            self.await_channel_requests()
            self.wait_for(
                lambda n=number: (
                    self.db.find_onboarding_agents()[n].db_status in ("approved", "rejected")
                )
            )
            self.await_channel_requests()
            assert len(self.db.find_agents()) == number, "only who passed gets an item"

    def test_what_is_missing_is_counted_from_the_database(self):
        self.start("mephisto.blueprint.onboarding_qualification=???")
        (item,) = self.study.items
        ledger = Ledger(self.db, self.study)
        assert (ledger.total_missing(), ledger.progress("x")) == (2, {"done": 0, "total": 1})
        (agent_id,) = self._register_mock_agents(1)
        self.submit(agent_id, {"item": item["id"], "answers": GOOD})
        name = self.db.find_agents()[0].get_worker().worker_name
        ledger = Ledger(self.db, self.study)
        assert ledger.total_missing() == 1
        assert ledger.has(item["id"], name)
        # answers that the requester turns down are asked for again
        self.wait_for(lambda: self.db.find_agents()[0].db_status == "completed")
        self.db.find_agents()[0].update_status("rejected")
        assert Ledger(self.db, self.study).total_missing() == 2

    def test_a_cut_off_run_is_settled(self):
        """Stored answers become completed units, whatever the killed run had come to."""
        self.start("mephisto.blueprint.onboarding_qualification=???")
        (item,) = self.study.items
        first, second = self._register_mock_agents(2)
        self.submit(first, {"item": item["id"], "answers": GOOD})
        self.wait_for(lambda: self.db.find_agents()[0].db_status == "completed")
        self.db.update_agent(first, status="in task")
        for unit in self.db.find_units():
            self.db.update_unit(unit.db_id, status="assigned")
        settle_old_runs(self.db, self.study)
        statuses = {agent.db_id: agent.db_status for agent in self.db.find_agents()}
        assert statuses == {first: "completed", second: "disconnect"}
        assert sorted(unit.db_status for unit in self.db.find_units()) == ["completed", "expired"]


def test_database_of_a_new_study_is_empty(tmp_path):
    study = make_study(tmp_path, samples=2)
    assert stored_answers(study) == {item["id"]: {} for item in study.items}


@pytest.mark.parametrize("conf", ["local", "mturk_sandbox", "mturk"])
def test_configurations(tmp_path, conf):
    config = run.configuration(conf, tmp_path, ["mephisto.task.task_reward=0.5"])
    assert config.mephisto.blueprint._blueprint_type == "persona_rating"
    assert config.mephisto.blueprint.study == str(tmp_path)
    assert config.mephisto.blueprint.preview_source is None
    assert config.mephisto.task.allowed_concurrent == 0
    assert config.mephisto.task.task_reward == 0.5
    architect, provider = {
        "local": ("persona_local", "mock"),
        "mturk_sandbox": ("heroku", "mturk_sandbox"),
        "mturk": ("heroku", "mturk"),
    }[conf]
    assert config.mephisto.architect._architect_type == architect
    assert config.mephisto.provider._provider_type == provider


@pytest.mark.parametrize("conf", ["mturk_sandbox", "mturk"])
def test_platform_without_an_account_is_refused_before_anything_runs(tmp_path, monkeypatch, conf):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    study = make_study(tmp_path, samples=1)
    said = []
    config = run.configuration(conf, study.folder, ["mephisto.provider.requester_name=x"])
    with pytest.raises(run.LaunchError, match="no AWS profile 'x'"):
        run.launch(config, said.append)
    assert "$0.58" in said[-1]  # six ratings at 8 cents and a fee of 1.6
