"""An authority of one's own, and certificates of it, made by the commands of docs/operate.md."""

import subprocess
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class CertificateAuthority:
    """Certificates and keys in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.ca = str(directory / "ca.pem")
        self._key = str(directory / "ca.key")
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-days", "3650", "-subj", "/CN=Remuda"),
            *("-addext", "keyUsage=critical,keyCertSign", "-keyout", self._key, "-out", self.ca),
        )

    def issue(self, address: str, *, name: str = "machine") -> dict[str, str]:
        """A certificate for this IP address; the options with which a process uses it and trusts its like."""
        cert, key, request = (str(self._directory / f"{name}.{end}") for end in ("pem", "key", "csr"))
        _openssl(
            *("req", *_NEW_KEY, "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}"),
            *("-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-copy_extensions", "copy", "-days", "365"),
            *("-CA", self.ca, "-CAkey", self._key, "-out", cert),
        )
        return {"internal_tls_cert": cert, "internal_tls_key": key, "internal_tls_ca": self.ca}


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
