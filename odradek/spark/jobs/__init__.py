"""Jobs that process complete topics: `odradek spark exactly-once`, `export`, `diff` and `profile`.

audit    compares an output with its input
export   writes topics as Parquet
diff     compares two data directories
profile  measures a topic

The other modules support these four. Applications import the functions from the modules with the same names in the
parent package, as docs/using-spark.md describes.
"""
