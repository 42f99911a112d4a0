"""The folder of secrets: made once, kept, closed to others; no secret where it can be seen."""

import os
import pickle
import stat
from pathlib import Path

import pytest
from cryptography import x509

from pipeline.config import load_config
from pipeline.connect import connect, with_actors
from pipeline.errors import ConfigError
from pipeline.secrets.certificates import Certificate, issue, make_authority, serves
from pipeline.secrets.folder import ROLES, SETUP, VOUCHED, Hosts, SecretsFolder
from pipeline.secrets.secret_file import SecretFile
from pipeline.secrets.users import check_name, hosts

HOSTS = Hosts(["localhost", "127.0.0.1"], ["localhost", "127.0.0.1"])


@pytest.fixture
def folder(tmp_path: Path) -> SecretsFolder:
    made = SecretsFolder(tmp_path / "secrets")
    made.init(HOSTS)
    return made


def files(folder: SecretsFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_all_but_certificates_is_for_its_owner_alone(folder: SecretsFolder):
    public = {folder.ca, folder.broker_ca, folder.store_certs / "public.crt"}
    for path in folder.path.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o644 if path in public else 0o600), path


def test_a_second_init_changes_nothing(folder: SecretsFolder):
    before = files(folder)
    assert folder.init(HOSTS) == []
    assert files(folder) == before


def test_init_makes_what_is_missing_and_nothing_else(folder: SecretsFolder):
    before = files(folder)
    folder.role("learner").unlink()
    assert folder.init(HOSTS) == ["learner/secret.yaml"]
    after = files(folder)
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {str(folder.role("learner"))}


def test_another_host_makes_another_certificate_of_the_same_authority(folder: SecretsFolder):
    before = folder.broker_pem.read_text()
    assert folder.init(Hosts([*HOSTS.broker, "kafka", "::1"], HOSTS.store)) == ["kafka/server.pem"]
    assert folder.broker_pem.read_text() != before
    pem = folder.broker_pem.read_text()
    assert serves(pem[pem.index("-----BEGIN CERT") :], folder.authority(), ["kafka", "::1", "127.0.0.1"])


def test_a_certificate_that_ends_soon_is_made_anew(folder: SecretsFolder):
    key = (folder.path / "ca" / "ca.key").read_text()
    soon = issue(Certificate(folder.authority(), key), "minio", HOSTS.store, days=29)
    (folder.store_certs / "public.crt").write_text(soon.certificate)
    assert folder.init(HOSTS) == ["minio/certs/private.key", "minio/certs/public.crt"]


def test_what_serves_and_what_does_not():
    authority, other = make_authority(), make_authority()
    pair = issue(authority, "kafka", ["localhost", "10.0.0.1"], mutual=True)
    assert serves(pair.certificate, authority.certificate, ["localhost", "10.0.0.1"])
    assert not serves(pair.certificate, other.certificate, ["localhost"])
    assert not serves(pair.certificate, authority.certificate, ["10.0.0.2"])
    assert not serves("no certificate", authority.certificate, [])
    assert not serves(issue(authority, "k", ["localhost"], days=-1).certificate, authority.certificate, ["localhost"])
    usage = x509.load_pem_x509_certificate(pair.certificate.encode()).extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert len(list(usage.value)) == 2


def test_roles_have_what_they_need_and_no_more(folder: SecretsFolder):
    passwords: set[str] = set()
    for role in ROLES:
        secret = SecretFile.read(folder.role(role))
        assert secret.kafka.username == role
        assert secret.kafka.ca == secret.store.ca == folder.authority()
        assert secret.store.secure
        assert bool(secret.actors.key) == (role in VOUCHED)
        passwords |= {secret.kafka.password, secret.store.secret_key}
    assert len(passwords) == 2 * len(ROLES)
    assert min(map(len, passwords)) >= 32
    assert SecretFile.read(folder.role(SETUP)).store.secret_key == folder.root_password.read_text().strip()
    # What formats the broker's storage holds the salted password, not the password.
    assert SecretFile.read(folder.role(SETUP)).kafka.password not in folder.format_args.read_text()


def test_addresses_stand_in_the_files_if_they_are_given(tmp_path: Path):
    config = load_config(["secrets.broker=example.org:9092"])
    config.secrets.store = "[2001:db8::1]:9000"
    where = hosts(config)
    assert where.broker == ["localhost", "127.0.0.1", "example.org"]
    assert where.store == ["localhost", "127.0.0.1", "2001:db8::1"]
    folder = SecretsFolder(tmp_path / "s")
    folder.init(where)
    secret = SecretFile.read(folder.role("learner"))
    assert (secret.kafka.bootstrap_servers, secret.store.endpoint) == ("example.org:9092", "[2001:db8::1]:9000")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_is_open_to_others_is_refused(folder: SecretsFolder, mode: int):
    path = folder.role("learner")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"{path} is open to others \(mode 0{mode:o}\).*chmod 600"):
        connect(load_config([f"secret={path}", "kafka.bootstrap_servers=b:1"]))


@pytest.mark.parametrize(
    "text, said",
    [
        ("kafka: {password: hunter2", "no YAML at line 1"),
        ("kafka:\n  pasword: hunter2\n", "did you mean 'password'"),
        ("hunter2: 1\n", "there are kafka, store, actor, actors"),
        ("kafka: {password: 0123}\n", "kafka.password .* put it into quotes"),
        ("store: {secure: 'hunter2'}\n", "store.secure .* true or false"),
        ("kafka: hunter2\n", "must be a mapping"),
        ("hunter2\n", "must be a mapping"),
        ("actors: {key: hunter2}\n", "not hexadecimal"),
    ],
)
def test_a_damaged_file_is_explained_without_its_secrets(tmp_path: Path, text: str, said: str):
    path = tmp_path / "secret.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=said) as caught:
        with_actors(load_config([f"secret={path}"]))
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "hunter2" not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__cause__ or shown.__context__


def test_secrets_show_in_no_repr(folder: SecretsFolder):
    path = folder.role("learner")
    secret = SecretFile.read(path)
    connection = connect(load_config([f"secret={path}", "kafka.bootstrap_servers=b:1", "store.endpoint=s:1"]))
    for shown in (repr(secret), repr(connection), repr(pickle.loads(pickle.dumps(connection)))):
        for hidden in (secret.kafka.password, secret.store.secret_key, secret.actors.key):
            assert str.__str__(hidden) not in shown
    assert connection.broker.password == secret.kafka.password
    assert connection.store.secure and connection.store.ca == connection.broker.ca == folder.authority()


def test_a_secret_among_the_settings_is_refused_unsaid():
    config = load_config(["kafka.producer.sasl.password=hunter2", "kafka.bootstrap_servers=b:1"])
    with pytest.raises(ConfigError, match=r"kafka\.producer\.sasl\.password is a secret") as caught:
        connect(config)
    assert "hunter2" not in str(caught.value)


def test_without_a_folder_it_is_said_how_to_make_one(tmp_path: Path):
    with pytest.raises(ConfigError, match="pipeline secrets init"):
        SecretsFolder(tmp_path).authority()


@pytest.mark.parametrize("name", ["", "ab", "Alice", "a/b", "a b", "1abc", "a" * 41, *ROLES])
def test_names_that_no_client_may_have(name: str):
    with pytest.raises(ConfigError, match="client"):
        check_name(name)
