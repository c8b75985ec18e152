use std::time::Duration;

use chrono::Utc;
use odradek::Cluster;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

/// Writes a record to a new topic; returns its offset.
async fn write(kafka: &Cluster) -> i64 {
    let client = ClientBuilder::new(kafka.bootstrap.clone());
    let client = client.build().await.expect("a client");
    let topics = client.controller_client().expect("a controller");
    let topic = topics.create_topic("orders", 1, 1, 5_000);
    topic.await.expect("a topic");
    let partition = client.partition_client("orders", 0, UnknownTopicHandling::Retry);
    let record = Record {
        key: None,
        value: Some(b"a".to_vec()),
        headers: Default::default(),
        timestamp: Utc::now(),
    };
    let partition = partition.await.expect("a partition");
    let offsets = partition.produce(vec![record], Compression::NoCompression);
    offsets.await.expect("an offset")[0]
}

#[tokio::test]
async fn a_record_whose_partition_has_moved_is_sent_again() {
    let kafka = Cluster::new("{}");
    kafka.fault(
        r#"{"name": "moved", "match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 2}"#,
    );
    assert_eq!(write(&kafka).await, 0);
    kafka.wait(r#"{"fault": "moved", "hits": 2}"#);
}

#[test]
#[should_panic(expected = "the test's own")]
fn a_cluster_that_is_gone_does_not_hide_why_a_test_failed() {
    let kafka = Cluster::new("{}");
    kafka.call("DELETE", "", "");
    panic!("the test's own");
}

#[tokio::test]
async fn records_are_deleted_when_a_week_is_over() {
    let kafka = Cluster::new(r#"{"nodes": 3, "settings": {"log.retention.hours": 168}}"#);
    assert_eq!(write(&kafka).await, 0);
    kafka.wait(r#"{"topic": "orders", "log_end_offset": 1}"#);
    kafka.advance(Duration::from_secs(8 * 24 * 3_600));
    kafka.wait(r#"{"topic": "orders", "log_start_offset": 1}"#);
}
