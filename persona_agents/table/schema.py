"""What the table's YAML file may hold, by itself: the `parlai` command reads it at every start."""

# Shown by `parlai persona_table --help`; docs/tables.md has an example.
SCHEMA = """\
the YAML file:
  tasks:                    ParlAI task names, one set of tables each; a list, or a mapping
    personachat_single_turn:  with, for each task, any of
      options:                  options of this task
      test_sets:                named test sets, each {task: NAME, options: {...}}; the first is the
                                main one. Default: filtered and whole for cpc and
                                personachat_single_turn, else the task's own test split
  systems:                  what is compared; a list of names, or a mapping
    hcm:                      a name of this package's agents, or any name with
      model: AGENT              ParlAI's name of the agent (default: this package's of that name)
      preset: NAME              or a preset (-o), for instance persona_agents/hcm_{task}, where
                                {task} is the task's name up to the first colon
      options: {...}            options of this system; null takes a common one away
      seeds, budget             instead of the common ones
      train: false              the agent needs no training
      label: TEXT               its name in the tables (default: the name)
  ablations:                like systems; rows of the ablation table
  proposed: hcm             the system that is tested against the best of the others (default: the
                            first of systems)
  seeds: [1, 2, 3]          default [1]
  budget: {examples: N}     or {steps: N} or {epochs: N}; the same for all. Examples become steps by
                            each system's batch size
  options: {...}            options of every training, as on ParlAI's command line
  evaluation: {...}         options of every evaluation of a trained system (default:
                            {batchsize: 32})
  scoring: {...}            options of parlai persona_score: metrics, bert_score_model, ...
  anchors: true             rows gold, shuffled gold, echoed persona, constant reply
  constant_reply: TEXT      what the last of these says (default: by the task's language)
  swapped_personas: true    evaluate the main test set once more with other samples' personas
  samples: 5                how many samples' replies are shown side by side, or a list of their
                            numbers in the main test set
  threads: 1                CPU threads of each command (a number may depend on it)
  keep_models: true         false: delete each model once it is evaluated
Texts may hold ${VARIABLES} of the environment. A relative path is meant as from where the command
is started.
"""
