"""`parlai persona_web`: chat with a model on a web page, and by JSON.

    parlai persona_web -mf models/hcm -t cpc
    parlai persona_web -mf models/hcm -t personachat_single_turn --port 8888 --inference beam

The page shows the model's persona, which each visitor can edit, and where each word of a reply
comes from. It needs nothing from the network. The `parlai` command imports this module at every
start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script


@register_script("persona_web")
class PersonaWeb(ParlaiScript):
    """A web chat for any agent, several visitors at once."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(True, True, "Chat with a model on a web page")
        group = parser.add_argument_group("Web chat")
        group.add_argument(
            "--host",
            default="127.0.0.1",
            help="address to listen at; 0.0.0.0 lets other machines in, and there is no password",
        )
        group.add_argument("--port", type=int, default=8080, help="port to listen at; 0: any free")
        group.add_argument(
            "-it",
            "--interactive-task",
            type="bool",
            default=True,
            help="take the options of the task's chat, such as where personas come from",
        )
        parser.set_defaults(interactive_mode=True, task="interactive")
        return parser

    def run(self):
        """Serve until Ctrl-C."""
        from persona_agents.web import server

        return server.main(self.opt)
