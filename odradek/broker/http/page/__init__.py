"""The page at http://localhost:9644/, for people who want to see what goes on. Imported when it is first asked for.

overview, topics, records, groups, transactions
             the facts of one view each, as JSON values read on the loop; nothing is kept between requests
clusters     those that tests control
history, partition_timeline
             what the logs say of the past
picture      the same as lanes and columns, with the holds where something waits
actions      what the page can change, each a request of Kafka's protocol that `broker/in_process` makes
served       what they look at
routes       HTTP: the page, its views, their changes as server-sent events, and the actions
rights       which right a view needs
document     the page as one file: HTML with its style, its script and the first view
assets/      what browsers get: one module for each view, and those that they share
"""
