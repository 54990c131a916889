"""The video of a session: pictures of its browser, encoded while it runs, with its client's messages."""

from remuda.grid.node.recording.policy import Recording
from remuda.grid.node.recording.recorder import Recorder

__all__ = ["Recorder", "Recording"]
