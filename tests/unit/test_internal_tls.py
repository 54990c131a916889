"""TLS between the processes of a herd: which connections are made, and which certificates are believed."""

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from certificates import CertificateAuthority
from configs import make_config
from remuda.base.certificate import Authorities, Certificate
from remuda.base.errors import Misconfigured, UpstreamUnavailable
from remuda.fleet.internal import NO_TLS, InternalTls
from remuda.fleet.relay import Address
from remuda.store.url import parse_url

ADDRESS = "198.18.0.2"
PLAIN, ENCRYPTED = Address(ADDRESS, 4000), Address(ADDRESS, 4000, is_tls=True)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def options(own: CertificateAuthority) -> dict[str, str]:
    return own.issue(ADDRESS)


def test_a_port_that_speaks_tls_is_verified(options: dict[str, str]) -> None:
    context = InternalTls.of(make_config(**options)).context_for(ENCRYPTED)

    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_all_contexts_of_a_herds_own_have_forward_secrecy_and_no_padding(options: dict[str, str]) -> None:
    internal = InternalTls.of(make_config(**options))
    assert internal.certificate is not None
    contexts = [
        internal.certificate.context,
        internal.context_for(ENCRYPTED),
        parse_url("rediss://127.0.0.1").tls,
    ]

    for context in contexts:
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        older = [cipher for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
        assert older
        assert {(cipher["kea"], cipher["aead"]) for cipher in older} == {("kx-ecdhe", True)}


def test_a_port_that_speaks_tls_is_not_believed_unseen() -> None:
    with pytest.raises(UpstreamUnavailable, match="speaks TLS, and this process has no internal_tls_ca"):
        NO_TLS.context_for(ENCRYPTED)


def test_the_secret_goes_to_no_other_machine_in_plain_text(options: dict[str, str]) -> None:
    tls = InternalTls.of(make_config(**options))

    with pytest.raises(UpstreamUnavailable, match=r"198\.18\.0\.2:4000 does not speak TLS"):
        tls.context_for(PLAIN)


@pytest.mark.parametrize("address", [Address("127.0.0.1", 1), Address("::1", 1)], ids=str)
def test_what_stays_on_the_machine_may_be_plain(options: dict[str, str], address: Address) -> None:
    assert InternalTls.of(make_config(**options)).context_for(address) is None


def test_during_an_upgrade_both_are_connected_to(options: dict[str, str]) -> None:
    tls = InternalTls.of(make_config(internal_tls_optional=True, **options))

    assert tls.context_for(PLAIN) is None
    assert tls.context_for(ENCRYPTED) is not None


def test_without_options_nothing_changes() -> None:
    assert InternalTls.of(make_config()) == NO_TLS
    assert NO_TLS.context_for(PLAIN) is None


@pytest.mark.parametrize("missing", ["internal_tls_cert", "internal_tls_key"])
def test_half_a_pair_is_refused(options: dict[str, str], missing: str) -> None:
    with pytest.raises(Misconfigured, match=f"but {missing} is not: TLS needs both"):
        InternalTls.of(make_config(**{**options, missing: ""}))


def test_a_file_without_a_certificate_is_no_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(Misconfigured, match="holds no certificate in PEM"):
        InternalTls.of(make_config(internal_tls_ca=str(tmp_path / "ca.pem")))


def test_a_file_that_vanishes_while_it_is_read_leaves_the_old_certificate(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [shutil.copy(options[name], tmp_path) for name in ("internal_tls_cert", "internal_tls_key")]
    certificate = Certificate(*map(str, files))
    before = certificate.context
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(Path, "is_file", lambda _: True)

    Path(files[1]).unlink()
    certificate.refresh()

    assert certificate.context is before


def test_ones_own_certificate_is_checked_as_others_will(
    own: CertificateAuthority, options: dict[str, str], tmp_path: Path
) -> None:
    certificate = Certificate(options["internal_tls_cert"], options["internal_tls_key"], options="internal_")
    other = CertificateAuthority(tmp_path)

    Authorities(own.ca, option="internal_tls_ca").check(certificate, ADDRESS)
    with pytest.raises(Misconfigured, match=r"internal_tls_cert is .* not valid for '198\.18\.0\.3'"):
        Authorities(own.ca, option="internal_tls_ca").check(certificate, "198.18.0.3")
    with pytest.raises(Misconfigured, match="unable to get local issuer certificate"):
        Authorities(other.ca, option="internal_tls_ca").check(certificate, ADDRESS)


def test_the_commands_of_the_documentation_make_such_certificates(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text()
    commands = page.partition("## TLS between machines")[2].partition("```console\n")[2].partition("```")[0]
    script = "\n".join(line.removeprefix("$ ") for line in commands.splitlines())

    subprocess.run(["bash", "-euc", script], check=True, cwd=tmp_path, capture_output=True)

    certificate = Certificate(str(tmp_path / "browsers-1.pem"), str(tmp_path / "browsers-1.key"))
    Authorities(str(tmp_path / "ca.pem"), option="internal_tls_ca").check(certificate, "10.0.0.2")
