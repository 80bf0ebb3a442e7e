"""Events of OpenLineage about a run: START, then COMPLETE, FAIL or ABORT, of the pipeline and each query.

The job of a query is called ``<pipeline>.<query>`` and names that of the pipeline as its parent. Its
inputs are the sources, its outputs the sinks, with their columns and the rows of this run. A thread sends
the events; a server that does not answer costs the run a warning and nothing else.

Needs the extra ``lineage``.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client import event_v2, facet_v2
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
from openlineage.client.uuid import generate_new_uuid

from pelton.pipeline.running.datasets import read_by, written_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from openlineage.client.transport.transport import Transport
    from pyspark.sql.types import DataType, StructType

    from pelton.pipeline.description.lineage import Lineage
    from pelton.pipeline.description.model import Pipeline, Source
    from pelton.pipeline.running.numbers import QueryNumbers
    from pelton.pipeline.running.queries import Query

CLOSE_SECONDS = 10.0
_PRODUCER = "https://pypi.org/project/pelton"
_RETRIES = {"total": 2, "read": 2, "connect": 2}
_State = event_v2.RunState


class LineageEmitter:
    """Sends the events of one run. Close it."""

    def __init__(
        self,
        pipeline: Pipeline,
        lineage: Lineage,
        queries: Iterable[Query],
        schemas: Mapping[str, StructType],
        *,
        spark: str,
        once: bool,
    ) -> None:
        """``schemas`` has the columns of sinks, ``spark`` its version. Sends START."""
        self.notices: SimpleQueue[str] = SimpleQueue()
        """What went wrong, a line each."""
        self._pipeline = pipeline
        self._lineage = lineage
        self._queries = {query.name: query for query in queries}
        self._schemas = schemas
        self._spark = spark
        self._processing = "BATCH" if once else "STREAMING"
        self._runs = {name: str(generate_new_uuid()) for name in ("", *self._queries)}
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pelton lineage", daemon=True)
        self._thread.start()
        for name in self._runs:
            self._waiting.put(self._event(_State.START, name, {}))

    def end(self, numbers: Iterable[QueryNumbers], failure: BaseException | None) -> None:
        """Send how the run ended, and wait a while until everything is sent."""
        found = {each.name: each for each in numbers}
        for name in (*self._queries, ""):
            query = found.get(name)
            error = "" if query is None or query.state != "failed" else query.error
            if name == "" and failure is not None and not isinstance(failure, KeyboardInterrupt):
                error = self._pipeline.hide(str(failure)) or type(failure).__name__
            state = _State.FAIL if error else _State.COMPLETE if failure is None else _State.ABORT
            facets = {} if not error else {"errorMessage": _error(error)}
            self._waiting.put(self._event(state, name, facets, query))
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self.notices.put("lineage: events could not be sent in time")

    def _event(
        self, state: Any, name: str, facets: dict[str, Any], numbers: QueryNumbers | None = None
    ) -> Any:
        """An event of a query, or of the pipeline ('')."""
        query = self._queries.get(name)
        kind = "PIPELINE" if query is None else "QUERY"
        engine = facet_v2.processing_engine_run.ProcessingEngineRunFacet(
            version=self._spark, name="spark", producer=_PRODUCER
        )
        run = {"processing_engine": engine, **facets}
        if query is not None:
            run["parent"] = self._parent()
        job = facet_v2.job_type_job.JobTypeJobFacet(
            self._processing, integration="PELTON", jobType=kind, producer=_PRODUCER
        )
        return event_v2.RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=_PRODUCER,
            run=event_v2.Run(self._runs[name], run),
            job=event_v2.Job(self._lineage.namespace, self._job(name), {"jobType": job}),
            inputs=[] if query is None else self._inputs(query, numbers),
            outputs=[] if query is None else self._outputs(query, numbers),
        )

    def _job(self, query: str) -> str:
        return f"{self._pipeline.name}.{query}" if query else self._pipeline.name

    def _parent(self) -> Any:
        parent = facet_v2.parent_run
        return parent.ParentRunFacet(
            parent.Run(self._runs[""]),
            parent.Job(self._lineage.namespace, self._job("")),
            producer=_PRODUCER,
        )

    def _inputs(self, query: Query, numbers: QueryNumbers | None) -> list[Any]:
        found = []
        for name in query.sources:
            source = self._pipeline.sources[name]
            facets = {} if not (fields := _columns_of(source)) else {"schema": _schema(fields)}
            datasets = read_by(source)
            counted: dict[str, Any] = {}
            if numbers is not None and len(datasets) == len(query.sources) == 1:
                statistics = facet_v2.input_statistics_input_dataset
                counted["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(
                    rowCount=numbers.rows, producer=_PRODUCER
                )
            found += [
                event_v2.InputDataset(each.namespace, each.name, facets=facets, inputFacets=counted)
                for each in datasets
            ]
        return found

    def _outputs(self, query: Query, numbers: QueryNumbers | None) -> list[Any]:
        found = []
        for name in query.sinks:
            schema = self._schemas.get(name)
            facets = {} if schema is None else {"schema": _schema(_fields(schema))}
            counted: dict[str, Any] = {}
            if numbers is not None:
                statistics = facet_v2.output_statistics_output_dataset
                counted["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
                    rowCount=numbers.sinks.get(name, 0), producer=_PRODUCER
                )
            to = written_by(self._pipeline.sinks[name])
            found.append(
                event_v2.OutputDataset(to.namespace, to.name, facets=facets, outputFacets=counted)
            )
        return found

    def _run(self) -> None:
        transports = _transports(self._lineage)
        told = False
        while (event := self._waiting.get()) is not None:
            for transport in transports:
                try:
                    transport.emit(event)
                except Exception as error:  # from requests, from a file system, from the server
                    if not told:
                        said = self._pipeline.hide(" ".join(str(error).split()))
                        self.notices.put(f"lineage: an event was not sent: {said}")
                    told = True


def _transports(lineage: Lineage) -> list[Transport]:
    found: list[Transport] = []
    if lineage.file is not None:
        found.append(FileTransport(FileConfig(lineage.file, append=True)))
    if lineage.url is not None:
        parts = urlsplit(lineage.url)
        where = f"{parts.scheme}://{parts.netloc}"
        more: dict[str, Any] = {}
        if path := parts.path.strip("/"):
            more["endpoint"] = path
        if lineage.api_key is not None:
            more["auth"] = ApiKeyTokenProvider({"api_key": lineage.api_key})
        config = HttpConfig(where, retry={**HttpConfig(where).retry, **_RETRIES}, **more)
        found.append(HttpTransport(config))
    return found


def _error(text: str) -> Any:
    return facet_v2.error_message_run.ErrorMessageRunFacet(
        text, programmingLanguage="Python", producer=_PRODUCER
    )


def _schema(fields: list[Any]) -> Any:
    return facet_v2.schema_dataset.SchemaDatasetFacet(fields, producer=_PRODUCER)


def _fields(schema: StructType) -> list[Any]:
    field = facet_v2.schema_dataset.SchemaDatasetFacetFields
    return [
        field(each.name, each.dataType.simpleString(), fields=_inner(each.dataType))
        for each in schema.fields
    ]


def _inner(kind: DataType) -> list[Any]:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return _inner(kind.elementType)
    return _fields(kind) if isinstance(kind, StructType) else []


def _columns_of(source: Source) -> list[Any]:
    """The columns of a source of streams; other sources' are only known to Spark."""
    if source.format != "jetstream":
        return []
    from pelton.spark.reading.options import parse_options
    from pelton.spark.reading.plan import COLUMNS

    given = {key: value for key, value in source.options.items() if key.lower() != "consumer"}
    options = parse_options(given, streaming=not source.static)
    field = facet_v2.schema_dataset.SchemaDatasetFacetFields
    return [field(name, COLUMNS[name]) for name in options.column_names()]
