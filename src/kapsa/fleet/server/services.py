"""The services of a manager, built from settings: what the API and the background tasks use."""

import functools
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from kapsa.adapters.http.address_guard import reject_private_address
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.fleet.infrastructure.audit.expiry import AuditExpiry
from kapsa.fleet.infrastructure.audit.reader import PostgresAuditReader
from kapsa.fleet.infrastructure.audit.sealer import AuditSealer
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.delivery.dispatcher import AT_ONCE, MessageSender, OutboxDispatcher
from kapsa.fleet.infrastructure.delivery.mail import SmtpMailer, SmtpServer
from kapsa.fleet.infrastructure.delivery.outbox import OutboxQueue, PostgresOutbox, endpoint_id
from kapsa.fleet.infrastructure.delivery.webhooks import WebhookSender
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.retention import Retention, foundation_rules
from kapsa.fleet.infrastructure.requests.idempotency import PostgresIdempotencyKeys
from kapsa.fleet.infrastructure.requests.rate_limits import PostgresRateLimits
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.orchestrator.audit import AuditLog
from kapsa.fleet.server.background import SHORT_PAUSE, BackgroundTask
from kapsa.fleet.server.health import HealthServices, build_health
from kapsa.fleet.server.keys import ManagerKeys, open_keys
from kapsa.fleet.server.registry import RegistryServices, address_guard, build_registry
from kapsa.fleet.server.rollouts import RolloutServices, build_rollouts
from kapsa.fleet.server.telemetry import TelemetryServices, build_telemetry
from kapsa.fleet.settings import FleetSettings

__all__ = ["ManagerServices", "build_services"]


_WEBHOOK_SECONDS = 10.0
"""Less than the dispatcher waits, so that the reason of a failure is known."""


class ManagerServices(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a manager, without its listener."""

    settings: FleetSettings
    database: Database
    keys: ManagerKeys
    audit: PostgresAuditTrail
    audit_log: AuditLog
    audit_expiry: AuditExpiry
    sealer: AuditSealer
    idempotency_keys: PostgresIdempotencyKeys
    rate_limits: PostgresRateLimits
    outbox: PostgresOutbox
    dispatcher: OutboxDispatcher
    retention: Retention
    http_client: GuardedHttpClient
    webhook_client: GuardedHttpClient
    registry: RegistryServices
    health: HealthServices
    rollouts: RolloutServices
    telemetry: TelemetryServices

    @property
    def vault(self) -> EnvelopeVault:
        """The vault of all secrets."""
        return self.keys.vault

    def background(self) -> tuple[BackgroundTask, ...]:
        """Return the tasks that run all the time."""
        monitor, sweeps = self.registry.monitor, self.health.sweeps
        return (
            BackgroundTask("audit-sealer", self.sealer.seal, every=1.0),
            BackgroundTask("audit-expiry", self.audit_expiry.sweep, every=3600.0),
            *self._delivery(),
            BackgroundTask("retention", self.retention.sweep, every=3600.0),
            BackgroundTask(
                "cluster-health", monitor.run_due, longest_pause=SHORT_PAUSE, on_stop=monitor.stop
            ),
            BackgroundTask("operator-health", sweeps.run_due, longest_pause=SHORT_PAUSE, on_stop=sweeps.stop),
            BackgroundTask("fleet-metrics", self._refresh_metrics, every=15.0),
            BackgroundTask("rollouts", self.rollouts.engine.serve, on_stop=self.rollouts.engine.stop),
        )

    def _delivery(self) -> Iterator[BackgroundTask]:
        """Return a task for each destination, so that none waits for another."""
        for lane in self.dispatcher.lanes:
            work = functools.partial(self.dispatcher.deliver_lane, lane)
            yield BackgroundTask(f"outbox {lane.name}".rstrip(), work, every=1.0 if lane.name else 60.0)

    async def _refresh_metrics(self) -> None:
        await self.telemetry.refresh(self.database, self.health.operators)

    async def close(self) -> None:
        """Close connections to the outside."""
        await self.webhook_client.close()
        await self.rollouts.close()
        await self.registry.close()
        await self.http_client.close()
        await self.keys.close()


async def build_services(settings: FleetSettings, database: Database) -> ManagerServices:
    """Build the parts of a manager on a migrated database.

    Raises KeyRingError unless the keys of the database are loaded: no key, no start.
    """
    keys = await open_keys(settings, database)
    vault, audit_key = keys.vault, keys.audit_key
    client = GuardedHttpClient(address_guard=address_guard(settings))
    webhook_client = _webhook_client(settings)
    audit = PostgresAuditTrail(audit_key)
    outbox = PostgresOutbox(settings.webhook_urls, mail=bool(settings.smtp_host))
    telemetry = build_telemetry()
    registry = build_registry(settings, database, vault, audit, telemetry.registry)
    health = build_health(settings, database, audit, registry, telemetry.health)
    return ManagerServices(
        settings=settings,
        database=database,
        keys=keys,
        audit=audit,
        audit_log=AuditLog(PostgresAuditReader(database)),
        audit_expiry=AuditExpiry(database, audit, timedelta(days=settings.audit_retention_days)),
        sealer=AuditSealer(database, audit_key),
        idempotency_keys=PostgresIdempotencyKeys(database),
        rate_limits=PostgresRateLimits(database),
        outbox=outbox,
        dispatcher=OutboxDispatcher(
            OutboxQueue(database),
            _senders(settings, webhook_client),
            [endpoint_id(url) for url in dict.fromkeys(settings.webhook_urls)],
        ),
        retention=Retention(database, foundation_rules(timedelta(days=settings.outbox_retention_days))),
        http_client=client,
        webhook_client=webhook_client,
        registry=registry,
        health=health,
        telemetry=telemetry,
        rollouts=build_rollouts(
            settings, database, vault, audit, outbox, registry, health.observer, telemetry
        ),
    )


def _webhook_client(settings: FleetSettings) -> GuardedHttpClient:
    """Return a client of its own: webhooks that do not answer take no connection from anything else."""
    private = settings.webhook_private_addresses or settings.internal_addresses
    return GuardedHttpClient(
        address_guard=address_guard(settings) if private else reject_private_address,
        timeout=_WEBHOOK_SECONDS,
        connections=AT_ONCE * max(1, len(settings.webhook_urls)),
    )


def _senders(settings: FleetSettings, client: GuardedHttpClient) -> dict[str, MessageSender]:
    senders: dict[str, MessageSender] = {}
    if settings.smtp_host:
        senders["mail"] = SmtpMailer(
            SmtpServer(
                host=settings.smtp_host,
                port=settings.smtp_port,
                security=settings.smtp_security,
                sender=settings.mail_from,
                username=settings.smtp_username,
                password=settings.secret("smtp_password"),
                ca_file=settings.smtp_ca_file,
            )
        )
    if settings.webhook_urls:
        senders["webhook"] = WebhookSender(client, settings.webhook_urls, *settings.webhook_secrets())
    return senders
