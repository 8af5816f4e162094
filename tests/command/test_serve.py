"""`worker --serve`: it answers as a vLLM engine, as a TokenSpeed scheduler, or as an encoder that gateways register."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from ferry import Event, Running, exporter, make_file, run, wait_until, worker
from private_shm import private_shm
from safetensors.numpy import load_file
from smg import EngineClient, encode, encode_request, error_of, fill, fill_remote, message

KINDS = ["vllm", "tokenspeed"]
MAIN = {"vllm": "pixel_values", "tokenspeed": "encoder_input"}
MOST_TOKENS = {"vllm": "max_tokens", "tokenspeed": "max_new_tokens"}
TOKENS = ["--tokens", "5,6,7"]
SMALL = ["--landing-bytes", str(4 << 20)]
# Longer than any test: what only ends with it has not ended.
HELD = ["--token-time", "3600"]


@contextmanager
def serving(
    command: Path, kind: str, *args: str | Path, prefix: list[str] | None = None
) -> Iterator[tuple[Running, EngineClient]]:
    with worker(command, "--serve", kind, *TOKENS, *SMALL, *args, prefix=prefix or []) as running:
        with EngineClient(kind, running.listen) as client:
            yield running, client


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tensors_of(running: Running) -> tuple[list[Event], Event]:
    """What came of the next request, and how that ended."""
    tensors = []
    while (event := running.next())["event"] == "tensor":
        tensors.append(event)
    return tensors, event


@pytest.mark.parametrize("kind", KINDS)
def test_main_and_side_tensors_of_several_items_over_every_lane(command: Path, tmp_path: Path, kind: str) -> None:
    with (
        private_shm() as shm,
        serving(command, kind, prefix=shm.prefix) as (running, client),
        exporter(command, "--arena-bytes", str(4 << 20), engine="tcp") as over_tcp,
        exporter(command, "--arena-bytes", str(4 << 20), engine="local") as over_memory,
    ):
        request = client.request("several")
        expected: dict[tuple[int, str, str], tuple[str, str, str]] = {}

        def expect(item: int, role: str, name: str, lane: str, transport: str, data: bytes) -> None:
            expected[item, role, name] = (lane, transport, sha256(data))

        main, sides = client.add_item(request)
        fill(main, b"in the message")
        expect(0, "main", MAIN[kind], "inline", "grpc", b"in the message")
        fill(sides["grid"], b"beside it")
        expect(0, "side", "grid", "inline", "grpc", b"beside it")
        fill(sides["nothing"], b"")
        expect(0, "side", "nothing", "inline", "grpc", b"")

        main, sides = client.add_item(request)
        for number, (tensor, role, name) in enumerate([(main, "main", MAIN[kind]), (sides["grid"], "side", "grid")]):
            file, data = f"smg-tokenspeed-7-1-{number}", os.urandom(100_000)
            (shm.path / file).write_bytes(data)
            fill(tensor, data, shm=file)
            expect(1, role, name, "shm", "file", data)

        for item, (gateway, lane, transport) in enumerate(
            [(over_tcp, "remote", "tcp"), (over_memory, "shm", "local")], start=2
        ):
            source = make_file(tmp_path / "source", 200_000, seed=item)
            main, _ = client.add_item(request)
            fill_remote(main, gateway.ask(f"{item} {source}"))
            expect(item, "main", MAIN[kind], lane, transport, source.read_bytes())

        (answer,) = client.generate(request)
        assert list(answer.complete.output_ids) == [5, 6, 7]
        tensors, end = tensors_of(running)
        assert {t["request_id"] for t in tensors} == {"several"}
        assert len(tensors) == len(expected)
        assert {
            (t["item"], t["role"], t["name"]): (t["lane"], t["transport"], t["sha256"]) for t in tensors
        } == expected
        assert (end["tensors"], end["tokens"], end["outcome"]) == (len(expected), 3, "answered")
        assert shm.names() == []
        # Given back before the answer.
        assert over_tcp.next() == {"event": "released", "key": 2}
        assert over_memory.next() == {"event": "released", "key": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_answered(command: Path, kind: str) -> None:
    with serving(command, kind) as (running, client):
        for most, reason in ((None, "stop"), (3, "stop"), (9, "stop"), (2, "length"), (0, "length")):
            request = client.request("answer", stream=True)
            if most is not None:
                setattr(request.sampling_params, MOST_TOKENS[kind], most)
            tokens = [5, 6, 7][:most]
            end = {
                "event": "generate",
                "request_id": "answer",
                "tensors": 0,
                "tokens": len(tokens),
                "outcome": "answered",
            }
            *chunks, last = client.generate(request)
            assert running.next() == {**end, "stream": True}
            assert [list(c.chunk.token_ids) for c in chunks] == [[t] for t in tokens]
            assert [c.chunk.completion_tokens for c in chunks] == list(range(1, len(tokens) + 1))
            assert {c.chunk.prompt_tokens for c in chunks} <= {3}
            request.stream = False
            (whole,) = client.generate(request)
            assert running.next() == {**end, "stream": False}
            assert whole == last
            assert list(whole.complete.output_ids) == tokens
            assert whole.complete.finish_reason == reason
            assert (whole.complete.prompt_tokens, whole.complete.completion_tokens) == (3, len(tokens))
            assert kind == "vllm" or whole.request_id == "answer"


@pytest.mark.parametrize("kind", KINDS)
def test_receipts_and_the_instance_come_with_the_answer(command: Path, kind: str) -> None:
    with serving(command, kind) as (_, client):
        request = client.request("receipts")
        for item in range(40):
            main, sides = client.add_item(request)
            fill(main, b"main %d" % item)
            fill(sides["side"], b"side %d" % item)
        call = client.generate(request)
        list(call)
        metadata = [(entry.key, entry.value) for entry in call.trailing_metadata()]
        receipts = [value for key, value in metadata if key == "tensorferry-received-bin"]
        assert len(receipts) == 64  # gRPC takes no more than 8 KiB
        for number, content in enumerate([b"main 0", b"side 0", b"main 1"]):
            assert hashlib.sha256(content).digest() in receipts[number]
        assert len([key for key, _ in metadata if key == "tensorferry-instance-bin"]) == 1


def bad_tensors() -> Iterator[tuple[str, Callable[[Any], None]]]:
    def unknown_dtype(tensor: Any) -> None:
        fill(tensor, b"12345678", dtype="float8")

    def no_payload(tensor: Any) -> None:
        fill(tensor, b"12345678")
        tensor.ClearField("inline")

    def size_mismatch(tensor: Any) -> None:
        fill(tensor, b"1234567")
        tensor.shape.append(2)

    def bad_name(tensor: Any) -> None:
        fill(tensor, b"12345678", shm="../etc/passwd")

    def no_file(tensor: Any) -> None:
        fill(tensor, b"12345678", shm=f"smg-tokenspeed-{os.getpid()}-1-none")

    def too_large(tensor: Any) -> None:
        tensor.shape.extend([1 << 20, 1 << 20])
        tensor.dtype = "uint8"
        tensor.shm.name, tensor.shm.nbytes = "smg-tokenspeed-1-1-1", 1 << 40

    def pigeon(tensor: Any) -> None:
        fill_remote(tensor, {"transport": "pigeon", "descriptor": "00", "nbytes": 8})

    def bad_descriptor(tensor: Any) -> None:
        fill_remote(tensor, {"transport": "tensorferry", "descriptor": "00", "nbytes": 8})

    yield "unknown_dtype", unknown_dtype
    yield "no_payload", no_payload
    yield "size_mismatch", size_mismatch
    yield "bad_descriptor", bad_name
    yield "lease_ended", no_file
    yield "too_large", too_large
    yield "unknown_transport", pigeon
    yield "bad_descriptor", bad_descriptor


def outcome(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str, list[str | bytes]]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    metadata: Any = caught.value
    return *error_of(caught.value), [e.value for e in metadata.trailing_metadata() if e.key == "tensorferry-error-bin"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_received_fails_as_it_fails_at_an_encoder(command: Path, kind: str) -> None:
    with serving(command, kind) as (running, client), worker(command, *SMALL) as encoder:
        for reason, spoil in bad_tensors():
            encoding = encode_request([])
            encoding.mm_inputs.items[0].encoder_input.Clear()
            spoil(encoding.mm_inputs.items[0].encoder_input)
            of_encoder = outcome(lambda encoding=encoding: encode(encoder.listen, encoding))  # type: ignore[misc]
            assert of_encoder[0] in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)

            request = client.request("bad", stream=True)
            spoil(client.add_item(request)[0])
            of_engine = outcome(lambda request=request: list(client.generate(request)))  # type: ignore[misc]
            assert of_engine == of_encoder, reason
            (error,) = of_engine[2]
            assert reason.encode() in bytes(error)  # type: ignore[arg-type]

            tensors, end = tensors_of(running)
            assert (tensors, end["outcome"]) == ([], "failed")

            # A side tensor as well, and one that fails fails the whole, while the others still arrive.
            request = client.request("bad side")
            main, sides = client.add_item(request)
            fill(main, b"good")
            spoil(sides["side"])
            assert outcome(lambda request=request: list(client.generate(request))) == of_encoder  # type: ignore[misc]
            tensors, end = tensors_of(running)
            assert ([t["sha256"] for t in tensors], end["outcome"]) == ([sha256(b"good")], "failed")
        (answer,) = client.generate(client.request("good"))
        assert answer.complete.finish_reason == "stop"


def test_a_vllm_worker_fetches_no_pictures(command: Path) -> None:
    with serving(command, "vllm") as (_, client):
        request = client.request("refs")
        request.media_refs.items.add(modality=1, url="http://127.0.0.1/")
        code, text, _ = outcome(lambda: list(client.generate(request)))
        assert (code, "media_refs" in text) == (grpc.StatusCode.UNIMPLEMENTED, True)


@pytest.mark.parametrize("bootstrap", ["encode_bootstrap_info", "kv_bootstrap_info", None])
def test_pixels_that_went_to_another_worker_are_not_missed(command: Path, bootstrap: str | None) -> None:
    """In a split request prefill and decode get the items without their payloads."""
    with serving(command, "tokenspeed") as (running, client):
        request = client.request("split")
        main, sides = client.add_item(request)
        main.shape.append(4)
        main.dtype = "uint8"
        fill(sides["grid"], b"side")
        if bootstrap is None:
            assert outcome(lambda: list(client.generate(request)))[0] == grpc.StatusCode.INVALID_ARGUMENT
        else:
            getattr(request, bootstrap).SetInParent()
            (answer,) = client.generate(request)
            assert answer.complete.finish_reason == "stop"
        tensors, _ = tensors_of(running)
        assert [(t["role"], t["sha256"]) for t in tensors] == [("side", sha256(b"side"))]


@pytest.mark.parametrize("kind", KINDS)
def test_fields_that_are_not_known_disturb_nothing(command: Path, kind: str) -> None:
    """A newer gateway's, at every level of a request."""
    unknown = bytes([0xC2, 0xBB, 0x01, 5]) + b"newer"  # field 3000
    with serving(command, kind) as (running, client):
        request = client.request("newer")
        main, sides = client.add_item(request)
        fill(main, b"main")
        fill(sides["side"], b"side")
        inputs = request.mm_inputs
        levels = [request, request.tokenized, request.sampling_params, inputs, main, sides["side"]]
        if kind == "tokenspeed":
            levels.append(inputs.items[0])
        for level in levels:
            level.MergeFromString(unknown)
        wire = request.SerializeToString()
        assert wire.count(b"newer") == len(levels) + 1  # and the request's id
        assert type(request).FromString(wire).SerializeToString() == wire
        (answer,) = client.generate(request)
        assert answer.complete.finish_reason == "stop"
        assert sorted(t["sha256"] for t in tensors_of(running)[0]) == sorted([sha256(b"main"), sha256(b"side")])


