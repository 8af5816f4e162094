"""Alert rules and dashboard: a real Prometheus loads them, and scrapes processes whose traffic is known."""

import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ferry import Running, exporter, printed, pull_arguments, run, wait_until, worker

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = RULES.with_name("alerts_test.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text()
NBYTES = 200_000
ANY = ("--metrics", "127.0.0.1:0")
# What only NIXL or a fault moves. Each of them has a test beside the code that counts it.
AT_REST = {
    "smg_mm_shm_write_failures_total",
    "tensorferry_nixl_agent_restarts_total",
    "tensorferry_nixl_notifications_total",
    "tensorferry_pull_fallbacks_total",
    "tensorferry_quarantined_bytes",
    "tensorferry_quarantined_reads",
    "tensorferry_reconnects_total",
    "tensorferry_refused_tensors_total",
}
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


def documented() -> dict[str, set[str]]:
    """Every metric with its labels."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| \w+ \| ([^|]*) \|", DOCUMENT, re.MULTILINE)
    assert len(rows) >= 29
    labels = {name: set(re.findall(r"`(\w+)`", cell)) for name, _, cell in rows}
    for name, kind, _ in rows:
        if kind == "histogram":
            labels[name].add("le")
    return labels


def program(name: str) -> Path:
    """Of Debian's package, which ./dev setup unpacks, or the one on the PATH."""
    unpacked = ROOT / "build" / "unpacked" / "usr" / "bin" / name
    found = unpacked if unpacked.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: rules, dashboard and scraping are NOT tested here")
    return Path(found)


def promtool(*arguments: str | Path) -> str:
    return printed(program("promtool"), *arguments)


def test_the_rules_are_rules() -> None:
    assert re.search(r"SUCCESS: \d\d rules found", promtool("check", "rules", RULES))


def test_each_alert_fires_for_what_it_is_for_and_for_nothing_else() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tests = RULE_TESTS.read_text()
    fired = re.findall(r'exp_samples: \[\{labels: \'\{alertname="(\w+)", instance="bad"\}\', value: 1\}\]', tests)
    assert fired == alerts
    assert tests.count('instance="good"') >= len(alerts)
    assert "SUCCESS" in promtool("test", "rules", RULE_TESTS)


def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    """So that the test above is one."""
    broken = RULES.read_text().replace("tensorferry_waiting_pulls > 0", "tensorferry_waiting_pulls > 9")
    assert broken != RULES.read_text()
    (tmp_path / RULES.name).write_text(broken)
    shutil.copy(RULE_TESTS, tmp_path)
    tests: list[str | Path] = [program("promtool"), "test", "rules", tmp_path / RULE_TESTS.name]
    failed = subprocess.run(tests, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "TensorferryPullsWait" in failed.stdout + failed.stderr


def queries() -> list[str]:
    """Those of the dashboard, with what Grafana puts in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(found) >= 30
    return [expr.replace("$__rate_interval", "1m").replace("$instance", ".*") for expr in found]


def metrics_of(expr: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', "", expr)
    selected = set(re.findall(r"\b([a-z_:]+)(?=[{\[])", bare)) | set(re.findall(r"\b(?:tensorferry|smg)_\w+", bare))
    return {OF_HISTOGRAMS.sub("", name) for name in selected}


def test_every_query_names_metrics_and_labels_that_exist() -> None:
    known = documented()
    rules = re.findall(r"expr: (.*?)\n        (?:for|labels):", RULES.read_text(), re.DOTALL)
    assert len(rules) == RULES.read_text().count("- alert: ")
    named: set[str] = set()
    for expr in queries() + rules:
        metrics = metrics_of(expr) - {"up"}
        assert metrics <= known.keys(), expr
        named |= metrics
        labels = {"instance", "job"}.union(*(known[metric] for metric in metrics))
        used = [*re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", expr)]
        for grouped in re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", expr):
            used += grouped.split(", ")
        assert set(used) <= labels, expr
    # Whatever is counted can be seen.
    assert named == known.keys()


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        assert not body.get("warnings"), body
        return body["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=expr)["result"]]

    def value(self, expr: str) -> float | None:
        """Of the one series; None while there is none."""
        found = self.query(expr)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def alerts(self, state: str) -> set[tuple[str, str]]:
        alerts = [alert for alert in self.ask("alerts")["alerts"] if alert["state"] == state]
        return {(alert["labels"]["alertname"], alert["labels"]["instance"]) for alert in alerts}

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


class Watched:
    """Prometheus, and what it scrapes."""

    def __init__(self, prometheus: Prometheus, worker: Running, exporter: Running, sender: Running, sends: str) -> None:
        self.prometheus = prometheus
        self.worker, self.exporter, self.sender = worker, exporter, sender
        self.receives, self.exports, self.sends = worker.ready["metrics"], exporter.ready["metrics"], sends

    def until_equal(self, expr: str, wanted: float) -> None:
        wait_until(lambda: self.prometheus.value(expr) == wanted, lambda: f"{expr}: {self.prometheus.query(expr)}")

    def while_sending(self, condition: Callable[[], object], what: Callable[[], str]) -> None:
        """The sender waits for whoever reads what it says."""

        def goes_on() -> bool:
            for _ in range(20):
                row = self.sender.next()
                assert row.get("lane") == "inline", (row, what())
            return bool(condition())

        wait_until(goes_on, what)


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "array.npy"
    np.save(path, np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8))
    return path


def start(folder: Path, targets: list[str], stack: ExitStack) -> Prometheus:
    """With the configuration that docs/metrics.md shows, at a port that the system picks."""
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    config = shown.replace("/usr/share/tensorferry/alerts.yml", str(RULES))
    config = re.sub(r"targets: \[.*\]", f"targets: {json.dumps(targets)}", config)
    assert str(RULES) in config
    assert targets[0] in config
    file, log = folder / "prometheus.yml", folder / "log"
    file.write_text(f"global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n{config}")
    promtool("check", "config", file)
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
    with log.open("w") as out:
        process = stack.enter_context(subprocess.Popen([program("prometheus"), *options], stderr=out, stdout=out))
    stack.callback(process.kill)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return "Server is ready to receive web requests" in log.read_text()

    wait_until(ready, log.read_text)
    (address,) = re.findall(r'msg="Listening on" address=(\S+)', log.read_text())
    return Prometheus(address)


@pytest.fixture(scope="module")
def watched(command: Path, array: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A worker that has received 7 tensors by shm, 5 by remote and 3 inline; an exporter of which one lease was read
    and one cancelled; a gateway whose arena is too small for what it sends, to another worker."""
    program("prometheus")
    with ExitStack() as stack:
        receiving = stack.enter_context(worker(command, *ANY))
        for lane, count in (("shm", 7), ("remote", 5), ("inline", 3)):
            sent = run(command, "send", array, "--to", receiving.listen, "--lane", lane, "--repeat", str(count))
            assert sent.code == 0, sent.err
        exporting = stack.enter_context(exporter(command, "--arena-bytes", str(8 << 20), *ANY, engine="tcp"))
        read = exporting.ask(f"1 {array}")
        exporting.ask(f"2 {array}")
        assert run(command, *pull_arguments(read, "--out", tmp_path_factory.mktemp("pulled") / "out")).code == 0
        assert exporting.next()["event"] == "released"
        exporting.say("cancel 2")
        assert exporting.next()["event"] == "cancelled"
        other = stack.enter_context(worker(command))
        # It waits for nobody to read what it says.
        assert other.process.stdout is not None
        reader = threading.Thread(target=list, args=[other.process.stdout])
        reader.start()
        stack.callback(reader.join)
        stack.callback(other.process.kill)
        endless = ["--repeat", "10000000", "--arena-bytes", "4096", "--shm-transport", "local", *ANY]
        sending = stack.enter_context(Running(command, "send", "--json", array, "--to", other.listen, *endless))
        sends = sending.metrics_on_stderr()
        targets = [receiving.ready["metrics"], exporting.ready["metrics"], sends]
        prometheus = start(tmp_path_factory.mktemp("prometheus"), targets, stack)
        yield Watched(prometheus, receiving, exporting, sending, sends)


def test_prometheus_has_what_was_moved(watched: Watched) -> None:
    of_worker = f'instance="{watched.receives}"'
    watched.until_equal("sum(up)", 3)
    for lane, transport, count in (("shm", "local", 7), ("remote", "tcp", 5), ("inline", "grpc", 3)):
        way = f'{{{of_worker}, lane="{lane}", transport="{transport}"'
        watched.until_equal(f'tensorferry_received_tensors_total{way}, result="ok"}}', count)
        watched.until_equal(f"tensorferry_received_bytes_total{way}}}", count * NBYTES)
        if lane != "inline":
            watched.until_equal(f"tensorferry_receive_duration_seconds_count{way}}}", count)
            watched.until_equal(f'tensorferry_receive_duration_seconds_bucket{way}, le="+Inf"}}', count)
            watched.until_equal(f'tensorferry_handshakes_total{{{of_worker}, transport="{transport}", result="ok"}}', 1)
    watched.until_equal(f"sum(tensorferry_landing_bytes{{{of_worker}}})", 1 << 30)
    for gauge in ("waiting_pulls", "borrowed_views", "borrowed_bytes"):
        watched.until_equal(f"tensorferry_{gauge}{{{of_worker}}}", 0)
    of_exporter = f'instance="{watched.exports}"'
    for cause in ("released", "cancelled"):
        watched.until_equal(f'tensorferry_lease_ends_total{{{of_exporter}, cause="{cause}"}}', 1)
    watched.until_equal(f"tensorferry_lease_duration_seconds_count{{{of_exporter}}}", 2)
    watched.until_equal(f'tensorferry_leases{{{of_exporter}, state="published"}}', 0)
    watched.until_equal(f'tensorferry_arena_bytes{{{of_exporter}, state="free"}}', 8 << 20)


def test_every_metric_that_was_moved_is_there(watched: Watched) -> None:
    wanted = documented().keys() - AT_REST

    def names() -> set[str]:
        # Each series has `instance`; what Prometheus makes up itself has other names.
        values = watched.prometheus.ask("label/__name__/values")
        return {OF_HISTOGRAMS.sub("", name) for name in values if name.startswith(("tensorferry_", "smg_mm_"))}

    watched.while_sending(lambda: wanted <= names(), lambda: f"missing: {wanted - names()}")
    assert names() <= documented().keys()


def test_the_rules_run_and_say_where_to_look(watched: Watched) -> None:
    headings = re.findall(r"^#+ (.*)$", DOCUMENT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    wait_until(lambda: all(rule["health"] != "unknown" for rule in watched.prometheus.rules()), "rules have run")
    rules = watched.prometheus.rules()
    assert len(rules) == RULES.read_text().count("- alert: ")
    for rule in rules:
        assert rule["health"] == "ok", rule
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        document, _, anchor = rule["annotations"]["see"].partition("#")
        assert document == "docs/metrics.md"
        assert anchor in anchors, rule["name"]


def test_a_trouble_is_an_alert(watched: Watched) -> None:
    fires, waits = ("TensorferryArenaFull", watched.sends), ("TensorferryFallbacks", watched.sends)

    def both() -> bool:
        return fires in watched.prometheus.alerts("firing") and waits in watched.prometheus.alerts("pending")

    watched.while_sending(both, lambda: str(watched.prometheus.ask("alerts")))
    (fallback,) = (a for a in watched.prometheus.ask("alerts")["alerts"] if a["labels"]["alertname"] == waits[0])
    labels = fallback["labels"]
    assert (labels["from"], labels["to"], labels["reason"]) == ("shm", "inline", "arena_full")
    assert "go by inline instead of shm (arena_full)" in " ".join(fallback["annotations"]["summary"].split())
    # Those who are well are left alone.
    assert watched.prometheus.alerts("firing") == {fires}


@pytest.mark.parametrize("expr", queries())
def test_a_query_of_the_dashboard_is_answered(watched: Watched, expr: str) -> None:
    if metrics_of(expr) <= AT_REST:
        assert watched.prometheus.query(expr) == [] or "quarantined" in expr
    else:
        watched.while_sending(lambda: watched.prometheus.query(expr), lambda: expr)


def test_who_is_gone_is_an_alert(watched: Watched) -> None:
    """Last: it ends the exporter."""
    watched.exporter.end_input()
    assert watched.exporter.wait() == 0
    down = ("TensorferryDown", watched.exports)
    wait_until(lambda: down in watched.prometheus.alerts("pending"), lambda: str(watched.prometheus.ask("alerts")))
