"""A database: a StatefulSet on a volume of its own, a Service, and a CronJob that backs it up.

The volume outlives the resource unless `onDelete: Delete` is asked for: losing data takes a decision.
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
    """When and where dumps are made."""

    enabled: bool = True
    """Whether dumps are made at all."""
    schedule: Annotated[str, Field(min_length=1)] = "0 2 * * *"
    """When, as cron writes it."""
    keep: Annotated[int, Field(ge=1)] = 7
    """How many dumps are kept."""
    storage: Quantity = Quantity("1Gi")
    """The size of the volume that holds them."""


class DatabaseSpec(Spec):
    """What database to run."""

    version: Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")] = "17"
    """The version of PostgreSQL."""
    storage: Quantity = Quantity("1Gi")
    """The size of the data volume. It can grow, and cannot shrink."""
    storage_class: Annotated[str, Field(immutable=True)] | None = None
    """The storage class of the volumes; the cluster's default if absent."""
    password_secret: Annotated[str, Field(min_length=1)]
    """A Secret in the same namespace whose key `password` is the administrator's password."""
    backup: Backup | None = None
    """Dumps at regular times; none if absent."""
    on_delete: Literal["Keep", "Delete"] = "Keep"
    """What becomes of the volumes when this resource is deleted."""


class DatabaseStatus(Status):
    """How it runs."""

    phase: Literal["Pending", "Running"] = "Pending"
    """Running once the database takes connections."""
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
    # A StatefulSet's and a CronJob's names leave room for what their controllers append.
    rules=[rule("self.metadata.name.matches('^[a-z][-a-z0-9]{0,44}$')", "the name must do for a Service")],
):
    """A PostgreSQL database with its volume, service and backups."""


class DatabaseController(Controller[Database]):
    owns = (
        "apps/v1/StatefulSet",
        "v1/Service",
        Owns("batch/v1/CronJob", deletes=True),
    )
    # The claims have no owner, so that they stay; a label leads from one to its database.
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
            reason="TakesConnections" if ready else "Starting",
            message=f"{endpoint_of(db)} {'takes connections' if ready else 'is starting'}",
        )
        return None

    async def finalize(self, db: Database, ctx: Context[Database]) -> Requeue | None:
        if db.spec.on_delete == "Keep":
            return None
        for claim in ctx.list(CLAIM, labels={OWNER_LABEL: db.name}):
            await ctx.delete(claim)
        return None


async def reconcile_backup(db: Database, ctx: Context[Database]) -> None:
    """Have the CronJob if backups are asked for. Dumps that were made stay, whatever is asked for later."""
    if db.spec.backup is None or not db.spec.backup.enabled:
        await ctx.delete("batch/v1/CronJob", backup_name(db))
        return
    await keep_claim(db, ctx, backup_claim(db, db.spec.backup))
    await ctx.apply(cron_job_for(db, db.spec.backup))


async def keep_claim(db: Database, ctx: Context[Database], claim: dict[str, Any]) -> None:
    """Make or grow a volume claim. One of the same name that is not this database's is left alone."""
    name, wanted = claim["metadata"]["name"], claim["spec"]["resources"]["requests"]["storage"]
    found = ctx.get(CLAIM, name)
    if found is None:
        await refuse_foreign_claim(db, ctx, name)
    elif Quantity(found["spec"]["resources"]["requests"]["storage"]) > Quantity(wanted):
        raise TerminalError(f"the volume of {name} cannot shrink to {wanted}")
    await ctx.apply(claim, owner=False)


async def refuse_foreign_claim(db: Database, ctx: Context[Database], name: str) -> None:
    """The cache holds only claims with our label, so the server is asked before one is made."""
    with contextlib.suppress(NotFound):
        other = await ctx.client.get(CLAIM, name, namespace=db.namespace)
        if other["metadata"].get("labels", {}).get(OWNER_LABEL) != db.name:
            raise TerminalError(f"PersistentVolumeClaim {name} is not ours: delete it, or use another name")


def data_claim(db: Database) -> dict[str, Any]:
    """The volume that holds the data."""
    return claim_for(db, f"{db.name}-data", db.spec.storage)


def backup_claim(db: Database, backup: Backup) -> dict[str, Any]:
    """The volume that holds the dumps."""
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
    """The name that clients connect to."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": db.name, "labels": labels_of(db)},
        "spec": {"selector": labels_of(db), "ports": [{"name": "postgres", "port": PORT}]},
    }


def stateful_set_for(db: Database) -> dict[str, Any]:
    """The database itself."""
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
    """Dumps the database, then removes dumps beyond those to keep."""
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
    """What selects this database's pod and no other. The dumps' pods must not have them: they serve nobody."""
    return {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": db.name}


operator = Operator(controllers=[DatabaseController()], leader_election="database-operator")
