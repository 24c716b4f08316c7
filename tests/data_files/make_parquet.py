# mypy: ignore-errors
"""How the parquet files beside this were made, each by another writer or with other settings.

    python -m venv writers
    writers/bin/pip install duckdb polars pandas fastparquet pyspark    # and Java, for Spark
    writers/bin/python make_parquet.py

All have the texts of `texts.json` in a column `text`, unless their name says what is wrong with them. The
tests read the files that are kept here; this is run by hand to make them anew.
"""

from __future__ import annotations

import base64
import json
import shutil
import warnings
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

HERE = Path(__file__).parent
TEXTS = json.loads((HERE / "texts.json").read_text())
SOURCES = [None if number % 7 == 3 else f"file {number % 5}" for number in range(len(TEXTS))]
WHEN = datetime(2025, 11, 30, 12, tzinfo=UTC)


def duckdb_files() -> None:
    """DuckDB: its compressions, both versions of the format, its own types, nested columns, encryption."""
    rows = pa.table({"id": range(len(TEXTS)), "text": TEXTS, "source": SOURCES})
    connection = duckdb.connect()
    connection.register("rows", rows)

    def copy(query: str, name: str, options: str = "") -> None:
        connection.execute(f"COPY ({query}) TO '{HERE / name}.parquet' (FORMAT parquet{options})")

    plain = "SELECT text, source FROM rows ORDER BY id"
    copy(plain, "duckdb-snappy")
    for name in ("uncompressed", "gzip", "zstd", "brotli", "lz4_raw"):
        copy(plain, f"duckdb-{name}", f", COMPRESSION {name}")
    copy(plain, "duckdb-v2", ", PARQUET_VERSION v2")
    copy(
        """SELECT [id, id + 1] AS list, {'a': id, 'b': {'text': 'not this'}} AS struct,
        MAP {'text': id} AS map, text, id::HUGEINT AS huge, id::DECIMAL(30, 3) AS decimal,
        INTERVAL 3 DAY AS interval, uuid() AS uuid,
        TIMESTAMPTZ '2025-11-30' AS moment, '10:00'::TIME AS time, '101'::BIT AS bits, [[text]] AS deep,
        source, NULL AS nothing, TRUE AS yes, 'x'::ENUM ('x', 'y') AS enum FROM rows ORDER BY id""",
        "duckdb-types",
    )
    connection.execute("CREATE TYPE texts AS ENUM (SELECT DISTINCT text FROM rows WHERE text IS NOT NULL)")
    copy("SELECT text::texts AS text FROM rows ORDER BY id", "duckdb-enum")
    connection.execute("SET force_mbedtls_unsafe = 'true'")  # the key below is no secret anyway
    connection.execute("PRAGMA add_parquet_key('key', '0123456789112345')")
    copy(plain, "wrong-encrypted-by-duckdb", ", ENCRYPTION_CONFIG {footer_key: 'key'}")


def polars_files() -> None:
    """Polars: string views, categories, nested columns, many row groups, one without rows."""
    frame = pl.DataFrame({"text": TEXTS, "source": SOURCES})
    frame.write_parquet(HERE / "polars-zstd.parquet")
    for name in ("uncompressed", "snappy", "gzip", "brotli", "lz4"):
        frame.write_parquet(HERE / f"polars-{name}.parquet", compression=name)
    frame.write_parquet(HERE / "polars-row-groups.parquet", row_group_size=3, statistics=False)
    frame.with_columns(pl.col("text").cast(pl.Categorical)).write_parquet(HERE / "polars-categorical.parquet")
    frame.with_columns(
        pl.struct("text").alias("struct"), pl.concat_list("source").alias("list"), pl.lit(1.5).alias("number")
    ).select("struct", "list", "text", "number").write_parquet(HERE / "polars-nested.parquet")
    frame.clear().write_parquet(HERE / "wrong-no-rows-by-polars.parquet")


