"""ParlAI imports every module of this folder when it looks for ``--mutators``."""

import persona_agents

if persona_agents.register():
    import persona_agents.table.mutator
