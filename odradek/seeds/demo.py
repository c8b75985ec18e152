"""The seed for `odradek seed --demo`: a shop's four topics, with records in every format that the page can show.

orders     JSON without a schema
customers  Avro, compacted by customer number
clicks     Protobuf, with a schema that refers to another one
audit      JSON Schema
"""

from __future__ import annotations

import json
from typing import Any, Final

CUSTOMERS: Final = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Tony", "Margaret")
PAGES: Final = ("/", "/search", "/basket", "/books/7", "/books/12", "/checkout")
ORDERS: Final = 60
CLICKS: Final = 120
CUSTOMER: Final = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "since", "type": {"type": "int", "logicalType": "date"}},
        {"name": "mail", "type": ["null", "string"], "default": None},
    ],
}
DEVICE: Final = """syntax = "proto3";
package shop;

message Device {
  string browser = 1;
  bool is_mobile = 2;
}
"""
CLICK: Final = """syntax = "proto3";
package shop;

import "shop/device.proto";

message Click {
  int64 customer = 1;
  string page = 2;
  .shop.Device device = 3;
}
"""
AUDIT: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"who": {"type": "string"}, "did": {"type": "string"}, "order": {"type": "integer"}},
    "required": ["who", "did"],
}


def demo_seed() -> str:
    """Returns the text of a seed file in JSON. The text is always the same, and its records have no timestamps."""
    return json.dumps({"schemas": _schemas(), "topics": _topics()}, indent=2)


def _schemas() -> list[dict[str, Any]]:
    device = {"name": "shop/device.proto", "subject": "clicks-device", "version": 1}
    return [
        {"subject": "customers-value", "schema": CUSTOMER},
        {"subject": "clicks-device", "type": "PROTOBUF", "schema": DEVICE},
        {"subject": "clicks-value", "type": "PROTOBUF", "schema": CLICK, "references": [device]},
        {"subject": "audit-value", "type": "JSON", "schema": AUDIT},
    ]


def _topics() -> list[dict[str, Any]]:
    customers = [
        {"key": str(number), "value": {"id": number, "name": name, "since": f"2026-0{number}-01"}}
        for number, name in enumerate(CUSTOMERS, 1)
    ]
    orders = [
        {
            "key": f"order-{number}",
            "value": {"order": number, "customer": number % len(CUSTOMERS) + 1, "total": number * 7 % 50 + 0.5},
            "headers": {"source": "web" if number % 3 else "phone"},
        }
        for number in range(1, ORDERS + 1)
    ]
    clicks = [
        {
            "value": {
                "customer": number % len(CUSTOMERS) + 1,
                "page": PAGES[number % len(PAGES)],
                "device": {"browser": "Firefox" if number % 4 else "Safari", "is_mobile": number % 4 == 0},
            }
        }
        for number in range(CLICKS)
    ]
    audit = [
        {"value": {"who": "clerk", "did": "sent" if number % 5 else "cancelled", "order": number}}
        for number in range(1, ORDERS + 1, 2)
    ]
    return [
        {"name": "orders", "partitions": 3, "records": orders},
        {
            "name": "customers",
            "partitions": 1,
            "settings": {"cleanup.policy": "compact"},
            "value_schema": "customers-value",
            "records": customers,
        },
        {"name": "clicks", "partitions": 2, "value_schema": "clicks-value", "records": clicks},
        {"name": "audit", "partitions": 1, "value_schema": "audit-value", "records": audit},
    ]
