use std::fs;
use std::time::Duration;

use chrono::Utc;
use odradek::Cluster;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;

const ORDERS: &str = r#"{"topics": {"orders": 1}}"#;

async fn orders(bootstrap: Vec<String>, sasl: Option<SaslConfig>) -> PartitionClient {
    let mut client = ClientBuilder::new(bootstrap).client_id("payer");
    if let Some(sasl) = sasl {
        client = client.sasl_config(sasl);
    }
    let client = client.build().await.expect("a client");
    let partition = client.partition_client("orders", 0, UnknownTopicHandling::Retry);
    partition.await.expect("a partition")
}

async fn send(partition: &PartitionClient) -> i64 {
    let record = Record {
        key: None,
        value: Some(b"a".to_vec()),
        headers: Default::default(),
        timestamp: Utc::now(),
    };
    let sent = partition.produce(vec![record], Compression::NoCompression);
    sent.await.expect("an offset")[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_held_until_it_is_released() {
    let kafka = Cluster::new(ORDERS);
    kafka.fault(r#"{"name": "slow/1", "match": {"api": "Produce"}, "at": "received", "do": {"hold": "send"}}"#);
    let partition = orders(kafka.bootstrap.clone(), None).await;
    let sent = tokio::spawn(async move { send(&partition).await });
    kafka.wait(r#"{"hold": "send"}"#);
    assert!(kafka.holds().contains("\"waiting\": 1"));
    assert_eq!(kafka.release("send"), 1);
    assert_eq!(sent.await.expect("it was sent"), 0);
    kafka.check_faults();
    kafka.clear_faults(Some("slow/1"));
    assert_eq!(kafka.faults(), "[]");
}

#[test]
fn a_cluster_begins_with_the_records_of_its_seed() {
    let seed = r#"{"topics": [{"name": "orders", "partitions": 1, "records": [{"key": "a", "value": "one tea"}]}]}"#;
    let kafka = Cluster::new(&format!(r#"{{"seed": {seed}}}"#));
    kafka.wait(r#"{"topic": "orders", "partition": 0, "log_end_offset": 1}"#);
}

#[test]
#[should_panic(expected = "never")]
fn a_rule_that_nothing_matched_fails_the_test() {
    let kafka = Cluster::new("{}");
    kafka.fault(r#"{"name": "never", "match": {"api": "EndTxn"}, "do": {"observe": true}}"#);
}

#[tokio::test]
#[should_panic(expected = r#"these rules have done nothing: {"name": "far""#)]
async fn a_rule_that_could_edit_no_answer_fails_the_test() {
    let kafka = Cluster::new(ORDERS);
    kafka.fault(r#"{"name": "\"matched\": 0, ]}", "match": {"api": "Metadata"}, "do": {"observe": true}}"#);
    kafka.fault(
        r#"{"name": "far", "match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"topics[7].errorCode": 3}}}"#,
    );
    send(&orders(kafka.bootstrap.clone(), None).await).await;
    kafka.check_faults();
}

#[test]
fn the_clock_stops_moves_and_is_set() {
    let kafka = Cluster::new("{}");
    kafka.freeze();
    let now_ms = kafka.now_ms();
    kafka.advance(Duration::from_secs(1));
    assert_eq!(kafka.now_ms(), now_ms + 1_000);
    kafka.set_clock(now_ms + 5_000);
    assert_eq!(kafka.now_ms(), now_ms + 5_000);
    kafka.resume();
}

#[test]
fn leaders_and_coordinators_move_and_nodes_stop() {
    let kafka = Cluster::new(r#"{"nodes": [1, 2, 3], "topics": {"orders": 1}}"#);
    kafka.preset("open-transaction", r#"{"transactional_id": "a/b"}"#);
    kafka.move_leader("orders", 0, 3);
    assert!(kafka
        .partitions()
        .contains(r#""topic": "orders", "partition": 0, "leader": 3"#));
    kafka.move_coordinator("transaction", "a/b", 2);
    kafka.wait(r#"{"transaction": "a/b", "state": "Ongoing"}"#);
    assert!(kafka.transactions().starts_with(r#"[{"transaction": "a/b""#));
    kafka.stop_node(3, true);
    assert!(kafka.nodes().contains("stopped"));
    kafka.start_node(3);
    kafka.cut_off(2, "nobody");
    kafka.clear_faults(None);
    kafka.put_in_rack(2, Some("r"));
    kafka.put_in_rack(2, None);
    kafka.follow("orders", 0, 2, Some(0));
    kafka.follow("orders", 0, 2, None);
}

#[tokio::test]
async fn a_cluster_goes_back_crashes_and_starts_again() {
    let kafka = Cluster::new(ORDERS);
    send(&orders(kafka.bootstrap.clone(), None).await).await;
    kafka.checkpoint("one \"record\"");
    assert!(kafka.truncate("orders", 0, 0, None).contains(r#""log_end_offset": 0"#));
    kafka.rewind("one \"record\"");
    kafka.lease(Some(Duration::from_secs(600)));
    assert!(kafka.presets().contains("aborted-tail"));
    for each in [&kafka, &kafka.fork()] {
        each.wait(r#"{"topic": "orders", "log_end_offset": 1}"#);
    }
    kafka.crash();
    kafka.restart(false);
    kafka.wait(r#"{"topic": "orders", "log_end_offset": 1}"#);
}

#[tokio::test]
async fn requests_state_and_rare_answers_are_read() {
    let kafka = Cluster::new(ORDERS);
    let file = std::env::temp_dir().join(format!("{}-{}.recording", kafka.id, std::process::id()));
    kafka.record(&file);
    kafka.odd(Some(7));
    assert!(kafka.odd(None).contains(r#""seed": 7"#));
    kafka.odd(Some(0));
    let partition = orders(kafka.bootstrap.clone(), None).await;
    send(&partition).await;
    assert!(kafka.requests("api=Produce").contains("payer"));
    assert!(kafka.connections().contains("payer"));
    for rows in [kafka.groups(), kafka.share_partitions(), kafka.sessions()] {
        assert_eq!(rows, "[]");
    }
    kafka.producers();
    kafka.delete();
    let recording = fs::read(&file).expect("a recording");
    assert!(recording.windows(6).any(|each| each == b"orders"));
    fs::remove_file(&file).expect("it is there");
}

#[tokio::test]
async fn a_client_logs_in() {
    let kafka = Cluster::new(
        r#"{"topics": {"orders": 1}, "users": {"alice": "secret"}, "nodes": 2,
            "listeners": [{"name": "open"}, {"name": "login", "protocol": "SASL_PLAINTEXT"},
                          {"name": "mutual", "protocol": "SSL", "client_auth": "required"}]}"#,
    );
    for sasl in [SaslConfig::Plain, SaslConfig::ScramSha512] {
        let alice = Credentials::new("alice".to_string(), "secret".to_string());
        send(&orders(kafka.bootstrap_of("LOGIN"), Some(sasl(alice))).await).await;
    }
    send(&orders(kafka.bootstrap.clone(), None).await).await;
    kafka.wait(r#"{"topic": "orders", "log_end_offset": 3}"#);
    assert!(kafka.ca_certificate().ends_with("-----END CERTIFICATE-----\n"));
    assert!(kafka
        .client_certificate("alice")
        .starts_with("-----BEGIN PRIVATE KEY-----\n"));
}

#[test]
fn clients_that_are_declared_later_are_dropped_while_the_cluster_is_there() {
    struct Client<'a>(&'a Cluster);
    impl Drop for Client<'_> {
        fn drop(&mut self) {
            self.0.now_ms();
        }
    }
    let kafka = Cluster::new("{}");
    let _client = Client(&kafka);
}