def test_they_stay_in_what_our_own_copies_do_not_name() -> None:
    """Ours leave out what does not matter to tensors: nothing of that is lost in passing a message on."""
    request = message("vllm.grpc.engine.GenerateRequest")()
    temperature = bytes([0x0D, 0, 0, 0, 0x3F])  # field 1 of SamplingParams, which ours lack
    request.sampling_params.MergeFromString(temperature)
    request.sampling_params.max_tokens = 4
    again = type(request).FromString(request.SerializeToString())
    assert temperature in again.sampling_params.SerializeToString()
    assert again.sampling_params.max_tokens == 4


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_leave_take_everything_with_them(command: Path, tmp_path: Path, kind: str, stream: bool) -> None:
    with (
        serving(command, kind, *HELD) as (running, client),
        exporter(command, "--arena-bytes", str(8 << 20), engine="tcp") as gateway,
    ):
        # Two of these fill its landing memory.
        source = make_file(tmp_path / "source", 2 << 20)

        def leave(number: int) -> None:
            request = client.request(f"leaves-{number}", stream=stream)
            fill_remote(client.add_item(request)[0], gateway.ask(f"{number} {source}"))
            call = client.generate(request)
            assert running.next()["sha256"] == sha256(source.read_bytes())
            if stream:
                assert list(next(call).chunk.token_ids) == [5]
            assert client.ask("GetServerInfo").active_requests == 1
            call.cancel()
            end = running.next()
            assert (end["event"], end["request_id"], end["outcome"]) == ("generate", f"leaves-{number}", "cancelled")
            assert client.ask("GetServerInfo").active_requests == 0

        leave(0)
        files = len(list(Path(f"/proc/{running.pid}/fd").iterdir()))
        threads = len(list(Path(f"/proc/{running.pid}/task").iterdir()))
        for number in range(1, 20):
            leave(number)
        # One lingers until the last of its threads has let go of it.
        wait_until(lambda: len(list(Path(f"/proc/{running.pid}/fd").iterdir())) <= files, "files are closed")
        # gRPC has as many as it thinks good; a thread for each client would be 19 more.
        assert len(list(Path(f"/proc/{running.pid}/task").iterdir())) < threads + 10


