"""The option `snapshot` of `kubernetes`: its words, and what is wrong with others."""

import pytest

from kdns.cluster.source import SnapshotFile
from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.plugins.directives import configure
from kdns.plugins.sources.kubernetes.config import MAX_AGE_S, KubernetesConfig
from kdns.plugins.sources.kubernetes.plugin import DIRECTIVE


def configured(words: str) -> KubernetesConfig:
    text = f"cluster.local {{\n    kubernetes {{\n        snapshot {words}\n    }}\n}}\n"
    (server,) = configure(parse(text))
    (config,) = server.configs(DIRECTIVE)
    return config


@pytest.mark.parametrize(
    ("words", "file", "is_ready"),
    [
        ("/a", SnapshotFile("/a", MAX_AGE_S), True),
        ("/a 90m", SnapshotFile("/a", 5400.0), True),
        ("/a unready", SnapshotFile("/a", MAX_AGE_S), False),
        ("/a 90m unready", SnapshotFile("/a", 5400.0), False),
    ],
)
def test_its_words(words: str, file: SnapshotFile, is_ready: bool) -> None:
    config = configured(words)
    assert (config.snapshot, config.is_ready_when_stale) == (file, is_ready)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "an argument is missing"),
        ("/a 0", "expected a duration above 0, got '0'"),
        ("/a soon", "expected a duration of digits and units"),
        ("/a 1h soon", "expected `unready`, got 'soon'"),
        ("/a unready 1h", "expected `unready`, got '1h'"),
        ("/a 1h unready more", "one argument too many"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(words: str, reason: str) -> None:
    with pytest.raises(CorefileError) as raised:
        configured(words)
    assert raised.value.line == 3
    assert reason in str(raised.value)
