"""`pipeline secrets` on the command line, as far as it needs no services."""

from pathlib import Path

import pytest

from pipeline.cli import main


def test_init_says_what_it_made_and_shows_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "secrets"
    words = ["secrets", "init", f"secrets.folder={folder}", "secrets.broker_hosts=[localhost,kafka]"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert f"made    {folder}/learner/secret.yaml" in said.out
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".crt":
            for line in path.read_text().splitlines():
                assert len(line) < 24 or line.strip() not in said.out + said.err
    assert main(words) == 0
    assert "holds everything already" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["client"], "Whom is it about? `pipeline secrets client NAME`."),
        (["revoke", "alice"], "make them with `pipeline secrets init`"),
        (["apply", "run=lab"], "make them with `pipeline secrets init`"),
        (["client", "alice", "secrets.nmae=bob"], "secrets.name"),
    ],
)
def test_what_is_missing_is_said(words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["secrets", *words, f"secrets.folder={tmp_path}"]) == 1
    assert sentence in capsys.readouterr().err


def test_an_action_that_is_none(capsys: pytest.CaptureFixture[str]):
    assert main(["secrets", "steal"]) == 2
    assert "init, apply, client, revoke, rotate" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["services", "up", "services=embedded"], ["demo"]])
def test_security_is_not_left_out_in_silence(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where = [f"secrets.folder={tmp_path / 'secrets'}", f"services.folder={tmp_path / 'services'}", f"saves={tmp_path}"]
    assert main([*words, "security=tls", *where]) == 1
    assert "leave security=tls out" in capsys.readouterr().err
