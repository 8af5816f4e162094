"""SMG's published gateway in front of `worker --serve`: pictures arrive, and nobody who leaves or dies leaves anything.

"epd" is the split request of TokenSpeed: the pixels go to an encoder, and prefill and decode get the rest.
"""

import hashlib
import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import pytest
from ferry import Event, wait_until, worker
from google.protobuf import descriptor_pb2
from peers import ours, stock
from peers.gateway import MODEL, TOKENS, Gateway, as_made, gateway, gateways, make_model, picture
from private_shm import PrivateShm, private_shm
from shown import ROOT, run_by
from smg import EngineClient, descriptor_set

pytestmark = pytest.mark.usefixtures("peers")

DATA = Path(__file__).parent.parent / "data"
ENGINES = ["vllm", "tokenspeed", "epd"]
MAIN = {"vllm": "pixel_values", "tokenspeed": "encoder_input", "epd": "encoder_input"}
# Longer than any test: who is answered after it is not answered.
HELD = ["--token-time", "3600"]
# It finds out that a client of a stream has gone when it has something to send.
SLOW = ["--token-time", "0.05", "--tokens", ",".join(repeat(str(TOKENS[0]), 3000))]
FEW_BYTES = 1 << 20  # of landing memory: six tensors


@pytest.fixture
def shm() -> Iterator[PrivateShm]:
    with private_shm() as private:
        yield private


class Workers:
    """Of one engine: the first gets the pixels, and the last answers, as `args` say."""

    def __init__(
        self, stack: ExitStack, command: Path, engine: str, folder: Path, shm: PrivateShm, *args: str, dtype: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        model = make_model(folder / "model")
        told = ["--model-path", str(model), "--served-model", MODEL, "--landing-bytes", str(FEW_BYTES)]
        told += ["--encoder-dtype", dtype]
        quick = ["--tokens", ",".join(map(str, TOKENS))]
        last = [*([] if "--tokens" in args else quick), *args]
        kinds = {"encoder": quick, "tokenspeed": quick, "decode": last} if engine == "epd" else {engine: last}
        self.all = [
            stack.enter_context(
                worker(command, "--serve", kind.replace("decode", "tokenspeed"), *told, *answers, prefix=shm.prefix)
            )
            for kind, answers in kinds.items()
        ]
        self.engine = engine
        self.receiving = self.all[0]
        self.generating = self.all[1:] or self.all
        kind = "vllm" if engine == "vllm" else "tokenspeed"
        self._clients = [stack.enter_context(EngineClient(kind, each.listen)) for each in self.all]

    def routes(self) -> list[str]:
        urls = [f"grpc://{each.listen}" for each in self.all]
        if self.engine != "epd":
            return ["--worker-urls", *urls]
        # Nobody listens on their bootstrap ports: those are for the workers among themselves.
        ports = [str(stock.free_port()) for _ in range(2)]
        prefill = ["--prefill", urls[1], ports[1]]
        return ["--epd-disaggregation", "--encode", urls[0], ports[0], *prefill, "--decode", urls[2]]

    def tensors(self, count: int) -> list[Event]:
        found = [self.receiving.next() for _ in range(count)]
        assert [t["event"] for t in found] == ["tensor"] * count, found
        return sorted(found, key=lambda t: int(t["item"]))

    def prefilled(self) -> None:
        """The gateway waits for a prefill, and shows nothing of it."""
        for each in self.generating[:-1]:
            event = each.next()
            assert (event["event"], event["outcome"]) == ("generate", "answered")

    def outcome(self) -> str:
        """How the next request ended at the one that answers."""
        event = self.generating[-1].next()
        assert event["event"] == "generate", event
        return str(event["outcome"])

    def wait_until_held(self) -> None:
        self.prefilled()
        last = self._clients[-1]
        wait_until(lambda: last.ask("GetServerInfo").active_requests == 1, "the last holds the request")

    def active(self) -> int:
        return sum(client.ask("GetServerInfo").active_requests for client in self._clients)


def transport(mode: str) -> list[str]:
    return ["--multimodal-tensor-transport", mode]


@contextmanager
def rig(command: Path, engine: str, folder: Path, shm: PrivateShm, *args: str) -> Iterator[tuple[Gateway, Workers]]:
    """With lane shm."""
    with ExitStack() as stack:
        workers = Workers(stack, command, engine, folder, shm, *args, dtype="float32")
        arguments = [*workers.routes(), *transport("shm")]
        yield (
            stack.enter_context(gateway(arguments, workers=len(workers.all), prefix=shm.prefix)),
            workers,
        )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("engine", "dtype"), list(zip(ENGINES, ["float32", "bfloat16", "float16"], strict=True)))
