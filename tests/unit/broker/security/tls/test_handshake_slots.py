"""Tests which handshake is abandoned if too many are in progress."""

from odradek.broker.security.tls.handshake import HandshakeSlots


def test_no_handshake_is_ended_while_there_is_room() -> None:
    slots: HandshakeSlots[int] = HandshakeSlots(3)
    assert [slots.occupy(key, "a") for key in range(3)] == [None, None, None]
    assert len(slots) == 3


def test_a_newcomer_takes_the_place_of_the_oldest_of_the_address_that_has_most() -> None:
    slots: HandshakeSlots[str] = HandshakeSlots(4)
    for key, address in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")):
        slots.occupy(key, address)
    assert slots.occupy("c1", "c") == "b1"
    assert slots.occupy("c2", "c") == "b2"
    assert len(slots) == 4


def test_a_thousand_of_one_address_cannot_keep_another_out() -> None:
    slots: HandshakeSlots[str] = HandshakeSlots(1000)
    for number in range(1000):
        slots.occupy(f"half-open {number}", "bad")
    assert slots.occupy("honest", "good") == "half-open 0"
    for number in range(5000):
        assert slots.occupy(f"more {number}", "bad") != "honest"


def test_only_a_handshake_that_holds_a_slot_frees_it_when_it_ends() -> None:
    slots: HandshakeSlots[str] = HandshakeSlots(1)
    slots.occupy("first", "a")
    assert slots.occupy("second", "a") == "first"
    slots.end("first", "a")
    assert len(slots) == 1
    slots.end("second", "a")
    assert slots.occupy("third", "b") is None
