"""Imported by the processes that commands are forked from: their peak FLOP/s is measured briefly.

It only scales a utilisation, and measuring it would take as long as a short training.
"""

from pretrain.distributed import hardware

hardware.MEASURED_SECONDS, hardware.MEASURED_SHAPES = 0.0, {"cpu": (512, 512, 512)}