@pytest.mark.parametrize("kind", [*KINDS, "encoder"])
def test_clients_that_leave_before_their_tensor_has_come(command: Path, tmp_path: Path, kind: str) -> None:
    source = make_file(tmp_path / "source", 3 << 20)
    with (
        worker(command, "--serve", kind, *TOKENS, *SMALL) as running,
        exporter(command, "--arena-bytes", str(64 << 20), engine="tcp") as silent,
        exporter(command, "--arena-bytes", str(4 << 20), engine="tcp") as gateway,
        EngineClient("tokenspeed" if kind == "encoder" else kind, running.listen) as client,
    ):

        def begin(exported: Event) -> Any:
            if kind == "encoder":
                encoding = encode_request([], room=exported["key"])
                encoding.mm_inputs.items[0].encoder_input.Clear()
                fill_remote(encoding.mm_inputs.items[0].encoder_input, exported)
                return client.encode(encoding)
            request = client.request("waits")
            fill_remote(client.add_item(request)[0], exported)
            return client.generate(request)

        def active() -> int:
            return int(client.ask("GetServerInfo").active_requests)

        unread = [silent.ask(f"{number} {source}") for number in range(8)]
        # It answers nobody: whoever fetches from it waits, and holds most of the landing memory.
        silent.signal(signal.SIGSTOP)
        for exported in unread:
            call = begin(exported)
            wait_until(lambda: active() == 1, "it is served")
            call.cancel()
            wait_until(lambda: active() == 0, "nobody is served")
            if kind != "encoder":
                assert running.next()["outcome"] == "cancelled"
        # There is room at once: any of the eight would have kept it for a minute.
        call = begin(gateway.ask(f"9 {source}"))
        assert running.next()["sha256"] == sha256(source.read_bytes())
        _ = call.result() if kind == "encoder" else list(call)
        assert call.code() == grpc.StatusCode.OK


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_can_be_aborted(command: Path, kind: str) -> None:
    with serving(command, kind, *HELD) as (running, client):
        calls = [client.generate(client.request(name, stream=True)) for name in ("one", "one", "other")]
        for call in calls:
            next(call)
        fields: dict[str, Any] = {"request_ids": ["one", "none"]} if kind == "vllm" else {"request_id": "one"}
        answer = client.ask("Abort", **fields)
        for call in calls[:2]:
            assert outcome(lambda call=call: next(call))[0] == grpc.StatusCode.CANCELLED  # type: ignore[misc]
            end = running.next()
            assert (end["request_id"], end["outcome"]) == ("one", "cancelled")
        assert client.ask("GetServerInfo").active_requests == 1
        if kind == "tokenspeed":
            assert answer.success
            assert not client.ask("Abort", request_id="none").success
        calls[2].cancel()
        assert running.next()["request_id"] == "other"


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_the_drain_ends_what_is_held(command: Path, kind: str) -> None:
    with serving(command, kind, *HELD, "--drain", "0.1") as (running, client):
        call = client.generate(client.request("held", stream=True))
        next(call)
        running.signal(signal.SIGTERM)
        assert running.next()["outcome"] == "cancelled"
        assert running.wait() == 0


