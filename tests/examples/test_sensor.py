"""The daemon: a sensor follows its topic as long as it exists."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from examples.sensor.sensor import Sensor, SensorController, subscribe
from kapsa.runtime import Operator
from tests.examples.namespaced_harness import NamespacedHarness


class FakeBroker:
    """A broker with streams that tests send to and break off."""

    def __init__(self) -> None:
        self.streams: dict[str, asyncio.Queue[str | Exception]] = {}

    async def subscribe(self, topic: str) -> AsyncIterator[str]:
        stream = self.streams[topic] = asyncio.Queue()
        try:
            while not isinstance(message := await stream.get(), Exception):
                yield message
            raise message
        finally:
            del self.streams[topic]

    def send(self, topic: str, message: str | Exception) -> None:
        self.streams[topic].put_nowait(message)

    def operator(self) -> Operator:
        """Return the operator of the example, connected to this broker."""
        return Operator(controllers=[SensorController(self.subscribe)], leader_election="sensor-operator")


async def follows(harness: NamespacedHarness, broker: FakeBroker, *topics: str) -> None:
    async def are_followed() -> bool:
        return sorted(broker.streams) == sorted(topics)

    await harness.until(are_followed, f"the operator follows {topics}")


async def reads(harness: NamespacedHarness, reading: str) -> None:
    async def is_shown() -> bool:
        return bool((await harness.get(Sensor, "cellar")).status.reading == reading)

    await harness.until(is_shown, f"the reading is {reading}")


async def test_a_sensor_shows_the_last_message_of_its_topic_until_it_is_deleted(
    harness: NamespacedHarness,
) -> None:
    broker = FakeBroker()
    operator = broker.operator()
    await harness.run(operator)
    await harness.apply(Sensor, "cellar", topic="cellar/temperature")
    await follows(harness, broker, "cellar/temperature")
    for reading in ("11", "12"):
        broker.send("cellar/temperature", reading)
        await reads(harness, reading)
    await harness.apply(Sensor, "cellar", topic="cellar/humidity")
    await follows(harness, broker, "cellar/humidity")
    await harness.client.delete(Sensor, "cellar", namespace=harness.namespace)
    await harness.gone(Sensor, "cellar")
    await follows(harness, broker)
    surplus = harness.inner.verify_rights(operator)
    assert [each for each in surplus if "events" not in each and "leases" not in each] == []


@pytest.mark.parametrize(
    "failure",
    [ConnectionResetError("the stream broke"), ValueError("chunk exceed the limit")],
    ids=["it broke", "a line is too long"],
)
async def test_a_stream_that_failed_is_opened_again(harness: NamespacedHarness, failure: Exception) -> None:
    broker = FakeBroker()
    await harness.run(broker.operator())
    await harness.apply(Sensor, "cellar", topic="cellar/temperature")
    await follows(harness, broker, "cellar/temperature")
    broker.send("cellar/temperature", failure)
    await follows(harness, broker)
    await follows(harness, broker, "cellar/temperature")
    broker.send("cellar/temperature", "13")
    await reads(harness, "13")


async def test_a_replica_that_stops_follows_nothing(harness: NamespacedHarness) -> None:
    broker = FakeBroker()
    await harness.run(broker.operator())
    await harness.apply(Sensor, "cellar", topic="cellar/temperature")
    await follows(harness, broker, "cellar/temperature")
    await harness.inner.stop()
    assert broker.streams == {}


def test_the_broker_is_asked_for_a_topic_and_answers_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        topic = (await reader.readline()).decode().rstrip()
        writer.write(f"{topic} 11\n{topic} 12\n".encode())
        writer.close()

    async def messages() -> list[str]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            monkeypatch.setenv("BROKER", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            return [message async for message in subscribe("cellar")]

    assert asyncio.run(messages()) == ["cellar 11", "cellar 12"]
