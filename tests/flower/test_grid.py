"""The exchange over a Grid of Flower, with a Grid inside this process."""

import io
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import toy

pytest.importorskip("flwr", reason="needs Flower, which `make test-flower` installs")

from fednoise_core.flower import apps
from fednoise_core.flower.folders import RunSettings, write_folders
from fednoise_core.flower.messages import SiteError
from fednoise_core.flower.site import answer_request
from fednoise_core.testing import world

SITES = range(len(world.SIZES))


def make_message(content, node: int, *args, **options) -> SimpleNamespace:
    """A message without the run's number, which Flower gives its processes."""
    return SimpleNamespace(content=content, node=node, has_content=lambda: content is not None)


class FakeGrid:
    """Nodes that answer at once, from the folders of their sites. A node without a folder fails."""

    def __init__(self, nodes: dict[int, Path | None]):
        self.nodes, self._replies = nodes, []

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        for message in messages:
            folder = self.nodes[message.node]
            content = folder and apps._pack_content(answer_request(folder, apps._unpack_content(message)))
            reply = make_message(content, message.node)
            reply.metadata = SimpleNamespace(reply_to_message_id=len(self._replies))
            self._replies.append(reply)
            yield len(self._replies) - 1

    def pull_messages(self, numbers):
        return [self._replies[number] for number in numbers]


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The exchange, its Grid and its console."""
    monkeypatch.setattr(apps, "POLL", 0.001)
    monkeypatch.setattr(apps, "Message", make_message)
    write_folders(tmp_path, world.arrays(), world.toy_labels().noisy, world.toy_partition(), *toy.settings("fedavg"), 0)
    grid, console = FakeGrid({100 + c: tmp_path / f"site-{c}" for c in SITES}), io.StringIO()
    return apps.GridExchange(grid, RunSettings.load(tmp_path / "server"), 1.0, console), grid, console


def test_sites_say_their_sizes(connected):
    exchange, _, console = connected
    assert exchange.wait_for_all(1.0) == dict(enumerate(world.SIZES))
    assert not console.getvalue()


def test_other_versions_are_printed_once_or_refused(connected, monkeypatch):
    exchange, grid, console = connected
    monkeypatch.setattr(apps, "describe_versions", lambda: {"python": "2.7", "torch": torch.__version__})
    exchange.wait_for_all(1.0)
    exchange.wait_for_all(1.0)
    line = f"site 3 has python {platform.python_version()} (server: 2.7): last digits may differ"
    assert console.getvalue().count(line) == 1
    strict = apps.GridExchange(grid, exchange._settings, 1.0, console, strict=True)
    with pytest.raises(SiteError, match="sites 0, 1"):
        strict.wait_for_all(0.1)
    assert f"node 103 is refused: it has python {platform.python_version()} (server: 2.7)" in console.getvalue()


def test_a_key_answers_for_its_own_site_only(connected):
    _, grid, console = connected
    settings = RunSettings.load(grid.nodes[100])
    site_nodes = apps.read_nodes(" ".join(str(100 + c) for c in SITES), settings.sites)
    assert len(apps.GridExchange(grid, settings, 1.0, console, site_nodes=site_nodes).wait_for_all(1.0)) == len(SITES)
    grid.nodes[103] = grid.nodes[104]
    with pytest.raises(SiteError, match="sites 3 did not connect"):
        apps.GridExchange(grid, settings, 1.0, console, site_nodes=site_nodes).wait_for_all(0.1)
    assert "node 103 is refused: it says that it is 4, whose key is another" in console.getvalue()
    assert apps.read_nodes("", settings.sites) == ()
    for text in ("100 101", "a b", " ".join(["100"] * len(SITES))):
        with pytest.raises(SiteError, match="nodes: expected a number for each of"):
            apps.read_nodes(text, settings.sites)


def test_a_missing_site_is_named(connected):
    exchange, grid, _ = connected
    del grid.nodes[103]
    with pytest.raises(SiteError, match=r"sites 3 did not connect in 0\.1 s"):
        exchange.wait_for_all(0.1)


def test_a_refused_node_that_was_mended_is_accepted_when_it_is_back(connected):
    exchange, grid, console = connected
    settings = grid.nodes[103] / "run.json"
    right = settings.read_text()
    settings.write_text(right.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(SiteError, match="sites 3"):
        exchange.wait_for_all(0.1)
    assert console.getvalue().count("node 103 is refused: the server has other settings") == 1
    settings.write_text(right)
    folder = grid.nodes.pop(103)
    exchange({0: b""}, wait=False)  # a round without it
    grid.nodes[103] = folder
    assert len(exchange.wait_for_all(1.0)) == len(SITES)


def test_a_node_whose_app_fails_is_named_and_asked_again(connected):
    exchange, grid, console = connected
    folder = grid.nodes[103]
    grid.nodes[103] = None
    with pytest.raises(SiteError, match="sites 3"):
        exchange.wait_for_all(0.1)
    assert "node 103 failed to say which site it is" in console.getvalue()
    grid.nodes[103] = folder
    assert len(exchange.wait_for_all(1.0)) == len(SITES)


def test_two_nodes_cannot_be_one_site(connected):
    exchange, grid, _ = connected
    exchange.wait_for_all(1.0)
    grid.nodes[200] = grid.nodes[103]
    exchange({0: b""}, wait=False)
    assert set(exchange._nodes.values()) == {100 + c for c in SITES}
    del grid.nodes[103]
    exchange({3: b""}, wait=True)
    assert exchange._nodes[3] == 200, "a site that was started anew"