@pytest.mark.parametrize("kind", [*KINDS, "encoder"])
def test_what_a_gateway_is_told(command: Path, tmp_path: Path, kind: str) -> None:
    facts: list[str | Path] = [
        "--served-model",
        "llava-1.5-small",
        "--model-path",
        tmp_path,
        "--encoder-dtype",
        "float16",
    ]
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    here = f"{boot_id}:{Path('/dev/shm').stat().st_dev}"
    for lanes, namespace in (("inline,shm", here), ("inline", "")):
        with worker(command, "--serve", kind, "--lanes", lanes, *facts, *SMALL) as running:
            with EngineClient("tokenspeed" if kind == "encoder" else kind, running.listen) as client:
                assert client.ask("HealthCheck").healthy
                model = client.ask("GetModelInfo")
                assert (model.served_model_name, model.supports_vision) == ("llava-1.5-small", True)
                assert model.model_path == model.tokenizer_path == str(tmp_path)
                server = client.ask("GetServerInfo")
                assert server.active_requests == 0
                assert server.uptime_seconds > 0
                if kind == "vllm":
                    assert server.shm_namespace_id == namespace
                    assert server.multimodal_encoder_dtype == "float16"
                else:
                    assert dict(server.scheduler_info) == ({"shm_namespace_id": namespace} if namespace else {})
                    assert model.multimodal_encoder_dtype == "float16"


