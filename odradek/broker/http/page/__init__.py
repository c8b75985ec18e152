"""The page at http://localhost:9644/, which shows the broker's state in a browser. Imported when the page is first
requested.

overview, topics, records, groups, transactions, shares, security
             each returns the facts of one kind of view as JSON values; the facts are read in the event loop's thread,
             and requests share no state
clusters     shows the clusters that tests control
history, partition_timeline
             find past events, if the logs still contain them
picture      draws these events in lanes and columns, with the holds at which requests or steps are waiting
actions, security_actions
             make changes; each action sends a Kafka protocol request through `broker/in_process`
record_browsing, record_filter, record_decoding
             find and decode the records that a list shows
record_grammar, record_writing
             define a record as JSON, and write records; also used by the calls for records over HTTP
served       defines the types that all views share, including the broker that a view shows
routes       handles the HTTP requests for the page, its views, their updates as server-sent events, and the actions
rights       lists the permission that each view needs
document     builds the page as one file: HTML with its style, its script and the first view
assets/      contains the page's sources: a module for each view, and shared modules
"""
