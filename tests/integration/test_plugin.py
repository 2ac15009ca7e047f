"""What ParlAI sees of the package, in new processes that start in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys

import parlai.tasks
import parlai.zoo
import pytest
from conftest import subprocess_environment

import persona_agents
from persona_agents.errors import PersonaAgentsError

PLAIN_INIT = ""
EXTENDING_INIT = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
THEIR_SCRIPT = """
{first_line}
from parlai.core.script import ParlaiScript, register_script
from parlai.core.params import ParlaiParser

@register_script("their_command")
class TheirCommand(ParlaiScript):
    @classmethod
    def setup_args(cls):
        return ParlaiParser(False, False, "their command")

    def run(self):
        print("their command ran")
"""
THEIR_AGENT = """
from parlai.core.agents import Agent

class TheirsAgent(Agent):
    def act(self):
        return {"text": "their agent spoke", "id": "theirs", "episode_done": True}
"""


def python(code, env=None):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**subprocess_environment(), **(env or {})},
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


class TestRegistration:
    def test_repeating_changes_nothing(self):
        before = list(parlai.tasks.__path__), list(parlai.zoo.__path__), sys.excepthook
        assert persona_agents.register() is True
        assert (list(parlai.tasks.__path__), list(parlai.zoo.__path__), sys.excepthook) == before

    def test_import_is_light(self):
        result = python(
            "import sys, persona_agents\n"
            "print(sorted({'torch', 'transformers', 'numpy', 'jieba'} & set(sys.modules)))"
        )
        assert result.stdout.strip() == "[]", result.stderr

    def test_agent_names(self):
        assert persona_agents.hcm is persona_agents.HCMAgent
        assert {"hcm", "HCMAgent"} <= set(dir(persona_agents))

    def test_no_module_hides_an_agent(self):
        for name in persona_agents.AGENTS:
            for folder in persona_agents.__path__:
                assert not os.path.exists(os.path.join(folder, name))
                assert not os.path.exists(os.path.join(folder, f"{name}.py"))

    def test_unknown_agent_is_named_together_with_the_known_ones(self):
        with pytest.raises(AttributeError, match="'hcn'.*persona_agents:hcm"):
            persona_agents.hcn  # noqa: B018
        assert not hasattr(persona_agents, "hcn")

    def test_without_parlai_the_first_use_says_what_to_install(self):
        result = python(
            "import sys\n"
            "sys.modules['parlai'] = None\n"  # as if it were not installed
            "import importlib.util\n"
            "find = importlib.util.find_spec\n"
            "importlib.util.find_spec = lambda n, p=None: None if n == 'parlai' else find(n, p)\n"
            "del sys.modules['parlai']\n"
            "import persona_agents\n"
            "try:\n    persona_agents.hcm\n"
            "except ImportError as error:\n    print(error)"
        )
        assert "pip install --no-deps parlai==1.7.2" in result.stdout, result.stderr


class TestCommand:
    def test_tasks_are_found(self, run_parlai_commands):
        tasks = ["cpc:mini", "personachat_single_turn:mini"]
        result = run_parlai_commands(*(["display_data", "-t", task, "-n", "2"] for task in tasks))
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("your persona: ") >= 4

    def test_mistake_of_the_user_gives_its_message_only(self, run_parlai):
        result = run_parlai("train_model", "-m", "persona_agents:hcn", "-t", "cpc:mini")
        assert result.returncode == 1
        assert "persona_agents has no agent or attribute 'hcn'" in result.stderr
        assert "Traceback" not in result.stdout + result.stderr

    def test_model_that_is_not_there_gives_its_message_only(self, run_parlai):
        result = run_parlai("eval_model", "-mf", "no/such/model", "-t", "cpc:mini")
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1].endswith("make sure it is correct: no/such/model")
        assert "Traceback" not in result.stdout + result.stderr

    def test_other_errors_keep_their_traceback(self, run_parlai):
        result = run_parlai("display_data", "-t", "no_such_task")
        assert result.returncode == 1
        assert "Traceback" in result.stderr

    def test_our_errors_keep_their_traceback_in_programs(self):
        result = python(
            "import persona_agents\nfrom persona_agents.errors import PersonaAgentsError\n"
            "raise PersonaAgentsError('mistaken')"
        )
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert issubclass(persona_agents.UnknownAgentError, PersonaAgentsError)

    def test_zoo_list(self):
        result = python(
            "import persona_agents, importlib\n"
            "print(importlib.import_module('persona_agents.zoo.model_list').model_list[0]['path'])"
        )
        assert result.stdout.strip() == "zoo:persona_agents/hcm_mini_zh/model", result.stderr


class TestBesideAnotherParlaiInternal:
    """A user may have a ``parlai_internal`` that comes before ours on the path."""

    @pytest.fixture
    def theirs(self, tmp_path):
        def write(init, first_line=""):
            package = tmp_path / "theirs" / "parlai_internal"
            for folder in ("", "scripts", "agents", "agents/theirs"):
                (package / folder).mkdir(parents=True, exist_ok=True)
                (package / folder / "__init__.py").write_text(init, encoding="utf-8")
            (package / "scripts" / "their_command.py").write_text(
                THEIR_SCRIPT.format(first_line=first_line), encoding="utf-8"
            )
            (package / "agents" / "theirs" / "theirs.py").write_text(THEIR_AGENT, encoding="utf-8")
            return package.parent

        return write

    @pytest.fixture(params=["theirs first", "ours first"])
    def path_of(self, request):
        def path(their_folder):
            ours = subprocess_environment()["PYTHONPATH"]
            folders = [str(their_folder), ours]
            if request.param == "ours first":
                folders.reverse()
            return {"PYTHONPATH": os.pathsep.join(folders)}

        path.theirs_first = request.param == "theirs first"
        return path

    def run_all(self, run_parlai_commands, env, ours=True):
        """Their command, their agent and our task in one process, to start ParlAI only once."""
        display_model = ["display_model", "-m", "internal:theirs", "-t", "integration_tests"]
        commands = [["their_command"], [*display_model, "-n", "1"]]
        result = run_parlai_commands(
            *commands, ["display_data", "-t", "cpc:mini", "-n", "1"], env=env
        )
        assert "their command ran" in result.stdout, result.stderr
        assert "their agent spoke" in result.stdout, result.stderr
        if ours:
            assert "your persona: " in result.stdout, result.stderr
        else:  # an editable install serves the modules that their package lacks, and so our hook
            hidden = "No module named 'parlai.tasks.cpc'" in result.stderr
            assert hidden != ("your persona: " in result.stdout)

    def test_theirs_extends_its_path(self, run_parlai_commands, theirs, path_of):
        self.run_all(run_parlai_commands, path_of(theirs(EXTENDING_INIT)))

    def test_theirs_is_plain(self, run_parlai_commands, theirs, path_of):
        """A plain package that comes first hides our hook; behind ours it goes on working."""
        env = path_of(theirs(PLAIN_INIT))
        self.run_all(run_parlai_commands, env, ours=not path_of.theirs_first)

    def test_one_line_in_a_plain_one_mends_it(self, run_parlai_commands, theirs):
        folder = theirs(PLAIN_INIT, first_line="import persona_agents")
        env = {"PYTHONPATH": os.pathsep.join([str(folder), subprocess_environment()["PYTHONPATH"]])}
        self.run_all(run_parlai_commands, env)
