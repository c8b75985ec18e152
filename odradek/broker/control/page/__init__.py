"""The page at http://localhost:9644/, for people who want to see what goes on. Imported when it is first asked for.

overview, topics, partition, records, groups, shares, transactions, clients
             the facts of one view each, as JSON values read on the loop; nothing is kept between requests
scan, transaction_steps, partition_timeline, group_history
             what the logs say of the past
actions      what the page can change, each a request of Kafka's protocol that `in_process` makes; reset_offsets, fields
served       what they look at
views        which path shows which view
routes       HTTP: the page, the views, and their changes as server-sent events
acting       HTTP of the actions: who may act
guard        which Host and Origin headers are let in
document     the page as one file: HTML with its style, its script and the first view
assets/      what browsers get
"""
