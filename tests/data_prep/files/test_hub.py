"""Whether the Hub can be reached is tried only where that says anything."""

import pytest
from huggingface_hub import constants

from data_prep.files import hub


@pytest.mark.parametrize("setting", ["https_proxy", "offline"])
def test_behind_a_proxy_or_offline_the_hubs_own_library_finds_its_way(monkeypatch, setting):
    def connect(*_):
        raise AssertionError("connected past the proxy")

    monkeypatch.setattr(hub.socket, "create_connection", connect)
    if setting == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setenv(setting, "http://proxy.example:3128")
    hub.connect_to_hub()