def test_the_bytes_that_the_gateway_made_arrive(
    command: Path, tmp_path: Path, shm: PrivateShm, engine: str, dtype: str
) -> None:
    pictures = [picture(DATA / name, left) for name, left in (("astronaut.png", 150), ("chelsea.png", 90))]
    made = [as_made(pixels, dtype) for pixels in pictures]
    with ExitStack() as stack:
        workers = Workers(stack, command, engine, tmp_path, shm, dtype=dtype)
        elsewhere = stack.enter_context(private_shm())
        lanes = {
            "inline": ("inline", "grpc"),
            "shm": ("shm", "file"),
            "auto": ("shm", "file"),
            # In front of a worker with another /dev/shm, as it says itself.
            "auto elsewhere": ("inline", "grpc"),
        }
        running = stack.enter_context(
            gateways(
                [[*workers.routes(), *transport(mode.split()[0])] for mode in lanes],
                workers=len(workers.all),
                prefixes=[elsewhere.prefix if "elsewhere" in mode else shm.prefix for mode in lanes],
            )
        )
        for smg, lane in zip(running, lanes.values(), strict=True):
            for pixels, expected in zip(pictures, made, strict=True):
                status, answer = smg.chat(pixels)
                assert status == 200, answer
                assert answer["choices"][0]["message"]["content"] == "a red square ."
                assert answer["choices"][0]["finish_reason"] == "stop"
                (tensor,) = workers.tensors(1)
                assert (tensor["lane"], tensor["transport"]) == lane
                assert (tensor["role"], tensor["name"]) == ("main", MAIN[engine])
                assert (tensor["shape"], tensor["dtype"], tensor["nbytes"]) == ([1, 3, 112, 112], dtype, len(expected))
                assert tensor["sha256"] == sha256(expected)
                workers.prefilled()
                assert workers.outcome() == "answered"

            # Both in one request, and the answer as a stream.
            status, text = smg.chat(*pictures, stream=True, max_tokens=2)
            assert status == 200, text
            assert '"content":" red"' in text
            assert '"finish_reason":"length"' in text
            assert text.endswith("data: [DONE]\n\n")
            if engine == "vllm":
                (tensor,) = workers.tensors(1)
                assert tensor["shape"] == [2, 3, 112, 112]
                assert (tensor["lane"], tensor["sha256"]) == (lane[0], sha256(b"".join(made)))
            else:
                tensors = workers.tensors(2)
                assert {t["lane"] for t in tensors} == {lane[0]}
                assert sorted(t["sha256"] for t in tensors) == sorted(map(sha256, made))
            workers.prefilled()
            assert workers.outcome() == "answered"
        assert workers.active() == 0
        for place in (shm, elsewhere):
            wait_until(lambda place=place: place.names() == [], "no file is left")  # type: ignore[misc]


def opened(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(entry))  # noqa: PTH115
    return found


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_leave_while_they_wait(
    command: Path, tmp_path: Path, shm: PrivateShm, engine: str, stream: bool
) -> None:
    """Twelve of them: twice what the landing memory holds."""
    pixels = picture(DATA / "astronaut.png", 150)
    with rig(command, engine, tmp_path, shm, *(SLOW if stream else HELD)) as (smg, workers):

        def leave() -> None:
            request = smg.begin(pixels, stream=stream)
            (tensor,) = workers.tensors(1)
            assert (tensor["lane"], tensor["sha256"]) == ("shm", sha256(as_made(pixels, "float32")))
            workers.wait_until_held()
            if stream:
                assert request.response().status == 200
            request.leave()
            assert workers.outcome() == "cancelled"

        leave()
        wait_until(lambda: workers.active() == 0, "nobody is served")
        before = [(len(opened(each.pid)), threads(each.pid)) for each in workers.all]
        for _ in range(11):
            leave()
        wait_until(lambda: workers.active() == 0, "nobody is served")
        wait_until(lambda: shm.names() == [], "no file is left")
        for each, (files, count) in zip(workers.all, before, strict=True):
            # The gateway may have made up to three more connections to it by now.
            wait_until(lambda each=each, files=files: len(opened(each.pid)) <= files + 3, "files are closed")  # type: ignore[misc]
            # gRPC has as many as it thinks good; one for each client would be eleven more.
            assert threads(each.pid) < count + 8


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_leave_before_the_worker_has_looked(
    command: Path, tmp_path: Path, shm: PrivateShm, engine: str
) -> None:
    """Of vllm and tokenspeed the gateway leaves its files then: the worker hears of the requests no more."""
    pixels, others = picture(DATA / "astronaut.png", 150), picture(DATA / "chelsea.png", 90)
    with rig(command, engine, tmp_path, shm) as (smg, workers):
        receiving = workers.receiving
        receiving.signal(SIGSTOP)
        requests = [smg.begin(pixels) for _ in range(3)]
        wait_until(lambda: len(shm.names()) == 3, "there are files")
        wait_until(lambda: ours.unread(receiving.pid) > 0, "the worker has been told")
        for request in requests:
            request.leave()
        if engine != "epd":  # there the answer does not wait for the encoder
            gone = "client closed the connection before the response"
            wait_until(lambda: smg.log().count(gone) == 3, "the gateway has seen them leave")
        receiving.signal(SIGCONT)

        assert smg.chat(others)[0] == 200
        wanted = sha256(as_made(others, "float32"))
        assert receiving.until(lambda event: event.get("sha256") == wanted)["lane"] == "shm"
        wait_until(lambda: workers.active() == 0, "nobody is served")
        for name in shm.names() if engine != "epd" else []:
            assert name.startswith(f"smg-tokenspeed-{smg.process.pid}-")
        if engine == "epd":
            wait_until(lambda: shm.names() == [], "no file is left")
        assert [path for path in opened(receiving.pid) if "smg-tokenspeed" in path] == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_workers_that_are_killed(command: Path, tmp_path: Path, shm: PrivateShm, engine: str, stream: bool) -> None:
    """The one that answers while it does, then the one with the pixels before it has looked."""
    pixels = picture(DATA / "astronaut.png", 150)
    with rig(command, engine, tmp_path / "held", shm, *HELD) as (smg, workers):
        request = smg.begin(pixels, stream=stream)
        workers.tensors(1)
        workers.wait_until_held()
        assert not stream or request.response().status == 200
        for each in workers.generating:
            each.signal(SIGKILL)
        with suppress(http.client.IncompleteRead):
            request.response().read()
        assert stream or request.response().status >= 500
        request.close()
        wait_until(lambda: shm.names() == [], "no file is left")
    with rig(command, engine, tmp_path / "unread", shm) as (smg, workers):
        workers.receiving.signal(SIGSTOP)
        request = smg.begin(pixels, stream=stream)
        wait_until(lambda: len(shm.names()) == 1, "there is a file")
        wait_until(lambda: ours.unread(workers.receiving.pid) > 0, "the worker has been told")
        workers.receiving.signal(SIGKILL)
        # Nothing was sent before the tensors are taken: so the gateway knows that they were not, and removes the file.
        assert (request.response().status >= 500) == (engine != "epd")
        request.close()
        wait_until(lambda: shm.names() == [], "no file is left")