def test_an_encoder_generates_nothing(command: Path) -> None:
    with worker(command) as running, EngineClient("tokenspeed", running.listen) as client:
        code, _, _ = outcome(lambda: list(client.generate(client.request("no"))))
        assert code == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("kind", KINDS)
def test_large_tensors_in_the_message(command: Path, kind: str) -> None:
    data = os.urandom(9 << 20)
    with serving(command, kind, "--max-message-bytes", str(10 << 20)) as (running, client):
        request = client.request("large")
        main, sides = client.add_item(request)
        fill(main, data)
        assert len(list(client.generate(request))) == 1
        assert tensors_of(running)[0][0]["sha256"] == sha256(data)
        fill(sides["too much"], data)
        code, text, _ = outcome(lambda: list(client.generate(request)))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(10 << 20) in text


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved(command: Path, tmp_path: Path, kind: str) -> None:
    with serving(command, kind, "--save", tmp_path) as (_, client):
        request = client.request("save")
        main, sides = client.add_item(request)
        fill(main, b"main")
        fill(sides["image_grid"], b"side")
        assert len(list(client.generate(request))) == 1
    saved: dict[str, bytes] = {}
    for file in tmp_path.glob("*.safetensors"):
        saved.update((name, array.tobytes()) for name, array in load_file(file).items())
    assert saved == {MAIN[kind]: b"main", "image_grid": b"side"}


def test_usage_errors_exit_with_2(command: Path) -> None:
    for args in (
        ["--serve", "pigeon"],
        ["--model-path", "/nonexistent"],
        ["--encoder-dtype", "float8"],
        ["--tokens", "-1"],
        ["--token-time", "-1"],
    ):
        assert run(command, "worker", "--listen", "127.0.0.1:0", *args).code == 2, args
