"""A gateway's table or log of requests into demand steps, by a query.

What is decided here:

- The query is asked for one chunk of time after another. Its $start and $end become literals that are made from times,
  not from text, so that the database can plan with them and stream the rows; it runs as a subquery, in a read-only
  transaction or an in-memory DuckDB, and so can only read.
- Rows are checked, rejected and summed as those of a trace are (`pipelines.sources.traces`): each chunk is written to a
  temporary Parquet file and imported as a generic trace.
- A table has no row for an idle step. What lies between the first and the last row of the whole source was observed:
  steps without a row are zeros for every class that the source names. What lies after the last row was not: the
  gateway may be idle or broken, and its step may still grow. It is left out until a later row shows that recording went
  on; then it becomes zeros, which `forecasting.quality` masks where all classes fell silent at once.
- A time without a zone is UTC, in the column as in the comparison with $start and $end.
"""

from pipelines.sources.sql.examine import ExaminedSql, examine_sql
from pipelines.sources.sql.importer import import_sql

__all__ = ["ExaminedSql", "examine_sql", "import_sql"]
