"""Who is answered, and what: with raw sockets, as a stranger on this machine or a page of somebody else would ask."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.test_app import COMMAND, invoke
from forgetscope.watching.sight import Sight
from made import HOSTILE
from strangers import golden_copy
from underway.test_lookout import everything, halted, say, stopped
from watching.served import Served, serving

__all__ = ["halted", "stopped"]  # fixtures

LATER = "2999-01-01T00:00:00+00:00"


@pytest.fixture
def served(halted: Path) -> Iterator[Served]:
    with serving(halted) as found:
        yield found


def test_whoever_has_the_address_is_shown_a_page_and_its_state(served: Served, halted: Path) -> None:
    before = everything(halted)
    status, headers, body = served.asked()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert str(halted) in body.decode()
    state = served.state()
    (one,) = state["silent"]
    assert (state["running"], one["number"], [row["rank"] for row in one["at_risk"]]) == ([], 2, [1, 2, 3])
    assert "was stopped after epoch 1" in one["said"]
    assert len(one["at_risk"][0]["curves"]["sic"]) == len(one["probed_at"]) == one["probes"]
    assert one["losses"] == [[1, pytest.approx(one["loss"], rel=1e-5)]]
    assert [step["number"] for step in state["finished"]] == [1]
    assert everything(halted) == before


def test_every_answer_is_closed_to_other_pages(served: Served) -> None:
    for what, status in (("", 200), ("state", 200), ("nothing", 404), ("step?id=none", 404)):
        found, headers, _ = served.asked(what)
        assert found == status
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Server" not in headers
        assert "Access-Control-Allow-Origin" not in headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_the_page_itself_runs_no_script_and_no_style_but_its_own(served: Served) -> None:
    _, headers, body = served.asked()
    page, policy = body.decode(), headers["Content-Security-Policy"]
    assert re.findall(r"(\w+)-src", policy) == ["default", "img", "style", "script", "connect"]
    assert len(re.findall(r"<script>", page)) == len(re.findall(r"script-src 'sha256-[^ ']+'(?:;|$)", policy)) == 1
    assert " style=" not in page


@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "", "[::1]:{port}"]
)
def test_another_host_is_refused(served: Served, host: str) -> None:
    """A name of somebody else's that is made to point at this machine is sent as the host by a browser."""
    status, _, body = served.asked("state", Host=host.format(port=served.host.split(":")[1]))
    assert status in (400, 403)
    assert b"at_risk" not in body


def test_several_hosts_or_none_are_refused(served: Served) -> None:
    path = f"{served.path}state"
    assert served.sent(f"GET {path} HTTP/1.1\nHost: {served.host}\nHost: evil.example\n\n")[0] in (400, 403)
    assert served.sent(f"GET {path} HTTP/1.1\nConnection: close\n\n")[0] in (400, 403)
    assert served.sent(f"GET {path} HTTP/1.0\n\n")[0] in (400, 403)
    assert served.sent(f"GET http://evil.example{path} HTTP/1.1\nHost: {served.host}\nConnection: close\n\n")[0] == 403


