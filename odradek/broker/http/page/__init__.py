"""The page at http://localhost:9644/, which shows people the state of the broker. Imported when it is first requested.

overview, topics, records, groups, transactions, shares
             the facts of one view each, as JSON values that are read on the loop; requests share no state
clusters     the clusters that tests control
history, partition_timeline
             past events, as the logs still contain them
picture      the same events as a diagram of lanes and columns, with the holds at which something waits
actions      the changes that the page can make; each is a request of Kafka's protocol by `broker/in_process`
record_grammar, record_writing
             a record as JSON, and the requests that write records; programs use the same over HTTP
served       the types that all views share, and the broker that they show
routes       HTTP: the page, its views, their updates as server-sent events, and the actions
rights       the permission that each view needs
document     the page as one file: HTML with its style, its script and the first view
assets/      the sources of that file: a module for each view, and shared modules
"""
