"""A database: a StatefulSet with its own volume, a Service, and a CronJob that backs it up.

The volume outlives the resource unless `onDelete: Delete` is set: deleting data is an explicit decision.
"""

import contextlib
from typing import Annotated, Any, Literal

from kapsa.runtime import (
    Context,
    Controller,
    CustomResource,
    Field,
    NotFound,
    Operator,
    Owns,
    Part,
    Quantity,
    Requeue,
    Spec,
    Status,
    TerminalError,
    Watch,
    printer_column,
    rule,
    rule_for,
)

OWNER_LABEL = "database.example.com/name"
CLAIM = "v1/PersistentVolumeClaim"
PORT = 5432


class Backup(Part):
    """The schedule and storage of dumps."""

    enabled: bool = True
    """True if dumps are made."""
    schedule: Annotated[str, Field(min_length=1)] = "0 2 * * *"
    """The schedule in cron format."""
    keep: Annotated[int, Field(ge=1)] = 7
    """The number of dumps to keep."""
    storage: Quantity = Quantity("1Gi")
    """The size of the volume for dumps."""


class DatabaseSpec(Spec):
    """The database to run."""

    version: Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")] = "17"
    """The version of PostgreSQL."""
    storage: Quantity = Quantity("1Gi")
    """The size of the data volume. It can grow but not shrink."""
    storage_class: Annotated[str, Field(immutable=True)] | None = None
    """The storage class of the volumes; the cluster's default if absent."""
    password_secret: Annotated[str, Field(min_length=1)]
    """A Secret in the same namespace whose key `password` is the administrator's password."""
    backup: Backup | None = None
    """Scheduled dumps; none if absent."""
    on_delete: Literal["Keep", "Delete"] = "Keep"
    """The fate of the volumes when this resource is deleted."""


class DatabaseStatus(Status):
    """The state of the database."""

    phase: Literal["Pending", "Running"] = "Pending"
    """Running once the database accepts connections."""
    endpoint: str | None = None
    """The host name to connect to, on port 5432."""


class Database(
    CustomResource[DatabaseSpec, DatabaseStatus],
    group="example.com",
    version="v1",
    short_names=["db"],
    columns=[
        printer_column("Version", ".spec.version"),
        printer_column("Phase", ".status.phase"),
        printer_column("Endpoint", ".status.endpoint", priority=1),
    ],
    # The names of a StatefulSet and a CronJob leave room for the suffixes of their controllers.
    rules=[
        rule("self.metadata.name.matches('^[a-z][-a-z0-9]{0,44}$')", "the name must be a valid Service name")
    ],
):
    """A PostgreSQL database with its volume, service and backups."""


class DatabaseController(Controller[Database]):
    owns = (
        "apps/v1/StatefulSet",
        "v1/Service",
        Owns("batch/v1/CronJob", deletes=True),
    )
    # The claims have no owner, so that they stay. A label maps a claim to its database.
    watches = (
        Watch(
            CLAIM,
            map=lambda claim: [(claim.namespace, claim.labels[OWNER_LABEL])],
            labels=OWNER_LABEL,
        ),
    )
    rules = (rule_for(CLAIM, "create", "patch", "delete"),)
    max_concurrent_reconciles = 5

    async def reconcile(self, db: Database, ctx: Context[Database]) -> Requeue | None:
        await keep_claim(db, ctx, data_claim(db))
        await ctx.apply(service_for(db))
        stateful_set = await ctx.apply(stateful_set_for(db))
        await reconcile_backup(db, ctx)
        ready = stateful_set.get("status", {}).get("readyReplicas", 0) == 1
        ctx.status.phase = "Running" if ready else "Pending"
        ctx.status.endpoint = endpoint_of(db)
        ctx.condition(
            "Ready",
            ready,
            reason="AcceptsConnections" if ready else "Starting",
            message=f"{endpoint_of(db)} {'accepts connections' if ready else 'is starting'}",
        )
        return None

    async def finalize(self, db: Database, ctx: Context[Database]) -> Requeue | None:
        if db.spec.on_delete == "Keep":
            return None
        for claim in ctx.list(CLAIM, labels={OWNER_LABEL: db.name}):
            await ctx.delete(claim)
        return None


async def reconcile_backup(db: Database, ctx: Context[Database]) -> None:
    """Apply the CronJob if backups are enabled, and delete it otherwise. Existing dumps stay."""
    if db.spec.backup is None or not db.spec.backup.enabled:
        await ctx.delete("batch/v1/CronJob", backup_name(db))
        return
    await keep_claim(db, ctx, backup_claim(db, db.spec.backup))
    await ctx.apply(cron_job_for(db, db.spec.backup))


