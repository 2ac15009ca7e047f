"""`parlai distributed_train`: one of the processes that a cluster's scheduler starts.

ParlAI has the script, but no sub-command of it: as ``python -m parlai.scripts.distributed_train`` it
does not know the tasks of other packages.
"""

from __future__ import annotations

from parlai.core.script import register_script
from parlai.scripts.distributed_train import DistributedTrain

register_script("distributed_train", hidden=True)(DistributedTrain)
