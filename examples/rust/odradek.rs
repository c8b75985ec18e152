//! Fresh Kafka clusters for tests: `let kafka = Cluster::new("{}");`
//!
//! The first test starts Odradek. To use a control interface that is already running, set ODRADEK_CONTROL=HOST:PORT,
//! and ODRADEK_TOKEN if it requires a token.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PAGE: usize = 1000; // rows to request at a time

const START: &str = r#"trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
"$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \
  --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
cat "$folder/ready"; exec >/dev/null 2>&1; cat"#;

/// A Kafka cluster of one or more nodes, which is deleted when it is dropped. Declare it before its clients, or as the
/// last field of a struct, so that the clients are dropped first. Rules, conditions and responses are JSON;
/// docs/testing.md of Odradek describes them. If the control interface refuses a call, the method panics with the
/// reason.
pub struct Cluster {
    pub id: String,
    /// Bootstrap addresses of the first listener.
    pub bootstrap: Vec<String>,
    told: String,
    path: String,
    deleted: AtomicBool,
    recording: Mutex<Option<JoinHandle<()>>>,
}

impl Cluster {
    /// Creates a cluster. The options are those of `POST /clusters`, such as `{"nodes": 3}`.
    pub fn new(options: &str) -> Self {
        let told = send("POST", "/clusters", options);
        let bootstrap = text_of("bootstrap", &told).split(',').map(String::from);
        Self {
            bootstrap: bootstrap.collect(),
            id: text_of("id", &told).to_string(),
            path: format!("/clusters/{}", text_of("id", &told)),
            told,
            deleted: AtomicBool::default(),
            recording: Mutex::default(),
        }
    }

