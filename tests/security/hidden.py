"""What must be seen nowhere."""

import base64
import re

from pipeline.secrets.folder import SecretsFolder
from pipeline.secrets.secret_file import SecretFile


def secrets_of(folder: SecretsFolder) -> set[str]:
    """Everything in the folder that nobody may see."""
    found = {folder.root_password.read_text().strip(), str.__str__(folder.actors_key())}
    for path in folder.path.glob("*/*.yaml"):
        secret = SecretFile.read(path)
        values = (secret.kafka.password, secret.store.secret_key, secret.actor.key, secret.actors.key)
        found |= {str.__str__(value) for value in values if value}
    for path in (folder.path / "ca" / "ca.key", folder.broker_pem, folder.store_certs / "private.key"):
        key = re.search(r"PRIVATE KEY-----\n(.+?)\n", path.read_text())
        assert key is not None
        found.add(key[1])
    salted = re.search(r'saltedpassword="(.+?)"', folder.format_args.read_text())
    assert salted is not None
    return found | {salted[1], base64.b64decode(salted[1]).hex()}