def test_localhost_is_this_machine_too(served: Served) -> None:
    assert served.asked("state", Host=served.host.replace("127.0.0.1", "localhost"))[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://{host}", "http://{host}.evil.example"]
)
def test_another_origin_is_refused(served: Served, origin: str) -> None:
    assert served.asked("state", Origin=origin.format(host=served.host))[0] == 403
    assert served.asked("state", Origin=f"http://{served.host}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "X"])
def test_another_method_is_refused(served: Served, method: str) -> None:
    status, _, body = served.asked("state", method=method)
    assert status in (400, 405)
    assert b"at_risk" not in body


def test_a_request_with_a_body_is_refused(served: Served) -> None:
    assert served.asked("state", Content_Length="1000000")[0] == 400


def test_a_head_is_an_answer_without_its_body(served: Served) -> None:
    status, headers, body = served.asked("state", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 100


@pytest.mark.parametrize(
    "change", ["", "x", "{token}x", "{cut}", "{upper}", "%{token}", "{token}%00", "{encoded}", "é", "../{token}"]
)
def test_without_the_token_nothing_is_told(served: Served, change: str) -> None:
    token = served.path.strip("/")
    words = {"token": token, "cut": token[:-1], "upper": token.swapcase(), "encoded": "".join(f"%{ord(c):02x}" for c in token)}
    for rest in ("", "/", "/state", "/step?id=x"):
        status, _, body = served.sent(
            f"GET /{change.format(**words)}{rest} HTTP/1.1\nHost: {served.host}\nConnection: close\n\n"
        )
        assert status in (400, 403)
        assert token.encode() not in body


@pytest.mark.parametrize("target", ["*", "x\x9b2J", "?a/b", "state", "http:"])
def test_an_address_without_a_root_is_refused_and_not_repeated(
    served: Served, capfd: pytest.CaptureFixture[str], target: str
) -> None:
    status, _, body = served.sent(f"GET {target} HTTP/1.1\nHost: {served.host}\nConnection: close\n\n")
    assert (status, b"has a token" in body) == (403, True)
    assert capfd.readouterr() == ("", "")


def test_what_goes_wrong_is_told_without_the_address(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Sight) -> None:
        raise RuntimeError("steered \x1b[2J")

    monkeypatch.setattr(Sight, "state", fails)
    status, _, body = served.asked("state")
    assert (status, b"steered" in body) == (500, False)
    assert "steered \\x1b[2J" in caplog.text
    assert served.path.strip("/") not in caplog.text


@pytest.mark.parametrize(
    "what",
    [
        *("../state", "%2e%2e/state", "..%2fstate", "state/", "state/../state", "//state", "state%00", "STATE", "./state"),
        *("../../../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "static/live.js", "favicon.ico", "step", "step?id="),
        *("step?id=../steps", "step?id=..%2f..%2fetc%2fpasswd", "step?id=/etc/passwd", "step?id=a&id=b", "step?id=%ff"),
        *("step?id=%00",),
        *("step/{step}", "step?id={step}/", "step?id={step}&id={step}", "step?id= {step}", "step?id={prefix}"),
    ],
)  # fmt: skip
def test_no_part_of_an_address_is_a_path(served: Served, what: str) -> None:
    (one,) = served.state()["finished"]
    status, _, body = served.asked(what.format(step=one["step"], prefix=one["step"][:8]))
    assert status in (400, 404)
    assert len(body) < 200


def test_an_answer_that_is_known_is_not_sent_again(served: Served, halted: Path) -> None:
    say(halted, state="running", heartbeat=LATER)
    tag = served.asked("state")[1]["Etag"]
    status, _, body = served.asked("state", If_None_Match=tag)
    assert (status, body) == (304, b"")
    say(halted, epoch=2, heartbeat=LATER)
    time.sleep(0.1)
    status, headers, body = served.asked("state", If_None_Match=tag)
    assert (status, headers["Etag"] != tag) == (200, True)
    assert json.loads(body)["running"][0]["epoch"] == 2


def test_nothing_is_looked_at_while_nobody_asks(halted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetscope.underway.running import Lookout

    looks: list[float] = []
    look = Lookout.look
    monkeypatch.setattr(Lookout, "look", lambda self: (looks.append(time.monotonic()), look(self))[1])
    with serving(halted, every=0.01) as served:
        time.sleep(0.3)
        assert served.asked()[0] == 200
        assert served.asked("state", Host="evil.example")[0] == 403
        time.sleep(0.3)
        assert looks == []
        served.state()
        assert len(looks) == 1


def test_many_lookers_are_one_to_the_store(halted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetscope.underway.running import Lookout

    looks: list[int] = []
    look = Lookout.look
    monkeypatch.setattr(Lookout, "look", lambda self: (looks.append(1), look(self))[1])
    with serving(halted, every=3600) as served:
        assert all(served.state() == served.state() for _ in range(10))
    assert len(looks) == 1


def test_a_finished_step_has_the_page_of_its_experiment(tiny_store: Path) -> None:
    before = everything(tiny_store)
    with serving(tiny_store) as served:
        last = next(one for one in served.state()["finished"] if one["number"] == 3)
        status, headers, body = served.asked(f"step?id={last['step']}")
        again = served.asked(f"step?id={last['step']}")[2]
    assert (status, headers["Content-Type"], again == body) == (200, "text/html; charset=utf-8", True)
    assert b"<h1>What resnet8 forgot on glyphs</h1>" in body
    assert b'http-equiv="Content-Security-Policy" content="default-src \'none\'' in body  # its own, of its own scripts
    assert everything(tiny_store) == before


def test_what_a_monitor_saw_has_a_page_too(tmp_path: Path) -> None:
    from forgetscope.store import Store
    from observed_steps import observe

    observe(Store(tmp_path / "store"))
    with serving(tmp_path / "store") as served:
        one = served.state()["finished"][0]
        assert one["step"].startswith("birds/")
        status, _, body = served.asked(f"step?id={one['step'].replace('/', '%2F')}")
    assert status == 200
    assert b"seen by the monitor birds" in body


def test_a_store_that_is_moved_and_comes_back(served: Served, halted: Path) -> None:
    step = served.state()["finished"][0]["step"]
    halted.rename(halted.with_name("elsewhere"))
    time.sleep(0.1)
    state = served.state()
    assert "it was moved or deleted" in state["lost"]
    assert state["running"] == state["silent"] == state["finished"] == []
    assert served.asked(f"step?id={step}")[0] == 404
    halted.with_name("elsewhere").rename(halted)
    time.sleep(0.1)
    state = served.state()
    assert (state["lost"], len(state["silent"]), len(state["finished"])) == ("", 1, 1)


def test_a_step_that_is_quarantined_is_no_longer_there(tmp_path: Path) -> None:
    store = golden_copy(tmp_path / "store")
    with serving(store.path) as served:
        listed = {one["step"] for one in served.state()["finished"]}
        assert len(listed) == 2
        for step in listed:
            assert served.asked(f"step?id={step}")[0] == 200  # and is kept
        gone = store.chain(max(listed, key=lambda step: store.step(step).number))[1]
        (store.path / "quarantine").mkdir(exist_ok=True)
        gone.folder.rename(store.path / "quarantine" / gone.id)
        time.sleep(0.1)
        assert served.asked(f"step?id={gone.id}")[0] == 404
        assert [one["step"] for one in served.state()["finished"]] == [step for step in listed if step != gone.id]


def test_damaged_files_are_told_and_the_rest_is_served(served: Served, halted: Path) -> None:
    (folder,) = (path.parent for path in halted.glob("working/*/progress.json"))
    (folder / "probes.parquet").write_bytes(b"PAR1 nothing PAR1")
    (step,) = (halted / "steps").iterdir()
    assert [one["step"] for one in served.state()["finished"]] == [step.name]
    (step / "probes.parquet").write_bytes(b"nothing")
    (step / "classes.parquet").write_bytes(b"nothing")
    time.sleep(0.1)
    state = served.state()
    assert any("probes.parquet" in problem for problem in state["problems"])
    assert state["silent"][0]["at_risk"] == []
    status, headers, body = served.asked(f"step?id={step.name}")
    assert (status, headers["Content-Type"]) == (409, "text/plain; charset=utf-8")
    assert b"This step cannot be shown" in body
    shutil.rmtree(halted / "working")
    time.sleep(0.1)
    assert served.state()["silent"] == []


def test_hostile_names_are_data_and_no_markup(served: Served, halted: Path) -> None:
    say(halted, state="running", heartbeat=LATER, names=[HOSTILE, "\u202ea", "\x1b[31m", "d", "e"])
    status, headers, body = served.asked("state")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert HOSTILE in {row["class_name"] for row in json.loads(body)["running"][0]["at_risk"]}
    assert HOSTILE.encode() not in served.asked()[2]


def test_a_folder_whose_name_is_no_text_is_shown(served: Served, halted: Path) -> None:
    (folder,) = (halted / "working").glob("*/")
    folder.rename(folder.with_name(os.fsdecode(b"step-\xff")))
    (one,) = served.state()["silent"]
    assert one["key"] == "step-\\udcff"


def test_a_long_step_is_sent_in_few_points(served: Served, halted: Path) -> None:
    say(halted, epoch=5000, losses=[1 / (i + 1) for i in range(5000)])
    (one,) = served.state()["silent"]
    assert len(one["losses"]) == 300
    assert (one["losses"][0], one["losses"][-1]) == ([1, 1], [5000, 0.0002])


def test_options_that_do_not_go_together_and_a_port_that_is_taken_are_told(served: Served, halted: Path) -> None:
    port = served.host.split(":")[1]
    for options, told in (
        (["--page", "--once"], "--page with --once"),
        (["--page", "--json"], "--page with --json"),
        (["--port", port], f"--port {port} is that of a page: add --page"),
    ):
        result = invoke("watch", halted, *options)
        assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
    taken = [*COMMAND, "watch", str(halted), "--page", "--port", port]  # by itself: browsers of other tests leave a loop behind
    ended = subprocess.run(taken, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, f"--port {port} cannot be used" in ended.stderr) == (2, True), ended.stderr
