"""Reads the files of a data directory in Spark, without a broker: `format("odradek").option("path", …)`.

options  the options of the source, and the effect of filters
plan     the tasks of a query, each of which reads part of a partition
views    the tables that tasks yield: records, batches, transactions, and others
reader   the data source's reader, which is the only module here that imports pyspark
"""
