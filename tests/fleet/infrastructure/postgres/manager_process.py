"""A process with an embedded server, to be killed: prints the server's process id, then waits for its end.

Arguments: the data directory, and optionally the user to become first.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401
import encodings.idna  # noqa: F401 - before the change of the user, who may not read this Python's files
import os
import pwd
import sys
from pathlib import Path

import psycopg.types.json  # noqa: F401
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer


async def main(directory: Path) -> None:
    server = EmbeddedServer(directory, settings={"fsync": "off"})
    await server.start()
    database = Database(server.url())
    async with database.transaction() as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS kept (n int)"))
        await connection.execute(text("INSERT INTO kept VALUES (1)"))
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO kept VALUES (2)"))
        print(server.pid, flush=True)  # noqa: T201
        # The transaction stays open until the process is killed, or its input ends.
        await asyncio.to_thread(sys.stdin.read)
        await connection.rollback()
    await database.close()
    await server.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        user = pwd.getpwnam(sys.argv[2])
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    asyncio.run(main(Path(sys.argv[1])))
