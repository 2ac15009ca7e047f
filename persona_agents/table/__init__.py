"""`parlai persona_table`: the paper's tables from one command (see scripts/persona_table.py)."""