def test_our_copies_of_the_messages_are_those_that_are_published() -> None:
    text = subprocess.run(
        [stock.PYTHON, stock.HERE / "drivers/messages.py"], capture_output=True, text=True, check=True
    ).stdout
    published = declared(descriptor_pb2.FileDescriptorSet.FromString(bytes.fromhex(text)))
    ours_ = declared(descriptor_set())
    assert len(ours_) > 150
    for key, what in ours_.items():
        assert published.get(key) == what, key


def declared(files: descriptor_pb2.FileDescriptorSet) -> dict[tuple[str, int | str], Any]:
    """What each field of SMG's messages is by its number, and each method by its name."""
    found: dict[tuple[str, int | str], Any] = {}

    def add(message: descriptor_pb2.DescriptorProto, scope: str) -> None:
        name = f"{scope}.{message.name}"
        for field in message.field:
            oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
            found[name, field.number] = (field.name, field.type, field.label, field.type_name, oneof)
        for nested in message.nested_type:
            add(nested, name)

    for file in files.file:
        if file.package.startswith("google."):
            continue
        for message in file.message_type:
            add(message, file.package)
        for enum in file.enum_type:
            found.update(((f"{file.package}.{enum.name}", value.number), value.name) for value in enum.value)
        for service in file.service:
            for m in service.method:
                kind = (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
                found[f"{file.package}.{service.name}", m.name] = kind
    return found


def test_the_guide_shows_it(command: Path, tmp_path: Path, shm: PrivateShm) -> None:
    """The commands of docs/serve.md with other ports, and the two lines that it shows."""
    (block,) = run_by(__file__)
    (serve, _), (launch, _) = block.commands()
    program, verb, *options = serve.removesuffix("&").split()
    assert (program, verb) == ("tensorferry", "worker")
    folder = make_model(tmp_path / options[options.index("--model-path") + 1])
    told = [str(folder) if word == folder.name else word for word in options]
    told[told.index("--listen") + 1] = "127.0.0.1:0"
    told.remove("--json")  # as every worker here
    program, verb, *arguments = launch.split()
    assert (program, verb) == (stock.SMG.name, "launch")
    port = arguments.index("--port")
    del arguments[port : port + 2]  # another one is taken
    name = options[options.index("--served-model") + 1]
    with worker(command, *told, prefix=shm.prefix) as receiving:
        arguments[arguments.index("--worker-urls") + 1] = f"grpc://{receiving.listen}"
        with gateway(arguments, workers=1, prefix=shm.prefix) as smg:
            status, answer = smg.chat(picture(DATA / "astronaut.png"), model=name)
            assert status == 200, answer
        text = (ROOT / "docs" / "serve.md").read_text().partition("```json\n")[2].partition("```")[0]
        for line in text.splitlines():
            event, wanted = receiving.next(), json.loads(line)
            assert list(event) == list(wanted)
            constant = set(wanted) - {"request_id", "sha256", "seconds"}
            assert {key: event[key] for key in constant} == {key: wanted[key] for key in constant}
