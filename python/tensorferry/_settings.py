"""What an operator sets, and where each value came from: by the same table as the C++ library and its command."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tensorferry import _core

End = Literal["gateway", "worker", "both"]


class Settings(Mapping[str, Any]):
    """The settings of docs/settings.md, by their names: numbers, true or false, texts, None where there is none.

        settings = Settings.from_environment(os.environ, end="worker")
        for warning in settings.warnings:
            logging.warning(warning)
        puller = Puller(allow=[...], **settings.puller_options())
        settings["hold_s"], settings.origin("hold_s")       # 180, "environment SMG_RDMA_LANDING_WAIT_S"
        print(settings)                                      # all of them, each with its origin

    What does not parse, is out of range, or is zero where nothing would work is refused, and never replaced by a
    default: InputError, reason bad_option, with the variable, the value and the form that is taken.
    """

    def __init__(self, core: _core.Settings) -> None:
        self._core = core
        self._rows = {name: (value, text, origin) for name, value, text, origin in core.rows()}

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str],
        *,
        end: End = "both",
        config: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        finds_address: bool = False,
    ) -> "Settings":
        """A flag (by its name without dashes) goes before ``config`` (by the settings' names), that before ``environ``.

        What is only for the other end is not looked up in ``environ``. ``finds_address``: a gateway that listens at an
        address of its own choice where none is set.
        """
        config, flags = config or {}, flags or {}
        return cls(_core.Settings.parse(dict(environ), list(config.items()), list(flags.items()), end, finds_address))

    def for_worker(
        self, *, multimodal_tensor_transport: str | None = None, multimodal_shm_min_bytes: str | None = None
    ) -> "Settings":
        """With what the description of one worker sets for it alone."""
        return Settings(self._core.for_worker(multimodal_tensor_transport, multimodal_shm_min_bytes))

    def __getitem__(self, name: str) -> Any:
        return self._rows[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def origin(self, name: str) -> str:
        """default, config, flag, "environment VARIABLE", derived or worker."""
        return self._rows[name][2]

    @property
    def warnings(self) -> list[str]:
        """What was clamped, ignored or is deprecated, each once. For the log."""
        return self._core.warnings()

    @property
    def listen(self) -> str:
        """ "IP:PORT" where a gateway serves the lane remote; empty without an address."""
        return self._core.listen()

    def puller_options(self) -> dict[str, Any]:
        """Arguments of Puller."""
        return {"landing_bytes": self["landing_bytes"], "unlink_shm_files": self["unlink_after_read"]}

    def exporter_options(self) -> dict[str, Any]:
        """Arguments of Exporter."""
        return {"arena_bytes": self["arena_bytes"], "lease_ttl": float(self["slot_ttl_s"]), "listen": self.listen}

    def __str__(self) -> str:
        """As ``tensorferry explain`` prints them."""
        return "\n".join(f"{name:<18}  {text:<12}  {origin}" for name, (_, text, origin) in self._rows.items())
