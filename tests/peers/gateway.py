"""SMG's published gateway as a process, a model for it that has no weights, and its clients.

with gateway(["--worker-urls", f"grpc://{worker.listen}"], workers=1) as smg:
    status, answer = smg.chat(picture(DATA / "astronaut.png"))
"""

import base64
import http.client
import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from ferry import LIMIT, wait_until
from peers import stock
from PIL import Image

# The gateway goes by this name in choosing what to do with pictures.
MODEL = "llava-1.5-tiny"
SIDE = 112  # of its pictures, in pixels
MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
SPECIAL = ["<unk>", "<s>", "</s>", "<image>", "<|user|>", "<|assistant|>"]
WORDS = ["what", "is", "in", "the", "picture", "a", "red", "square", "?", "."]
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
TOKENS = [VOCABULARY[word] for word in ("a", "red", "square", ".")]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<image>{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_model(folder: Path) -> Path:
    """What a gateway reads of a model of the llava kind."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    files = {
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [{"id": VOCABULARY[text], "content": text, **special} for text in SPECIAL],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "truncation": None,
            "padding": None,
            "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<unk>"},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": 4096,
            "added_tokens_decoder": {str(VOCABULARY[text]): {"content": text, **special} for text in SPECIAL},
        },
        "config.json": {
            "model_type": "llava",
            "architectures": ["LlavaForConditionalGeneration"],
            "image_token_index": VOCABULARY["<image>"],
            "vocab_size": len(VOCABULARY),
            "bos_token_id": VOCABULARY["<s>"],
            "eos_token_id": VOCABULARY["</s>"],
            "text_config": {"model_type": "llama", "hidden_size": 16, "vocab_size": len(VOCABULARY)},
            "vision_config": {
                "model_type": "clip_vision_model",
                "image_size": SIDE,
                "patch_size": 14,
                "hidden_size": 16,
            },
        },
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor",
            "do_resize": True,
            "do_center_crop": True,
            "do_rescale": True,
            "do_normalize": True,
            "do_convert_rgb": True,
            "resample": 3,
            "size": {"shortest_edge": SIDE},
            "crop_size": {"height": SIDE, "width": SIDE},
            "image_mean": MEAN,
            "image_std": STD,
            "rescale_factor": 1 / 255,
        },
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def picture(file: Path, left: int = 0) -> np.ndarray[Any, Any]:
    """A piece of a photograph that is as large as the model wants it: nothing needs to be resized."""
    return np.asarray(Image.open(file).convert("RGB").crop((left, 100, left + SIDE, 100 + SIDE)))


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def as_made(pixels: np.ndarray[Any, Any], dtype: str) -> bytes:
    """What the gateway makes of such a picture, to the bit: it computes in float32, in this order."""
    scaled = pixels.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255)
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))
    made = (scaled - mean) * (np.float32(1) / std)
    if dtype == "bfloat16":
        bits = made.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return made.astype(dtype).tobytes()


class Request:
    """A chat request that is under way."""

    def __init__(self, port: int, body: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        assert self._connection.sock is not None
        self._socket: socket.socket = self._connection.sock
        self._response: http.client.HTTPResponse | None = None

    def response(self) -> http.client.HTTPResponse:
        """When its headers are here."""
        self._response = self._response or self._connection.getresponse()
        return self._response

    def leave(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()


class Gateway:
    def __init__(self, arguments: Sequence[str | Path], prefix: Sequence[str]) -> None:
        self.port = stock.free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                *prefix,
                str(stock.SMG),
                *("launch", "--host", "127.0.0.1", "--port", str(self.port)),
                *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(stock.free_port())),
                *("--policy", "round_robin", "--health-check-interval-secs", "1", "--health-success-threshold", "1"),
                *("--worker-startup-check-interval", "1", "--disable-retries"),
                # A worker that is stopped for a while stays one of its workers.
                *("--health-failure-threshold", "1000"),
                *map(str, arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=stock.environment({}),
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _is_ready(self, workers: int) -> bool:
        assert self.process.poll() is None, self.log()[-3000:]
        with suppress(OSError, http.client.HTTPException, ValueError):
            known = self.get("/workers").get("workers", [])
            healthy = [w for w in known if w.get("is_healthy") or w.get("status") == "ready"]
            # It answers 404 until it has the tokenizer, too.
            return len(healthy) >= workers and bool(self.get("/v1/tokenizers").get("tokenizers"))
        return False

    def wait_until_ready(self, workers: int) -> None:
        wait_until(lambda: self._is_ready(workers), lambda: self.log()[-3000:])

    def begin(self, *pictures: np.ndarray[Any, Any], stream: bool = False, **more: Any) -> Request:
        urls = ["data:image/png;base64," + base64.b64encode(png(pixels)).decode() for pixels in pictures]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        content = [*parts, {"type": "text", "text": "what is in the picture ?"}]
        messages = [{"role": "user", "content": content}]
        return Request(self.port, {"model": MODEL, "stream": stream, "messages": messages, **more})

    def chat(self, *pictures: np.ndarray[Any, Any], **more: Any) -> tuple[int, Any]:
        """The HTTP status, and what was answered."""
        request = self.begin(*pictures, **more)
        response = request.response()
        text = response.read().decode()
        request.close()
        return response.status, text if more.get("stream") else json.loads(text)


@contextmanager
def gateway(arguments: Sequence[str | Path], *, workers: int, prefix: Sequence[str] = ()) -> Iterator[Gateway]:
    with gateways([arguments], workers=workers, prefixes=[prefix]) as (running,):
        yield running


@contextmanager
def gateways(
    arguments: Sequence[Sequence[str | Path]], *, workers: int, prefixes: Sequence[Sequence[str]]
) -> Iterator[list[Gateway]]:
    """Several, which become ready at the same time."""
    running = [Gateway(a, prefix) for a, prefix in zip(arguments, prefixes, strict=True)]
    try:
        for each in running:
            each.wait_until_ready(workers)
        yield running
    finally:
        for each in running:
            each.close()
