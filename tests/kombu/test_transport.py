"""kombu's own classes over both servers: queues, exchanges, acks, limits, times."""

from __future__ import annotations

import datetime
import socket
import threading

import kombu
import pytest
from kombu import Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError

import pelton.sync
from pelton.errors import ConnectError
from pelton.kombu.broker import QueueMismatchError

pytestmark = pytest.mark.peer

PATIENCE_S = 60


class Shelf:
    """A consumer that keeps its messages."""

    def __init__(self, connection, *queues, prefetch=0, no_ack=False):
        self.connection = connection
        self.messages = []
        self.channel = connection.channel()
        self.consumer = Consumer(
            self.channel,
            list(queues),
            on_message=self.messages.append,
            no_ack=no_ack,
            accept=["json", "text/plain"],
        )
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def until(self, count):
        while len(self.messages) < count:
            self.connection.drain_events(timeout=PATIENCE_S)
        return [each.payload for each in self.messages]

    def nothing_comes(self, seconds=0.3):
        with pytest.raises(socket.timeout):
            self.connection.drain_events(timeout=seconds)


def put(connection, queue, *bodies, **options):
    with connection.channel() as channel:
        for body in bodies:
            Producer(channel).publish(
                body, exchange="", routing_key=queue.name, declare=[queue], **options
            )


QUEUE = Queue("orders.new", Exchange("shop", type="direct"), routing_key="new")


def test_a_message_is_stored_delivered_and_acknowledged(connect):
    put(connect(), QUEUE, {"bolts": 42})
    shelf = Shelf(connect(), QUEUE)
    assert shelf.until(1) == [{"bolts": 42}]
    (message,) = shelf.messages
    assert message.delivery_info["redelivered"] is False
    message.ack()
    other = connect()
    assert other.default_channel.queue_declare("orders.new", passive=True).message_count == 0
    Shelf(other, QUEUE).nothing_comes()


def test_bodies_of_any_bytes(connect):
    body = bytes(range(256)) * 40
    put(connect(), QUEUE, body, content_type="application/data", content_encoding="binary")
    shelf = Shelf(connect(), QUEUE)
    shelf.consumer.accept = {"application/data"}
    while not shelf.messages:
        shelf.connection.drain_events(timeout=PATIENCE_S)
    assert bytes(shelf.messages[0].body) == body


def test_a_rejected_message_comes_again_or_not(connect):
    put(connect(), QUEUE, 1, 2)
    shelf = Shelf(connect(), QUEUE)
    shelf.until(2)
    shelf.messages[0].requeue()
    shelf.messages[1].reject()
    assert shelf.until(3) == [1, 2, 1]
    assert shelf.messages[2].delivery_info["redelivered"] is True
    shelf.messages[2].ack()
    shelf.nothing_comes()


def test_a_closed_channel_gives_back_what_it_has(connect):
    put(connect(), QUEUE, 1)
    first = connect()
    Shelf(first, QUEUE).until(1)
    first.release()
    assert Shelf(connect(), QUEUE).until(1) == [1]


def test_no_more_than_the_prefetch_count(connect):
    put(connect(), QUEUE, *range(5))
    shelf = Shelf(connect(), QUEUE, prefetch=2)
    shelf.until(2)
    shelf.nothing_comes()
    shelf.messages[0].ack()
    shelf.until(3)
    shelf.nothing_comes()
    second = Shelf(connect(), QUEUE)
    assert sorted(second.until(2)) == [3, 4]


def test_an_ack_of_another_thread_makes_room(connect):
    put(connect(), QUEUE, 1, 2)
    shelf = Shelf(connect(), QUEUE, prefetch=1)
    shelf.until(1)
    waiting = threading.Thread(target=shelf.messages[0].ack)
    waiting.start()
    assert shelf.until(2) == [1, 2]
    waiting.join()


def test_two_workers_share_a_queue(connect):
    put(connect(), QUEUE, *range(20))
    shelves = [Shelf(connect(), QUEUE, prefetch=1) for _ in range(2)]
    seen = []
    while len(seen) < 20:
        for shelf in shelves:
            shelf.until(len(shelf.messages)) if shelf.messages else None
            try:
                shelf.connection.drain_events(timeout=0.05)
            except TimeoutError:
                continue
            shelf.messages[-1].ack()
            seen.append(shelf.messages[-1].payload)
    assert sorted(seen) == list(range(20))
    assert all(shelf.messages for shelf in shelves)


def test_direct_and_topic_exchanges_of_other_processes(connect):
    logs = Exchange("logs", type="topic")
    errors = Queue("errors", logs, routing_key="*.error")
    everything = Queue("everything", logs, routing_key="#")
    shelf = Shelf(connect(), errors, everything)
    with connect() as sender:
        producer = Producer(sender.channel(), exchange=logs)
        producer.publish("a", routing_key="shop.error")
        producer.publish("b", routing_key="shop.info")
    assert sorted(shelf.until(3)) == ["a", "a", "b"]


