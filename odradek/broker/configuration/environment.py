"""Reads broker settings from `KAFKA_*` environment variables."""

from collections.abc import Mapping

# Environment variables that do not set broker settings, from the apache/kafka image and from older images.
NOT_SETTINGS = frozenset(
    {
        "KAFKA_CREATE_TOPICS",  # odradek/seeds/short_forms.py reads this variable and KAFKA_CREATE_TOPICS_SEPARATOR
        "KAFKA_CREATE_TOPICS_SEPARATOR",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
CLUSTER_ID_VARIABLE = "CLUSTER_ID"  # the apache/kafka image formats a new data directory with this cluster id


def settings_of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings given by environment variables. For example, `KAFKA_LOG_SEGMENT_BYTES=1` becomes
    `log.segment.bytes=1`. In a variable's name, `___` means `-` and `__` means `_`.

    Source: the docker wrapper in version 4.3.1 of the apache/kafka image.
    """
    settings = {}
    for variable, value in environ.items():
        if variable.startswith("KAFKA_") and variable not in NOT_SETTINGS:
            name = variable.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_")
            settings[name] = value
    if CLUSTER_ID_VARIABLE in environ:
        settings["odradek.cluster.id"] = environ[CLUSTER_ID_VARIABLE]
    return settings