    /// Creates a copy of this cluster.
    pub fn fork(&self) -> Self {
        Self::new(&format!(r#"{{"fork": "{}"}}"#, self.id))
    }

    /// Returns the bootstrap addresses of a listener. Its name is in upper case.
    pub fn bootstrap_of(&self, listener: &str) -> Vec<String> {
        let name = format!("\"name\": \"{listener}\", \"protocol\"");
        let behind = self.told.split(&name).nth(1).expect(&self.told);
        text_of("bootstrap", behind).split(',').map(String::from).collect()
    }

    /// Returns the CA certificate that clients must trust, as PEM. Panics if no listener uses TLS.
    pub fn ca_certificate(&self) -> String {
        text_of("ca_certificate", &self.told).replace("\\n", "\n")
    }

    /// Returns the URL of the schema registry. Panics if the cluster has none.
    pub fn schema_registry(&self) -> &str {
        text_of("schema_registry", &self.told)
    }

    /// Returns this user's key and certificate as PEM, for listeners that require client certificates.
    pub fn client_certificate(&self, user: &str) -> String {
        let behind = self.told.split("\"client_certificates\": ").nth(1);
        text_of(user, behind.expect(&self.told)).replace("\\n", "\n")
    }

    /// Adds a rule. The test fails at its end if the rule has had no effect.
    pub fn fault(&self, rule: &str) {
        self.call("POST", "/faults", rule);
    }

    /// Returns the rules with counters: `matched`, `hits`, and `unmade` for responses that could not be edited.
    pub fn faults(&self) -> String {
        self.call("GET", "/faults", "")
    }

    /// Panics if a rule matched nothing, or could not edit any response. The same check runs when the cluster is
    /// dropped.
    pub fn check_faults(&self) {
        check(&self.faults());
    }

    /// Deletes the rule with this name, or all rules. Requests that wait at their holds continue.
    pub fn clear_faults(&self, name: Option<&str>) {
        let path = name.map(|name| format!("/faults/{}", escaped(name)));
        self.call("DELETE", path.as_deref().unwrap_or("/faults"), "");
    }

    /// Returns how many requests and broker steps wait at each hold.
    pub fn holds(&self) -> String {
        self.call("GET", "/holds", "")
    }

    /// Lets all requests and broker steps that wait at this hold continue, and returns their number.
    pub fn release(&self, hold: &str) -> u64 {
        let path = format!("/holds/{}/release", escaped(hold));
        number_of("released", &self.call("POST", &path, ""))
    }

    /// Waits up to ten seconds for a condition to hold, and returns its facts.
    pub fn wait(&self, condition: &str) -> String {
        self.call("POST", "/wait", condition)
    }

    /// Returns the last exchanges, decoded, oldest first. A query such as `since=7&api=Fetch` selects some of them.
    pub fn requests(&self, query: &str) -> String {
        self.call("GET", &format!("/requests?{query}"), "")
    }

    /// Returns the leader, epoch and offsets of each partition.
    pub fn partitions(&self) -> String {
        self.rows("partitions")
    }

    /// Returns each transactional id with its state.
    pub fn transactions(&self) -> String {
        self.rows("transactions")
    }

    /// Returns the groups of all types with their state and members.
    pub fn groups(&self) -> String {
        self.rows("groups")
    }

    /// Returns the share partitions in memory with their records in flight.
    pub fn share_partitions(&self) -> String {
        self.rows("share_partitions")
    }

    /// Returns the state of each producer id in each partition.
    pub fn producers(&self) -> String {
        self.rows("producers")
    }

    /// Returns the fetch sessions and share sessions.
    pub fn sessions(&self) -> String {
        self.rows("sessions")
    }

    /// Returns the open connections.
    pub fn connections(&self) -> String {
        self.rows("connections")
    }

    fn rows(&self, name: &str) -> String {
        let mut pages = Vec::new();
        loop {
            let skip = pages.len() * PAGE;
            let page = self.call("GET", &format!("/{name}?skip={skip}&limit={PAGE}"), "");
            let (begin, end) = (page.find('[').expect(&page), page.rfind(']').expect(&page));
            pages.push(page[begin + 1..end].to_string());
            if !page.ends_with("\"more\": true}") {
                return format!("[{}]", pages.join(", "));
            }
        }
    }

    /// Brings the cluster into a rare state and returns its facts. The parameters are JSON, such as
    /// `{"topic": "orders"}`.
    pub fn preset(&self, name: &str, parameters: &str) -> String {
        self.call("POST", &format!("/presets/{}", escaped(name)), parameters)
    }

    /// Returns the available presets with their parameters.
    pub fn presets(&self) -> String {
        self.call("GET", "/presets", "")
    }

    /// Makes the cluster give responses that are rare but lawful; seed 0 turns them off. With None, it only returns the
    /// current seed and how often each kind of rare response was given.
    pub fn odd(&self, seed: Option<u64>) -> String {
        match seed {
            Some(seed) => self.call("POST", "/odd", &format!(r#"{{"seed": {seed}}}"#)),
            None => self.call("GET", "/odd", ""),
        }
    }

    /// Saves a copy of the log and the clock under this name.
    pub fn checkpoint(&self, name: &str) {
        self.call("POST", "/checkpoint", &format!(r#"{{"name": {}}}"#, quoted(name)));
    }

    /// Restores a checkpoint. It closes all connections; the ports stay the same.
    pub fn rewind(&self, name: &str) {
        self.call("POST", "/rewind", &format!(r#"{{"name": {}}}"#, quoted(name)));
    }

    /// Stops the cluster, and leaves on the disk exactly what `kill -9` would leave.
    pub fn crash(&self) {
        self.call("POST", "/crash", "");
    }

    /// Stops the cluster and starts it again on the same ports. If `clean` is false, it crashes first.
    pub fn restart(&self, clean: bool) {
        self.call("POST", "/restart", &format!(r#"{{"clean": {clean}}}"#));
    }

    /// Returns the id, host, port and state of each node.
    pub fn nodes(&self) -> String {
        let told = self.call("GET", "", "");
        let behind = told.split("\"nodes\": ").nth(1).expect(&told);
        format!("{}]", behind.split(']').next().expect(&told))
    }

    /// Stops a node. If `clean` is true, other nodes become leaders of its partitions. Otherwise the node is killed,
    /// and metadata lists it for another 9 s of the cluster's clock.
    pub fn stop_node(&self, node: i32, clean: bool) {
        let body = format!(r#"{{"clean": {clean}}}"#);
        self.call("POST", &format!("/nodes/{node}/stop"), &body);
    }

    pub fn start_node(&self, node: i32) {
        self.call("POST", &format!("/nodes/{node}/start"), "");
    }

    /// Makes the node unreachable for this client. It adds a rule; delete the rule to undo this.
    pub fn cut_off(&self, node: i32, client_id: &str) {
        let body = format!(r#"{{"client_id": {}}}"#, quoted(client_id));
        self.call("POST", &format!("/nodes/{node}/unreachable_for"), &body);
    }

    /// Makes the node the leader of the partition, in a new leader epoch.
    pub fn move_leader(&self, topic: &str, partition: i32, node: i32) {
        let path = format!("/partitions/{}/{partition}/leader", escaped(topic));
        self.call("POST", &path, &format!(r#"{{"node": {node}}}"#));
    }

    /// Moves a coordinator to the node, where it reads its log again. The kind is `group`, `transaction` or `share`.
    pub fn move_coordinator(&self, kind: &str, key: &str, node: i32) {
        let path = format!("/coordinators/{kind}/{}", escaped(key));
        self.call("POST", &path, &format!(r#"{{"node": {node}}}"#));
    }

    /// Sets the rack of a node. Leaders then send consumers in this rack to the node (KIP-392). None removes the rack.
    pub fn put_in_rack(&self, node: i32, rack: Option<&str>) {
        let rack = rack.map_or("null".to_string(), quoted);
        self.call(
            "POST",
            &format!("/nodes/{node}/rack"),
            &format!(r#"{{"rack": {rack}}}"#),
        );
    }

    /// Sets the records that the node has as a follower: those below the offset `end`, or all if it is None.
    pub fn follow(&self, topic: &str, partition: i32, node: i32, end: Option<i64>) {
        let path = format!("/partitions/{}/{partition}/follower", escaped(topic));
        let end = end.map_or("null".to_string(), |end| end.to_string());
        self.call("POST", &path, &format!(r#"{{"node": {node}, "end": {end}}}"#));
    }

    /// Performs an unclean election: batches that do not lie entirely below the offset are lost. `node` becomes the
    /// leader; None keeps the current leader.
    pub fn truncate(&self, topic: &str, partition: i32, offset: i64, node: Option<i32>) -> String {
        let path = format!("/partitions/{}/{partition}/truncate", escaped(topic));
        let node = node.map_or("null".to_string(), |node| node.to_string());
        self.call("POST", &path, &format!(r#"{{"offset": {offset}, "node": {node}}}"#))
    }

    /// Returns the time of the cluster's clock, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        number_of("now_ms", &self.call("GET", "/clock", ""))
    }

    /// Stops the cluster's clock.
    pub fn freeze(&self) {
        self.call("POST", "/clock/freeze", "");
    }

    /// Starts the cluster's clock again after `freeze`.
    pub fn resume(&self) {
        self.call("POST", "/clock/resume", "");
    }

    /// Moves the cluster's clock forward. It returns after everything that became due has happened.
    pub fn advance(&self, time: Duration) {
        let body = format!(r#"{{"ms": {}}}"#, time.as_millis());
        self.call("POST", "/clock/advance", &body);
    }

    /// Sets the cluster's clock to milliseconds since the epoch.
    pub fn set_clock(&self, now_ms: u64) {
        self.call("POST", "/clock/set", &format!(r#"{{"ms": {now_ms}}}"#));
    }

    /// Writes all exchanges from now on to a file, until the cluster is deleted. `odradek judge` can read the file.
    pub fn record(&self, file: &Path) {
        let mut stream = begin("GET", &format!("{}/recording", self.path), "");
        let mut head = Vec::new(); // the HTTP head that precedes the recording
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("odradek is gone");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        assert!(status_of(&head).starts_with('2'), "recording: {head}");
        let mut written = File::create(file).expect("a file for the recording");
        let copy = move || {
            io::copy(&mut stream, &mut written).expect("a recording");
        };
        *self.recording.lock().expect("a recording") = Some(thread::spawn(copy));
    }

    /// Deletes the cluster after this time unless the lease is renewed before. None removes the lease.
    pub fn lease(&self, time: Option<Duration>) {
        let seconds = time.map_or("null".to_string(), |time| time.as_secs().to_string());
        self.call("POST", "/lease", &format!(r#"{{"ttl_s": {seconds}}}"#));
    }

    /// Closes all connections of the cluster and removes its files, before the end of the test.
    pub fn delete(&self) {
        self.deleted.store(true, Ordering::Relaxed);
        self.call("DELETE", "", "");
        let recording = self.recording.lock().expect("a recording").take();
        if let Some(recording) = recording {
            recording.join().expect("a recording");
        }
    }

    /// Sends any request to the control interface.
    pub fn call(&self, method: &str, path: &str, body: &str) -> String {
        send(method, &format!("{}{path}", self.path), body)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.deleted.load(Ordering::Relaxed) {
            return;
        }
        if thread::panicking() {
            let path = self.path.clone();
            let story = move || {
                let exchanges = send("GET", &format!("{path}/requests?limit=20"), "");
                send("DELETE", &path, "");
                let lines = exchanges.replace("{\"number\"", "\n{\"number\"");
                eprintln!("Kafka: the last exchanges {lines}");
            };
            // A second panic in this thread would abort the process.
            let _ = thread::spawn(story).join();
            return;
        }
        let rules = self.faults();
        self.delete();
        check(&rules);
    }
}

fn check(rules: &str) {
    let mut unused = parts(rules);
    unused.retain(|rule| is_unused(rule));
    let told = unused.join(", ");
    assert!(unused.is_empty(), "these rules have done nothing: {told}");
}

fn is_unused(rule: &str) -> bool {
    member(rule, "matched") == member(rule, "unmade") && member(rule, "unused") != Some("\"ok\"")
}

/// Returns the raw value of a member of a JSON object.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("\"{name}\":");
    let mut values = parts(object).into_iter().filter_map(|each| each.strip_prefix(&begin));
    values.next().map(str::trim)
}

/// Returns the raw items of a JSON list, or the raw members of a JSON object.
fn parts(json: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 1, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for (at, each) in json.char_indices() {
        if is_text {
            is_text = is_escaped || each != '"';
            is_escaped = each == '\\' && !is_escaped;
            continue;
        }
        match each {
            '"' => is_text = true,
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && each == ',') {
            parts.push(json[begin..at].trim());
            begin = at + 1;
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|each| match each {
        '"' | '\\' => format!("\\{each}"),
        each if each < ' ' => format!("\\u{:04x}", each as u32),
        each => each.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn escaped(name: &str) -> String {
    let escaped = name.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    });
    escaped.collect()
}

fn number_of(name: &str, json: &str) -> u64 {
    let behind = json.split(&format!("\"{name}\": ")).nth(1).expect(json);
    let digits = behind.split(|each: char| !each.is_ascii_digit()).next();
    digits.expect(json).parse().expect(json)
}

fn text_of<'a>(name: &str, json: &'a str) -> &'a str {
    let behind = json.split(&format!("\"{name}\": \"")).nth(1);
    behind.expect(json).split('"').next().expect(json)
}

fn address() -> &'static str {
    static STARTED: OnceLock<(String, Option<Child>)> = OnceLock::new();
    let start = || {
        if let Ok(address) = env::var("ODRADEK_CONTROL") {
            return (address, None);
        }
        // The shell ends when its standard input is closed, so it also ends if this process is killed.
        let mut shell = Command::new("sh");
        shell.args(["-c", START]).stdin(Stdio::piped());
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("sh");
        let mut ready = String::new();
        let mut output = BufReader::new(shell.stdout.take().expect("piped"));
        output.read_line(&mut ready).expect("UTF-8");
        let port = ready.split("\"http_port\": ").nth(1);
        let port = port.expect("odradek did not start").split(',').next();
        (format!("127.0.0.1:{}", port.expect("a port")), Some(shell))
    };
    &STARTED.get_or_init(start).0
}

fn begin(method: &str, path: &str, body: &str) -> TcpStream {
    let address = address();
    let mut stream = TcpStream::connect(address).expect("odradek is gone");
    let token = env::var("ODRADEK_TOKEN").unwrap_or_default();
    let head = format!("Host: {address}\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}");
    let length = body.len();
    let request = format!("{method} /control/v1{path} HTTP/1.0\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("odradek is gone");
    stream
}

fn status_of(head: &str) -> &str {
    head.split(' ').nth(1).expect("HTTP")
}

fn send(method: &str, path: &str, body: &str) -> String {
    let mut answer = String::new();
    let mut stream = begin(method, path, body);
    stream.read_to_string(&mut answer).expect("odradek is gone");
    let (head, told) = answer.split_once("\r\n\r\n").expect("HTTP");
    assert!(status_of(head).starts_with('2'), "{method} {path} {body}: {told}");
    told.trim_end().to_string()
}
