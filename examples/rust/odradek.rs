//! Fresh Kafka clusters for tests: `let kafka = Cluster::new("{}");`
//!
//! The first test starts Odradek, unless ODRADEK_CONTROL=HOST:PORT names one, and ODRADEK_TOKEN the token it asks for.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

const START: &str = r#"trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
"$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \
  --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
cat "$folder/ready"; exec >/dev/null 2>&1; cat"#;

/// One broker, or several nodes; it is deleted when this is dropped. Rules, conditions and answers are JSON: see
/// docs/testing.md of Odradek. The methods panic with the words of a refusal.
pub struct Cluster {
    pub bootstrap: Vec<String>,
    path: String,
}

impl Cluster {
    /// Options are those of `POST /clusters`, such as `{"nodes": 3}`.
    pub fn new(options: &str) -> Self {
        let told = send("POST", "/clusters", options);
        let bootstrap = text_of("bootstrap", &told).split(',').map(String::from);
        Self {
            bootstrap: bootstrap.collect(),
            path: format!("/clusters/{}", text_of("id", &told)),
        }
    }

    /// Adds a rule. If nothing has matched it, the test fails.
    pub fn fault(&self, rule: &str) {
        self.call("POST", "/faults", rule);
    }

    /// Waits up to ten seconds for a condition and returns its facts.
    pub fn wait(&self, condition: &str) -> String {
        self.call("POST", "/wait", condition)
    }

    /// Moves the cluster's clock; returns when all that became due has happened.
    pub fn advance(&self, time: Duration) {
        let body = format!(r#"{{"ms": {}}}"#, time.as_millis());
        self.call("POST", "/clock/advance", &body);
    }

    /// Any other call of the control interface.
    pub fn call(&self, method: &str, path: &str, body: &str) -> String {
        send(method, &format!("{}{path}", self.path), body)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            let story = || {
                let exchanges = self.call("GET", "/requests?limit=20", "");
                self.call("DELETE", "", "");
                let lines = exchanges.replace("{\"number\"", "\n{\"number\"");
                eprintln!("Kafka: the last exchanges {lines}");
            };
            let _ = thread::scope(|scope| scope.spawn(story).join()); // a second panic of this thread would abort
            return;
        }
        let rules = self.call("GET", "/faults", "");
        self.call("DELETE", "", "");
        let unused = rules
            .split("\"hits\": ")
            .any(|rule| rule.contains("\"matched\": 0") && !rule.contains("\"unused\": \"ok\""));
        assert!(!unused, "nothing matched a rule: {rules}");
    }
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
        // The shell ends when its standard input does: with this process, however that ends.
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

fn send(method: &str, path: &str, body: &str) -> String {
    let address = address();
    let mut stream = TcpStream::connect(address).expect("odradek is gone");
    let token = env::var("ODRADEK_TOKEN").unwrap_or_default();
    let head = format!("Host: {address}\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}");
    let length = body.len();
    let request = format!("{method} /control/v1{path} HTTP/1.0\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).expect("odradek is gone");
    stream.read_to_string(&mut answer).expect("odradek is gone");
    let (head, told) = answer.split_once("\r\n\r\n").expect("HTTP");
    let status = head.split(' ').nth(1).expect("HTTP");
    assert!(status.starts_with('2'), "{method} {path} {body}: {told}");
    told.to_string()
}
