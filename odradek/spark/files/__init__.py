"""Reads the files of a data directory in Spark, without a broker: `format("odradek").option("path", …)`.

options  the options of the source, and the records that filters exclude
plan     the tasks of a query, each of which reads part of a partition
views    the tables that tasks yield: records, batches, transactions, and others
reader   the reader of the data source, the only module of this package that imports pyspark
"""