def test_an_unbound_queue_gets_no_more(connect):
    logs = Exchange("logs", type="topic")
    shelf = Shelf(connect(), Queue("errors", logs, routing_key="error"))
    Queue("errors", logs, routing_key="error")(connect().channel()).unbind_from(logs, "error")
    with connect() as sender:
        Producer(sender.channel(), exchange=logs).publish("a", routing_key="error")
    shelf.nothing_comes()


def test_bindings_that_many_make_at_once_are_all_there(connect):
    logs = Exchange("logs", type="topic")

    def bind(number):
        with connect() as connection:
            Queue(f"q{number}", logs, routing_key=f"k{number}")(connection.channel()).declare()

    threads = [threading.Thread(target=bind, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    channel = connect().channel()
    logs(channel).declare()
    assert sorted(queue for _, _, queue in channel.get_table("logs")) == [f"q{n}" for n in range(6)]


def test_broadcasts_go_to_everybody_who_listens(connect):
    news = Exchange("news", type="fanout")
    shelves = [
        Shelf(connect(), Queue(f"listener-{number}", news, auto_delete=True)) for number in range(2)
    ]
    with connect() as sender:
        Producer(sender.channel(), exchange=news).publish("hello")
    for shelf in shelves:
        assert shelf.until(1) == ["hello"]
        shelf.messages[0].ack()


def test_a_delayed_message_waits_in_the_stream(connect, server):
    connection = connect()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2.5)
    put(connection, QUEUE, "later", headers={"eta": soon.isoformat()})
    put(connection, QUEUE, "now")
    shelf = Shelf(connect(), QUEUE)
    assert shelf.until(2) == ["now", "later"]
    assert datetime.datetime.now(datetime.UTC) >= soon
    for each in shelf.messages:
        each.ack()
    with pelton.sync.connect(server.url) as nc:
        broker = connection.transport.broker
        assert nc.jetstream().stream_info(broker.names.tasks).state.messages == 0


def test_without_schedules_the_worker_holds_the_message(connect):
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    put(connect(schedules=False), QUEUE, "later", headers={"eta": later.isoformat()})
    assert Shelf(connect(), QUEUE).until(1) == ["later"]


def test_an_expired_message_is_gone(connect):
    put(connect(), QUEUE, "gone", expiration=1)
    put(connect(), QUEUE, "stays")
    connection = connect()
    while connection.default_channel.queue_declare("orders.new", passive=True).message_count > 1:
        pass
    assert Shelf(connection, QUEUE).until(1) == ["stays"]


def test_the_highest_priority_is_first(connect):
    options = {"priorities": True}
    put(connect(**options), QUEUE, 5, priority=5)
    shelf = Shelf(connect(**options), QUEUE, prefetch=1)
    shelf.until(1)
    for priority in (0, 9, 4):
        put(connect(**options), QUEUE, priority, priority=priority)
    # the first that arrives is not waited with for others
    receiver = shelf.channel.connection.receiver
    receiver._client.wait_until(lambda: len(receiver.waiting()) == 3, PATIENCE_S)
    for count in (2, 3, 4):
        shelf.messages[-1].ack()
        shelf.until(count)
    assert [each.payload for each in shelf.messages] == [5, 9, 4, 0]
    with pytest.raises(QueueMismatchError, match="was declared with priorities=True"):
        put(connect(), QUEUE, 1)


def test_purge_and_delete(connect):
    channel = connect().channel()
    put(connect(), QUEUE, 1, 2, 3)
    assert channel.queue_purge("orders.new") == 3
    put(connect(), QUEUE, 4)
    QUEUE(channel).delete()
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        connect().channel().queue_declare("orders.new", passive=True)
    put(connect(), QUEUE, 5)
    assert Shelf(connect(), QUEUE).until(1) == [5]


def test_basic_get(connect):
    put(connect(), QUEUE, 1)
    bound = QUEUE(connect().channel())
    message = bound.get()
    assert message.decode() == 1
    message.ack()
    assert bound.get() is None


def test_a_message_for_a_queue_that_nobody_declared_is_told(connect, caplog):
    with connect() as connection:
        Producer(connection.channel()).publish("lost", exchange="", routing_key="nobody")
    assert "dropped a message for the queue 'nobody', which is not declared" in caplog.text


def test_simple_queues(connect):
    with connect().SimpleQueue("simple") as queue:
        queue.put({"a": 1})
        message = queue.get(timeout=PATIENCE_S)
        assert message.payload == {"a": 1}
        message.ack()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.3)


def test_virtual_hosts_are_apart(connect, server):
    put(connect(), QUEUE, "mine")
    other = kombu.Connection(f"pelton://127.0.0.1:{server.port}/other-{id(connect)}")
    with other:
        Shelf(other, QUEUE).nothing_comes()


def test_no_server():
    with pytest.raises(kombu.exceptions.OperationalError):
        kombu.Connection("pelton://127.0.0.1:1").ensure_connection(max_retries=1, interval_start=0)
    with pytest.raises(ConnectError):
        kombu.Connection("pelton://127.0.0.1:1").connect()


def test_tls_settings_that_are_not_known():
    connection = kombu.Connection("pelton://127.0.0.1:1", ssl={"ca_cert": "x"})
    with pytest.raises(ValueError, match="broker_use_ssl: unknown ca_cert; known: ca_certs"):
        connection.connect()
