"""Mail and webhooks from the outbox: exactly what was committed, at least once, by one replica at a time."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiosmtplib
import msgspec
import pytest
from aiohttp import web
from sqlalchemy import select
from structlog.testing import capture_logs

from kapsa.adapters.errors import Refused, Unreachable
from kapsa.adapters.http.address_guard import reject_metadata_address, reject_private_address
from kapsa.adapters.http.client import GuardedHttpClient, HttpResponse
from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.adapters.testing.webhook_receiver import WebhookReceiver
from kapsa.fleet.infrastructure.delivery.dispatcher import OutboxDispatcher
from kapsa.fleet.infrastructure.delivery.mail import SmtpMailer, SmtpServer
from kapsa.fleet.infrastructure.delivery.outbox import (
    ClaimedMessage,
    OutboxQueue,
    PostgresOutbox,
    endpoint_id,
)
from kapsa.fleet.infrastructure.delivery.webhooks import WebhookSender, webhook_signature
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import outbox
from kapsa.fleet.orchestrator.ports.outbox import MailMessage, WebhookEvent
from tests.fleet.infrastructure.delivery.mail_server import MailServer

START = datetime(2030, 1, 1, tzinfo=UTC)
MAIL = MailMessage(("ada@example.com",), "Approval needed", "Deploy cert-manager 1.15 to Production?\n")
EVENT = WebhookEvent("approval.requested", {"deployment": "7"})
URL = "https://hooks.example.com/planted-secret"
SECRET = "a secret of at least 24 characters"


@pytest.fixture
async def mail_server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


def mailer(server: MailServer, **options: Any) -> SmtpMailer:
    return SmtpMailer(SmtpServer("127.0.0.1", server.port, "none", "fleet@example.com", **options))


def dispatcher(database: Database, server: MailServer) -> OutboxDispatcher:
    return OutboxDispatcher(OutboxQueue(database), {"mail": mailer(server)})


async def put(database: Database, message: MailMessage | WebhookEvent = MAIL) -> None:
    async with database.transaction() as connection:
        await PostgresOutbox([URL]).put(connection, message)


async def rows(database: Database) -> list[Any]:
    async with database.transaction() as connection:
        return list((await connection.execute(select(outbox).order_by(outbox.c.created_at))).all())


class Receiver:
    """An HTTP client that records requests and responds as its test says."""

    def __init__(self, *responses: int | Exception) -> None:
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []
        self._responses = list(responses)

    async def fetch(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes, **_: Any
    ) -> HttpResponse:
        self.requests.append((url, headers, body))
        response = self._responses.pop(0) if self._responses else 204
        if isinstance(response, Exception):
            raise response
        return HttpResponse(response, {})


class HangingReceiver(Receiver):
    """A client that gets no response from one address until its test says so."""

    def __init__(self, dead: str) -> None:
        super().__init__()
        self._dead = dead
        self.called, self.answer = asyncio.Event(), asyncio.Event()

    async def fetch(self, method: str, url: str, **request: Any) -> HttpResponse:
        response = await super().fetch(method, url, **request)
        if url == self._dead:
            self.called.set()
            await self.answer.wait()
        return response


async def test_a_committed_mail_is_received_once(database: Database, mail_server: MailServer) -> None:
    await put(database)
    assert await dispatcher(database, mail_server).deliver_due() == 1
    assert await dispatcher(database, mail_server).deliver_due() == 0
    (mail,) = mail_server.received
    assert (mail["From"], mail["To"], mail["Subject"]) == (
        "fleet@example.com",
        "ada@example.com",
        "Approval needed",
    )
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().splitlines() == MAIL.text.splitlines()
    assert mail["Message-ID"] == f"<{(await rows(database))[0].id}@example.com>"


async def test_a_mail_of_a_transaction_that_rolled_back_is_never_sent(
    database: Database, mail_server: MailServer
) -> None:
    async def fail() -> None:
        async with database.transaction() as connection:
            await PostgresOutbox().put(connection, MAIL)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        await fail()
    assert await dispatcher(database, mail_server).deliver_due() == 0


async def test_a_mail_whose_manager_died_while_sending_is_sent_within_30_seconds(
    database: Database, mail_server: MailServer
) -> None:
    database.set_clock(START)
    await put(database)
    assert len(await OutboxQueue(database).claim(10)) == 1  # and here the manager dies
    assert await dispatcher(database, mail_server).deliver_due() == 0
    database.set_clock(START + timedelta(seconds=20))
    assert await dispatcher(database, mail_server).deliver_due() == 1
    assert len(mail_server.received) == 1


async def test_a_repetition_after_a_crash_has_the_same_message_id(
    database: Database, mail_server: MailServer
) -> None:
    database.set_clock(START)
    await put(database)
    (message,) = await OutboxQueue(database).claim(10)
    await mailer(mail_server).send(message)  # sent, and then the manager dies
    database.set_clock(START + timedelta(seconds=20))
    await dispatcher(database, mail_server).deliver_due()
    first, second = mail_server.received
    assert first["Message-ID"] == second["Message-ID"]


async def test_replicas_do_not_send_a_mail_twice(
    database: Database, replica: Callable[[], Database], mail_server: MailServer
) -> None:
    for number in range(12):
        await put(database, MailMessage((f"p{number}@example.com",), "s", "t"))
    replicas = [dispatcher(each, mail_server) for each in (database, replica(), replica())]
    attempts = await asyncio.gather(*(each.deliver_due() for each in replicas))
    assert sum(attempts) == 12
    assert len({mail["To"] for mail in mail_server.received}) == len(mail_server.received) == 12


async def test_each_recipient_gets_a_mail_of_their_own_and_is_retried_alone(
    database: Database, mail_server: MailServer
) -> None:
    database.set_clock(START)
    await put(database, MailMessage(("a@example.com", "b@example.com", "a@example.com"), "s", "t"))
    mail_server.responses = ["451 busy"]
    await dispatcher(database, mail_server).deliver_due()
    assert len(mail_server.received) == 1
    database.set_clock(START + timedelta(seconds=5))
    await dispatcher(database, mail_server).deliver_due()
    assert sorted(mail["To"] for mail in mail_server.received) == ["a@example.com", "b@example.com"]


async def test_failures_are_retried_later_and_later_and_given_up_after_a_day(database: Database) -> None:
    class Broken:
        async def send(self, message: ClaimedMessage) -> None:
            raise aiosmtplib.SMTPConnectError("not expected by the dispatcher")

    database.set_clock(START)
    await put(database)
    broken = OutboxDispatcher(OutboxQueue(database), {"mail": Broken()})
    moment, waits = START, []
    for _ in range(10):
        await broken.deliver_due()
        (row,) = await rows(database)
        waits.append((row.due_at - moment).total_seconds())
        moment = row.due_at
        database.set_clock(moment)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    while moment < START + timedelta(days=1):
        assert row.abandoned_at is None
        await broken.deliver_due()
        (row,) = await rows(database)
        moment = row.due_at
        database.set_clock(moment)
    await broken.deliver_due()
    (row,) = await rows(database)
    assert row.abandoned_at is not None
    assert row.last_error == "SMTPConnectError"


async def test_a_message_that_waited_for_a_day_without_a_manager_is_tried_twenty_times(
    database: Database,
) -> None:
    database.set_clock(START)
    await put(database, EVENT)
    moment, attempts = START + timedelta(days=3), 0
    sender = WebhookSender(Receiver(*[503] * 30), [URL], SECRET)
    events = OutboxDispatcher(OutboxQueue(database), {"webhook": sender})
    (row,) = await rows(database)
    while row.abandoned_at is None:
        database.set_clock(moment)
        await events.deliver_due()
        attempts += 1
        (row,) = await rows(database)
        moment = row.due_at
    assert attempts == 20


async def test_a_recipient_that_does_not_exist_is_given_up_at_once(
    database: Database, mail_server: MailServer
) -> None:
    await put(database)
    mail_server.recipient_responses = ["550 no such user"]
    await dispatcher(database, mail_server).deliver_due()
    (row,) = await rows(database)
    assert row.abandoned_at is not None
    assert row.last_error == "127.0.0.1 refused the recipient with 550"


async def test_a_recipient_that_is_deferred_is_retried(database: Database, mail_server: MailServer) -> None:
    await put(database)
    mail_server.recipient_responses = ["451 greylisted"]
    await dispatcher(database, mail_server).deliver_due()
    (row,) = await rows(database)
    assert (row.abandoned_at, row.last_error) == (None, "127.0.0.1 deferred the recipient with 451")


async def test_a_mail_server_that_is_down_is_reported_and_retried(database: Database) -> None:
    async with MailServer() as server:
        port = server.port
    unreachable = SmtpMailer(SmtpServer("127.0.0.1", port, "none", "fleet@example.com"))
    await put(database)
    await OutboxDispatcher(OutboxQueue(database), {"mail": unreachable}).deliver_due()
    (row,) = await rows(database)
    assert row.last_error.startswith("127.0.0.1: SMTPConnectError")
    assert row.delivered_at is row.abandoned_at is None


async def test_a_zombie_cannot_undo_what_a_later_attempt_did(database: Database) -> None:
    queue = OutboxQueue(database)
    database.set_clock(START)
    await put(database)
    (zombie,) = await queue.claim(1)
    database.set_clock(START + timedelta(seconds=20))
    (second,) = await queue.claim(1)
    await queue.abandoned(zombie, "late")
    await queue.delivered(second)
    await queue.failed(zombie, "late")
    (row,) = await rows(database)
    assert (row.abandoned_at, row.last_error) == (None, "")
    assert row.delivered_at == START + timedelta(seconds=20)


@pytest.mark.parametrize("address", ["a b@x", "a@x\nBcc: eve@x", "a@x,eve@x", "<a@x>", "nobody", ""])
async def test_an_address_that_could_add_recipients_is_dropped(database: Database, address: str) -> None:
    await put(database, MailMessage((address,), "s", "t"))
    assert await rows(database) == []


async def test_a_subject_cannot_add_headers(database: Database, mail_server: MailServer) -> None:
    await put(database, MailMessage(("a@example.com",), "Hello\r\nBcc: eve@example.com", "t"))
    await dispatcher(database, mail_server).deliver_due()
    (mail,) = mail_server.received
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Hello Bcc: eve@example.com"


async def test_without_a_mail_server_no_mail_is_queued(database: Database) -> None:
    async with database.transaction() as connection:
        await PostgresOutbox(mail=False).put(connection, MAIL)
    assert await rows(database) == []


async def test_a_message_of_a_kind_that_is_not_configured_any_more_waits(database: Database) -> None:
    await put(database)
    await OutboxDispatcher(OutboxQueue(database), {}).deliver_due()
    (row,) = await rows(database)
    assert row.last_error == "no mail server is configured"
    assert row.abandoned_at is None


async def test_mail_goes_over_starttls_with_a_password(database: Database, tmp_path: Path) -> None:
    tls, certificate = loopback_tls("mail")
    authority = tmp_path / "ca.pem"
    authority.write_text(certificate)
    server_settings: dict[str, Any] = {
        "security": "starttls",
        "sender": "fleet@example.com",
        "username": "fleet",
        "ca_file": authority,
    }
    async with MailServer(tls=tls, password=b"geheim") as server:
        await put(database)
        right = SmtpMailer(SmtpServer("127.0.0.1", server.port, password="geheim", **server_settings))
        await OutboxDispatcher(OutboxQueue(database), {"mail": right}).deliver_due()
        assert len(server.received) == 1
        await put(database)
        wrong = SmtpMailer(SmtpServer("127.0.0.1", server.port, password="falsch", **server_settings))
        await OutboxDispatcher(OutboxQueue(database), {"mail": wrong}).deliver_due()
    assert "falsch" not in str(await rows(database))
    assert "geheim" not in repr(SmtpServer("h", 1, password="geheim", **server_settings))


async def test_a_mail_server_with_an_untrusted_certificate_gets_no_mail(database: Database) -> None:
    tls, _ = loopback_tls("mail")
    async with MailServer(tls=tls) as server:
        await put(database)
        mailer = SmtpMailer(SmtpServer("127.0.0.1", server.port, "starttls", "fleet@example.com"))
        await OutboxDispatcher(OutboxQueue(database), {"mail": mailer}).deliver_due()
        assert server.received == []
    (row,) = await rows(database)
    assert "certificate" in row.last_error.lower()


async def test_an_event_is_signed_over_its_id_its_time_and_its_body(database: Database) -> None:
    receiver = Receiver()
    sender = WebhookSender(receiver, [URL], SECRET)
    database.set_clock(datetime.fromtimestamp(1_900_000_000.7, UTC))
    await put(database, EVENT)
    database.set_clock(datetime.fromtimestamp(1_900_000_007.7, UTC))
    await OutboxDispatcher(OutboxQueue(database), {"webhook": sender}).deliver_due()
    ((url, headers, body),) = receiver.requests
    (row,) = await rows(database)
    assert url == URL
    assert msgspec.json.decode(body) == {
        "id": str(row.id), "type": "approval.requested", "timestamp": 1_900_000_000, "data": {"deployment": "7"},
    }  # fmt: skip
    assert headers["webhook-id"] == str(row.id)
    assert headers["webhook-timestamp"] == "1900000007"
    assert headers["webhook-signature"] == webhook_signature(
        SECRET.encode(), str(row.id), 1_900_000_007, body
    )
    assert row.delivered_at is not None


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # Computed by: printf 'msg_1.1700000000.{"a":1}' | openssl dgst -sha256 -hmac geheim -binary | base64
    expected = "v1,OW2tlUxUeQYpYOYTBNrZJxZP3icKFXRmFoP/qC2e50Q="
    assert webhook_signature(b"geheim", "msg_1", 1_700_000_000, b'{"a":1}') == expected


async def test_a_repeated_event_has_the_same_id_and_body_and_a_new_signature(database: Database) -> None:
    receiver = Receiver(503, 204)
    sender = WebhookSender(receiver, [URL], SECRET)
    events = OutboxDispatcher(OutboxQueue(database), {"webhook": sender})
    database.set_clock(START)
    await put(database, EVENT)
    await events.deliver_due()
    database.set_clock(START + timedelta(seconds=5))
    await events.deliver_due()
    (_, first, body), (_, second, repeated) = receiver.requests
    assert (first["webhook-id"], body) == (second["webhook-id"], repeated)
    assert first["webhook-signature"] != second["webhook-signature"]
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 5


@pytest.mark.parametrize(
    ("response", "error", "given_up"),
    [
        (500, "the webhook answered 500", False),
        (302, "the webhook answered 302", False),
        (410, "the webhook answered 410: it is gone", True),
        (Unreachable(f"POST {URL}: reset"), "the webhook could not be called: Unreachable", False),
        (Refused(f"POST {URL}: address"), "the webhook could not be called: Refused", False),
    ],
)
async def test_a_failed_event_is_recorded_without_its_url(
    database: Database, response: int | Exception, error: str, given_up: bool
) -> None:
    sender = WebhookSender(Receiver(response), [URL], SECRET)
    await put(database, EVENT)
    await OutboxDispatcher(OutboxQueue(database), {"webhook": sender}).deliver_due()
    (row,) = await rows(database)
    assert row.last_error == error
    assert (row.abandoned_at is not None) is given_up
    assert "planted-secret" not in str(row)


async def test_an_event_for_a_webhook_that_another_replica_has_already_is_not_lost(
    database: Database,
) -> None:
    database.set_clock(START)
    await put(database, EVENT)
    without = WebhookSender(Receiver(), ["https://other.example.com"], SECRET)
    await OutboxDispatcher(OutboxQueue(database), {"webhook": without}).deliver_due()
    (row,) = await rows(database)
    assert (row.last_error, row.abandoned_at) == ("the webhook is not configured any more", None)
    database.set_clock(row.due_at)
    receiver = Receiver()
    sender = WebhookSender(receiver, [URL], SECRET)
    await OutboxDispatcher(OutboxQueue(database), {"webhook": sender}, [endpoint_id(URL)]).deliver_due()
    assert len(receiver.requests) == 1


async def test_a_webhook_that_never_answers_holds_up_neither_mail_nor_another_webhook(
    database: Database, mail_server: MailServer
) -> None:
    dead, alive = "https://dead.example.com", "https://alive.example.com"
    receiver = HangingReceiver(dead)
    for _ in range(25):  # more than a lane sends at the same time
        async with database.transaction() as connection:
            await PostgresOutbox([dead, alive]).put(connection, EVENT)
    await put(database)
    dispatched = OutboxDispatcher(
        OutboxQueue(database),
        {"mail": mailer(mail_server), "webhook": WebhookSender(receiver, [dead, alive], SECRET)},
        [endpoint_id(dead), endpoint_id(alive)],
    )
    mail_lane, dead_lane, alive_lane, rest = dispatched.lanes
    blocked = asyncio.create_task(dispatched.deliver_lane(dead_lane))
    await receiver.called.wait()
    assert await dispatched.deliver_lane(mail_lane) == 1
    assert await dispatched.deliver_lane(alive_lane) == 25
    assert await dispatched.deliver_lane(rest) == 0
    assert not blocked.done()
    assert [url for url, _, _ in receiver.requests].count(dead) <= 10
    receiver.answer.set()
    assert await blocked == 25


async def test_a_message_that_is_given_up_after_a_day_is_reported_as_an_error(database: Database) -> None:
    database.set_clock(START)
    await put(database, EVENT)
    sender = WebhookSender(Receiver(*[503] * 20), [URL], SECRET)
    events = OutboxDispatcher(OutboxQueue(database), {"webhook": sender})
    with capture_logs() as logs:
        for hours in (*range(19), 24):
            database.set_clock(START + timedelta(hours=hours))
            await events.deliver_due()
    assert [(each["log_level"], each["event"]) for each in logs] == [
        *[("warning", "message not delivered, will be sent again")] * 19,
        ("error", "message abandoned: it could not be sent for a day"),
    ]


async def test_events_reach_a_receiver_over_loopback_signed_with_the_new_and_the_old_secret(
    database: Database,
) -> None:
    encoded = "whsec_" + base64.b64encode(b"the new secret of 24 bytes").decode()
    client = GuardedHttpClient(address_guard=reject_metadata_address)
    with WebhookReceiver(503, 204) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/hook"
        async with database.transaction() as connection:
            await PostgresOutbox([url, url]).put(connection, EVENT)
        sender = WebhookSender(client, [url], encoded, SECRET)
        events = OutboxDispatcher(OutboxQueue(database), {"webhook": sender}, [endpoint_id(url)])
        database.set_clock(datetime.now(UTC))
        await events.deliver_due()
        database.set_clock(datetime.now(UTC) + timedelta(seconds=6))
        await events.deliver_due()
        await client.close()
    (first, _), (second, body) = receiver.received
    assert first["webhook-id"] == second["webhook-id"] == msgspec.json.decode(body)["id"]
    for key in (b"the new secret of 24 bytes", SECRET.encode()):
        signature = webhook_signature(key, second["webhook-id"], int(second["webhook-timestamp"]), body)
        assert signature in second["webhook-signature"].split()


@pytest.fixture
async def guarded_client() -> AsyncIterator[GuardedHttpClient]:
    client = GuardedHttpClient(address_guard=reject_private_address)
    yield client
    await client.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/x",
        "http://169.254.169.254/latest",
        "http://[::1]:9/x",
        "http://10.1.2.3/x",
        "http://localhost:9/x",
    ],
)
async def test_a_webhook_on_an_internal_or_private_address_is_not_called(
    database: Database, guarded_client: GuardedHttpClient, url: str
) -> None:
    async with database.transaction() as connection:
        await PostgresOutbox([url]).put(connection, EVENT)
    sender = WebhookSender(guarded_client, [url], SECRET)
    await OutboxDispatcher(OutboxQueue(database), {"webhook": sender}).deliver_due()
    error = (await rows(database))[0].last_error
    assert error.startswith("the webhook could not be called: AddressRefused, its address")
    assert "KAPSA_FLEET_WEBHOOK_PRIVATE_ADDRESSES=true" in error


async def test_a_receiver_that_answers_with_a_long_page_or_an_endless_one_has_received_the_event() -> None:
    class Talkative(WebhookReceiver):
        """A receiver whose answer is larger than anybody reads, and does not end."""

        async def respond(self, request: web.Request) -> web.Response:
            await super().respond(request)
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(10):
                await response.write(b"thank you " * 10_000)
            await asyncio.sleep(60)
            return response  # type: ignore[return-value]

    client = GuardedHttpClient(address_guard=None, timeout=30.0)
    with Talkative() as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        payload = {"endpoint": endpoint_id(url), "type": "approval.requested", "data": {}}
        try:
            await WebhookSender(client, [url], SECRET).send(
                ClaimedMessage(uuid.uuid4(), "webhook", payload, 1, START, START)
            )
        finally:
            await client.close()
        assert len(receiver.received) == 1
