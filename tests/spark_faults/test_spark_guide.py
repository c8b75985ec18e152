"""Tests that the commands and programs in docs/using-spark.md work when a reader pastes them
(tests/support/guides.py)."""

from pathlib import Path

import pytest

from tests.support.guides import blocks, can_have_a_network, check_output, play
from tests.support.spark_session import AVRO_JARS

PAGE = blocks("docs/using-spark.md")
TIMEOUT_S = 900
# By default, a shuffle has 200 tasks. Each task starts Python workers, which is slow.
DEFAULTS = "spark.sql.shuffle.partitions 2\nspark.ui.enabled false\n"


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.skipif(not can_have_a_network(), reason="no network of its own for a guide: unshare --net is not allowed")
def test_a_reader_can_paste_the_page_from_top_to_bottom(tmp_path: Path) -> None:
    conf, folder = tmp_path / "conf", tmp_path / "reader"
    conf.mkdir()
    folder.mkdir()
    (conf / "spark-defaults.conf").write_text(f"{DEFAULTS}spark.jars {','.join(map(str, AVRO_JARS))}\n")
    check_output(PAGE, play(PAGE, folder, timeout_s=TIMEOUT_S, SPARK_CONF_DIR=str(conf)))