def pandas_files() -> None:
    """Pandas, with both of its engines."""
    frame = pd.DataFrame({"text": TEXTS, "source": SOURCES, "when": pd.Timestamp(WHEN), "x": 0.5})
    frame.index = pd.Index([f"row {number}" for number in range(len(frame))])
    frame.to_parquet(HERE / "pandas-index.parquet")
    frame.astype({"text": "category"}).to_parquet(HERE / "pandas-category.parquet")
    frame.astype({"text": object}).to_parquet(HERE / "pandas-object.parquet", compression="gzip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas will not offer fastparquet for ever
        plain = frame[["text", "source"]].astype(object).reset_index(drop=True)
        for name, options in {
            "snappy": {"compression": "SNAPPY"},
            "gzip": {"compression": "GZIP", "row_group_offsets": 7},
            "int96": {"times": "int96"},
        }.items():
            wider = plain.assign(when=pd.Timestamp(WHEN.replace(tzinfo=None))) if name == "int96" else plain
            wider.to_parquet(HERE / f"fastparquet-{name}.parquet", engine="fastparquet", **options)
        as_bytes = pd.DataFrame(
            {"text": [None if text is None else text.encode() for text in TEXTS]}, dtype=object
        )
        as_bytes.to_parquet(
            HERE / "wrong-bytes-by-fastparquet.parquet", engine="fastparquet", object_encoding="bytes"
        )
        folder = HERE / "fastparquet-folder"
        plain.to_parquet(
            folder, engine="fastparquet", file_scheme="hive", row_group_offsets=[0, 10, 20], index=False
        )


def spark_files() -> None:
    """Spark: its folders, its own way of LZ4, INT96, both page versions, names with dots."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.parquet.outputTimestampType", "INT96")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    frame = spark.createDataFrame(list(zip(TEXTS, SOURCES, strict=True)), "text string, source string")
    frame = frame.coalesce(1)

    def single(wanted: DataFrame, name: str, **options: object) -> None:
        folder = HERE / "spark-temporary"
        wanted.write.mode("overwrite").options(**options).parquet(str(folder))
        (part,) = folder.glob("part-*.parquet")
        part.replace(HERE / f"{name}.parquet")
        shutil.rmtree(folder)

    for name in ("snappy", "gzip", "lz4", "lz4_raw", "zstd", "none"):
        single(frame, f"spark-{name}", compression=name)
    single(
        frame, "spark-v2", **{"parquet.writer.version": "PARQUET_2_0", "parquet.enable.dictionary": "false"}
    )
    single(frame, "spark-v2-dictionary", **{"parquet.writer.version": "PARQUET_2_0"})
    single(
        frame.select(
            sf.lit(WHEN.replace(tzinfo=None)).alias("when"),
            sf.create_map(sf.lit("text"), "text").alias("map"),
            "text",
            sf.col("text").alias("text.raw"),
            sf.struct(sf.array("source").alias("list")).alias("struct"),
        ),
        "spark-types",
    )
    single(frame, "spark-row-groups", **{"parquet.block.size": 100, "parquet.page.size.row.check.min": 1})
    single(frame.limit(0), "wrong-no-rows-by-spark")
    single(frame.select(sf.col("text").cast("binary").alias("text")), "wrong-bytes-by-spark")
    numbered = frame.withColumn("number", sf.monotonically_increasing_id())
    parts = numbered.repartitionByRange(4, "number").sortWithinPartitions("number").drop("number")
    parts.write.mode("overwrite").parquet(str(HERE / "spark-folder"))
    spark.stop()


def arrow_files() -> None:
    """What the format allows and common writers seldom do, by Arrow."""

    def write(
        name: str, column: pa.Array | None = None, *, field: pa.Field | None = None, **options: object
    ) -> None:
        texts = pa.array(TEXTS, pa.string()) if column is None else column
        schema = pa.schema([field or pa.field("text", texts.type)])
        pq.write_table(pa.table([texts], schema=schema), HERE / f"{name}.parquet", **options)

    plain = {"use_dictionary": False}
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        for version in ("1.0", "2.0"):
            name = f"arrow-{encoding.lower().replace('_', '-')}-v{version[0]}"
            write(name, column_encoding=encoding, data_page_version=version, **plain)
    full = pa.array([text or "" for text in TEXTS])
    required = pa.field("text", pa.string(), nullable=False)
    write("arrow-required", full, field=required)
    write("arrow-large-string", pa.array(TEXTS, pa.large_string()))
    write("arrow-string-view", pa.array(TEXTS, pa.string_view()))
    write("arrow-no-schema-inside", store_schema=False)
    numbers = pa.table(
        {
            "f": pa.array([0.5] * len(TEXTS)),
            "t\u00e9xt": TEXTS,
            "text": TEXTS,
            "text.raw": TEXTS,
            "a.text": [1] * len(TEXTS),
            "": [2] * len(TEXTS),
        }
    )
    encodings = {"f": "BYTE_STREAM_SPLIT", "text": "PLAIN"}
    pq.write_table(numbers, HERE / "arrow-names.parquet", column_encoding=encodings, version="2.6", **plain)
    twice = pa.Table.from_arrays([pa.array(TEXTS), pa.array(TEXTS), pa.array(TEXTS)], ["id", "text", "id"])
    pq.write_table(twice, HERE / "arrow-other-name-twice.parquet")
    pq.write_table(twice.rename_columns(["text", "text", "id"]), HERE / "wrong-name-twice.parquet")
    with pq.ParquetWriter(
        HERE / "arrow-empty-row-groups.parquet", pa.schema([("text", pa.string())])
    ) as writer:
        table = pa.table({"text": pa.array(TEXTS)})
        for start in range(0, len(TEXTS), 8):
            writer.write_table(table.slice(0, 0))
            writer.write_table(table.slice(start, 8))
    bad = [(text or "").encode() for text in TEXTS]
    bad[5] = b"Gr\xfc\xdfe in Latin-1"
    offsets = pa.array(
        [0, *(sum(map(len, bad[: row + 1])) for row in range(len(bad)))], pa.int32()
    ).buffers()[1]
    column = pa.Array.from_buffers(pa.string(), len(bad), [None, offsets, pa.py_buffer(b"".join(bad))])
    write("wrong-not-utf8", column)
    write("wrong-list", pa.array([[text] for text in TEXTS]))
    write("wrong-struct", pa.array([{"text": text} for text in TEXTS]))
    write("wrong-number", pa.array([1] * len(TEXTS)))
    pq.write_table(pa.table({"body": TEXTS, "title": TEXTS}), HERE / "wrong-no-text-column.parquet")
    whole = (HERE / "arrow-large-string.parquet").read_bytes()
    (HERE / "wrong-truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (HERE / "wrong-magic.parquet").write_bytes(b"ORC1" + whole[4:])
    (HERE / "wrong-footer.parquet").write_bytes(whole[:-60] + bytes(50) + whole[-10:])
    for name, footer in (("footer", False), ("column", True)):
        encryption = pe.EncryptionConfiguration(
            footer_key="footer", column_keys={"column": ["text"]}, plaintext_footer=footer
        )
        factory = pe.CryptoFactory(lambda _: _Keys())
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), encryption)
        write(f"wrong-encrypted-{name}", encryption_properties=properties)


class _Keys(pe.KmsClient):
    """Keeps no key secret: the files show that encryption is noticed."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + b":" + key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)[len(master_key_identifier) + 1 :]


if __name__ == "__main__":
    for old in (*HERE.glob("*.parquet"), *HERE.glob("*-folder")):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for make in (duckdb_files, polars_files, pandas_files, arrow_files, spark_files):
        make()
