"""ParlAI's regression test of a teacher, on the bundled data: `pytest tasks/personachat_single_turn/test.py`."""

from __future__ import annotations

from parlai.utils.testing import AutoTeacherTest

import persona_agents  # noqa: F401  (makes ParlAI find the task)


class TestMini(AutoTeacherTest):
    task = "personachat_single_turn:mini"
