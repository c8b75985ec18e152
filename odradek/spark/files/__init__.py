"""Reads the files of a data directory in Spark, without a broker: `format("odradek").option("path", …)`.

options  the options of the source, and the effect of filters
plan     which parts of which files a query reads, as tasks
views    the tables that tasks yield: records, batches, transactions, and others
reader   the data source's reader, the only module here that imports pyspark
"""
