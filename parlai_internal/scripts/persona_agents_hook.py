"""The ``parlai`` command imports every module of this folder; this one registers our plug-in."""

import persona_agents

if persona_agents.register():
    # each registers its sub-command and imports nothing heavy before that is run
    import persona_agents.scripts.distributed_train
    import persona_agents.scripts.persona_data
    import persona_agents.scripts.persona_explain
    import persona_agents.scripts.persona_rate
    import persona_agents.scripts.persona_score
    import persona_agents.scripts.persona_table
    import persona_agents.scripts.persona_vocab
    import persona_agents.scripts.persona_web
    import persona_agents.scripts.persona_zoo
