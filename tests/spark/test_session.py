"""Settings of a session that depend on where its workers are."""

import pytest

from pelton.spark.session import defaults


@pytest.mark.parametrize(
    ("master", "loopback"),
    [
        ("local", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://spark-master:7077", False),
        ("spark://localhost.example.com:7077", False),
        ("spark://10.0.0.5:7077,10.0.0.6:7077", False),
        ("k8s://https://10.0.0.5:6443", False),
        ("yarn", False),
    ],
)
def test_a_driver_is_on_the_loopback_address_only_where_its_workers_are_there(master, loopback):
    found = defaults(master)
    assert ("spark.driver.host" in found) is loopback
    assert ("spark.driver.bindAddress" in found) is loopback
    assert found["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.slow
def test_arrow_functions_get_rows(spark):
    name = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
    assert defaults("local")[name] == defaults("yarn")[name] == "false"
    assert spark.conf.get(name) == "false"
