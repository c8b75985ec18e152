"""`odradek transactions`: what is open, why readers wait, and how to end it; here or in Apache Kafka."""
