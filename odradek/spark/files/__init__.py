"""Spark reads the files of a data directory: `format("odradek").option("path", …)`, without a broker.

options  the options of the source, and what filters leave out
plan     which parts of which files a query reads, as tasks
views    the tables that a task yields: records, batches, and what else a directory contains
reader   the data source's reader, the only one that imports pyspark
"""
