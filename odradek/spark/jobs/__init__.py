"""Jobs on whole topics: `odradek spark exactly-once`, `export`, `diff` and `profile`.

    audit    compares an output with its input
    export   writes topics as Parquet
    diff     compares two data directories
    profile  measures a topic

The other files are their parts. Applications import the functions by the names that docs/using-spark.md gives, from
the files of the same names one folder up.
"""
