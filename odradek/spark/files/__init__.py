"""Reads the files of a data directory in Spark, without a broker: `format("odradek").option("path", …)`.

options  the source's options, and which records the filters select
plan     divides a query into tasks that each read part of a partition
views    the tables that tasks yield, such as records, batches and transactions
reader   the data source's reader; the only module in this package that imports pyspark
"""
