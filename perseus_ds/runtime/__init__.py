"""One rank's life under Perseus, from the patches' first event to the clocks' reset."""

from perseus_ds.runtime.listener import DISABLE_VARIABLE, PerseusListener, announce_straggler, script_ended, start

__all__ = ["DISABLE_VARIABLE", "PerseusListener", "announce_straggler", "script_ended", "start"]