async def keep_claim(db: Database, ctx: Context[Database], claim: dict[str, Any]) -> None:
    """Create or grow a volume claim. A claim of another owner with the same name is not changed."""
    name, size = claim["metadata"]["name"], claim["spec"]["resources"]["requests"]["storage"]
    existing = ctx.get(CLAIM, name)
    if existing is None:
        await reject_foreign_claim(db, ctx, name)
    elif Quantity(existing["spec"]["resources"]["requests"]["storage"]) > Quantity(size):
        raise TerminalError(f"the volume of {name} cannot shrink to {size}")
    await ctx.apply(claim, owner=False)


async def reject_foreign_claim(db: Database, ctx: Context[Database], name: str) -> None:
    """Reject a claim of another owner.

    The cache holds only claims with our label, so request it from the server.
    """
    with contextlib.suppress(NotFound):
        other = await ctx.client.get(CLAIM, name, namespace=db.namespace)
        if other["metadata"].get("labels", {}).get(OWNER_LABEL) != db.name:
            raise TerminalError(
                f"PersistentVolumeClaim {name} belongs to another owner: delete it, or use another name"
            )


def data_claim(db: Database) -> dict[str, Any]:
    """Return the claim for the data volume."""
    return claim_for(db, f"{db.name}-data", db.spec.storage)


def backup_claim(db: Database, backup: Backup) -> dict[str, Any]:
    """Return the claim for the volume with the dumps."""
    return claim_for(db, backup_name(db), backup.storage)


def claim_for(db: Database, name: str, size: Quantity) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(size)}},
    }
    if db.spec.storage_class is not None:
        spec["storageClassName"] = db.spec.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {**labels_of(db), OWNER_LABEL: db.name}},
        "spec": spec,
    }


def service_for(db: Database) -> dict[str, Any]:
    """Return the Service that clients connect to."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": db.name, "labels": labels_of(db)},
        "spec": {"selector": labels_of(db), "ports": [{"name": "postgres", "port": PORT}]},
    }


def stateful_set_for(db: Database) -> dict[str, Any]:
    """Return the StatefulSet that runs the database."""
    container = {
        "name": "postgres",
        "image": image_of(db),
        "env": [
            {"name": "POSTGRES_PASSWORD", "valueFrom": {"secretKeyRef": password_of(db)}},
            {"name": "PGDATA", "value": "/var/lib/postgresql/data/pgdata"},
        ],
        "ports": [{"name": "postgres", "containerPort": PORT}],
        "readinessProbe": {"exec": {"command": ["pg_isready", "-U", "postgres"]}, "periodSeconds": 5},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"{db.name}-data"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": db.name, "labels": labels_of(db)},
        "spec": {
            "replicas": 1,
            "serviceName": db.name,
            "selector": {"matchLabels": labels_of(db)},
            "template": {"metadata": {"labels": labels_of(db)}, "spec": pod},
        },
    }


def cron_job_for(db: Database, backup: Backup) -> dict[str, Any]:
    """Return the CronJob that dumps the database and removes old dumps."""
    script = (
        'set -e; pg_dumpall -h "$HOST" -U postgres | gzip > "/backups/$(date -u +%Y%m%dT%H%M%SZ).sql.gz"; '
        f"ls -1 /backups/*.sql.gz | sort -r | tail -n +{backup.keep + 1} | xargs -r rm --"
    )
    container = {
        "name": "dump",
        "image": image_of(db),
        "command": ["sh", "-c", script],
        "env": [
            {"name": "HOST", "value": endpoint_of(db)},
            {"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": password_of(db)}},
        ],
        "volumeMounts": [{"name": "backups", "mountPath": "/backups"}],
    }
    pod = {
        "restartPolicy": "OnFailure",
        "containers": [container],
        "volumes": [{"name": "backups", "persistentVolumeClaim": {"claimName": backup_name(db)}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": backup_name(db), "labels": labels_of(db)},
        "spec": {
            "schedule": backup.schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        },
    }


def endpoint_of(db: Database) -> str:
    return f"{db.name}.{db.namespace}.svc.cluster.local"


def image_of(db: Database) -> str:
    return f"postgres:{db.spec.version}"


def backup_name(db: Database) -> str:
    return f"{db.name}-backup"


def password_of(db: Database) -> dict[str, str]:
    return {"name": db.spec.password_secret, "key": "password"}


def labels_of(db: Database) -> dict[str, str]:
    """Return the labels that select the pod of this database.

    Pods of dumps must not have them: they serve no clients.
    """
    return {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": db.name}


operator = Operator(controllers=[DatabaseController()], leader_election="database-operator")
