"""The audit log: bounded, in order, and never in its caller's way."""

import pytest

import servers
from remuda.accounts import audit as audit_module
from remuda.accounts.audit import Audit
from remuda.fleet.origin import Origin
from remuda.keyspace.accounts import AUDIT
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

OPERATOR = Origin(account="ops", token="ann", address="10.0.0.7")


async def test_an_entry_says_who_did_what_to_what(store: Store) -> None:
    audit = Audit(store)

    await audit.record(OPERATOR, "token.create", "web/ci", scopes=["use"])

    (entry,) = await audit.newest(limit=10)
    assert (entry.account, entry.token, entry.address) == ("ops", "ann", "10.0.0.7")
    assert (entry.action, entry.subject, entry.details) == ("token.create", "web/ci", {"scopes": ["use"]})
    assert await take_census(store) == []


async def test_the_log_is_read_from_its_end_in_pages_and_on_from_an_entry(store: Store) -> None:
    audit = Audit(store)
    for number in range(5):
        await audit.record(OPERATOR, "kill", str(number))

    first = await audit.newest(limit=2)
    second = await audit.newest(limit=2, before=first[-1].id)
    later = await audit.after(second[-1].id, limit=2)

    assert [each.subject for each in first] == ["4", "3"]
    assert [each.subject for each in second] == ["2", "1"]
    assert [each.subject for each in later] == ["3", "2"]


async def test_the_log_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "KEPT_ENTRIES", 100)
    for number in range(500):
        await Audit(store).record(OPERATOR, "kill", str(number))

    # Redis trims whole blocks of a hundred.
    assert 100 <= await store.send("XLEN", AUDIT()) <= 200


async def test_without_redis_the_entry_goes_to_the_own_log(
    server: servers.Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store:
        server.kill()
        await eventually(lambda: not store.is_connected)

        await Audit(store).record(OPERATOR, "drain", "ranch")

    (record,) = [each for each in caplog.records if each.message == "audit entry not written"]
    fields = vars(record)["remuda_fields"]
    assert (fields["subject"], fields["by"]) == ("ranch", "ann")
