"""ParlAI's regression test of a teacher, on the bundled data: `pytest tasks/cpc/test.py`."""

from __future__ import annotations

from parlai.utils.testing import AutoTeacherTest

import persona_agents  # noqa: F401  (makes ParlAI find the task)


class TestMini(AutoTeacherTest):
    task = "cpc:mini"
