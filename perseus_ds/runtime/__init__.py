"""One rank under Perseus, from the first event of the patches to the reset of the clocks."""

from perseus_ds.runtime.listener import DISABLE_VARIABLE, PerseusListener, place_order, script_ended, start

__all__ = ["DISABLE_VARIABLE", "PerseusListener", "place_order", "script_ended", "start"]
