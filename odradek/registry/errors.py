"""The errors of the registry's HTTP interface, with the codes and texts documented by Confluent."""

from __future__ import annotations

from typing import Final

from odradek.registry.levels import LEVELS

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


class RegistryError(Exception):
    """Raised if the registry rejects a request. `code` begins with the HTTP status: 40401 is sent with status 404."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def level_not_configured(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RegistryError:
    return RegistryError(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details:'
        f" [{', '.join(details)}]",
    )


def invalid_schema(details: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {details}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
        ' string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203, f"Invalid compatibility level. Valid values are {', '.join(level.lower() for level in LEVELS)}"
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def still_referenced(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema: subject '{subject}' version {version}")


def not_served(what: str) -> RegistryError:
    return RegistryError(501, f"{what} is not supported by this registry; see docs/schema-registry.md")
