"""Which sessions of a herd are recorded, how, and to where."""

from dataclasses import dataclass
from pathlib import Path

from remuda.base.config import Config
from remuda.base.ids import SessionId
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.driver import Driver
from remuda.grid.node.recording.recorder import Recorder
from remuda.grid.options import read_options
from remuda.grid.room import GridConfig
from remuda.grid.video import Video
from remuda.storage.room import storage_directory
from remuda.store import Store


@dataclass(frozen=True)
class Recording:
    """The herd's choice where a client has none."""

    storage: Path
    record: bool
    size: str
    rate: int

    @classmethod
    def of(cls, config: Config) -> "Recording":
        options = config[GridConfig]
        return cls(storage_directory(config), options.record, options.record_size, options.record_rate)

    def video_of(self, wanted: Capabilities) -> Video | None:
        """The video to make of a session with these capabilities; None for no video."""
        return read_options(wanted).video.settle(record=self.record, size=self.size, rate=self.rate)

    async def open(
        self, store: Store, session: SessionId, wanted: Capabilities, driver: Driver
    ) -> Recorder | None:
        """A recorder that is prepared; None when the session is not to be recorded."""
        video = self.video_of(wanted)
        if video is None:
            return None
        recorder = Recorder(store, session, video=video, storage=self.storage, driver=driver)
        await recorder.prepare()
        return recorder
