"""`odradek transactions`: which transactions are open, why readers wait, and how to end them. For Apache Kafka too."""
