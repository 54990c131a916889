"""The audit log: bounded, in order, and never in its caller's way."""

import pytest
from msgspec.structs import replace

import servers
from remuda.accounts import audit as audit_module
from remuda.accounts.audit import Audit
from remuda.fleet.origin import EVERY_SCOPE, Origin, Scope
from remuda.keyspace.accounts import AUDIT
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

OPERATOR = Origin(account="ops", token="ann", address="10.0.0.7", scopes=EVERY_SCOPE)
CLIENT = Origin(account="web", token="ci", address="10.0.0.8", scopes=frozenset({Scope.USE}))


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
    monkeypatch.setattr(audit_module, "KEPT_OF_ADMINS", 100)
    for number in range(500):
        await Audit(store).record(OPERATOR, "kill", str(number))

    assert await store.send("XLEN", AUDIT()) == 100


async def test_a_client_pushes_out_no_entry_of_an_admin_or_of_another_account(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "KEPT_OF_CLIENTS", 10)
    audit = Audit(store)
    await audit.record(OPERATOR, "account.set", "web")
    await audit.record(CLIENT, "job.create", "j0")

    for number in range(50):
        await audit.record(replace(CLIENT, account="flood"), "job.create", str(number))

    entries = await audit.newest(limit=100)
    assert [each.subject for each in entries] == [*map(str, range(49, 39, -1)), "j0", "web"]
    assert await take_census(store) == []


async def test_repeated_logins_of_a_token_are_one_entry(store: Store) -> None:
    audit = Audit(store)
    elsewhere = replace(CLIENT, address="10.0.0.9")

    for number in range(20):
        await audit.record_routine(CLIENT, "login", "web/ci")
        await audit.record_routine(CLIENT, "logout", "web/ci")
        await audit.record(CLIENT, "job.abort", str(number))
    await audit.record_routine(elsewhere, "login", "web/ci")

    entries = await audit.newest(limit=100)
    assert len(entries) == 20 + 3
    assert [(each.address, each.details) for each in entries if each.action == "login"] == [
        ("10.0.0.9", {}),
        ("10.0.0.8", {"times": 20}),
    ]
    assert await take_census(store) == []


async def test_logins_of_a_later_hour_are_another_entry(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "REPEATED_WITHIN", 1)
    audit = Audit(store)

    await audit.record_routine(CLIENT, "login", "web/ci")
    await audit.record_routine(CLIENT, "login", "web/ci")

    async def has_two_entries() -> bool:
        await audit.record_routine(CLIENT, "login", "web/ci")
        return len(await audit.newest(limit=10)) == 2

    await eventually(has_two_entries)


async def test_details_that_a_client_makes_very_long_are_left_out(store: Store) -> None:
    await Audit(store).record(CLIENT, "job.ignores", "j", added=["x" * 1000] * 1000, removed=[])

    (entry,) = await Audit(store).newest(limit=10)
    assert entry.details == {"omittedBytes": 1_003_024}


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
