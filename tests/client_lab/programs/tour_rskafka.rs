use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use std::collections::BTreeMap;

fn record(number: usize) -> Record {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    let timestamp = rskafka::chrono::DateTime::from_timestamp_millis(now).unwrap();
    Record { key: None, value: Some(number.to_string().into_bytes()), headers: BTreeMap::new(), timestamp }
}

#[tokio::main]
async fn main() {
    let servers = vec![std::env::var("ODRADEK_BOOTSTRAP").unwrap()];
    let client = ClientBuilder::new(servers).client_id("judged").build().await.unwrap();
    let orders = client.partition_client("orders", 0, UnknownTopicHandling::Retry).await.unwrap();
    for number in 0..20 {
        if let Err(error) = orders.produce(vec![record(number)], Compression::NoCompression).await {
            println!("{error}");
        }
    }
    let mut offset = 0;
    for _ in 0..5 {
        match orders.fetch_records(offset, 1..1_000_000, 500).await {
            Ok((records, _)) => offset = records.last().map_or(offset, |last| last.offset + 1),
            Err(error) => println!("{error}"),
        }
    }
}
