"""Imported by the processes that commands are forked from: their peak FLOP/s is measured briefly.

It only scales a utilisation, and measuring it would take as long as a short training. DeepSpeed is
imported before the fork where no GPU is, which it might touch.
"""

import torch

from pretrain.distributed import hardware
from pretrain.distributed.deepspeed_library import import_deepspeed

hardware.MEASURED_SECONDS, hardware.MEASURED_SHAPES = 0.0, {"cpu": (512, 512, 512)}
if not torch.cuda.is_available():
    import_deepspeed()
