// Package odradek gives each test a fresh Kafka cluster:
//
//	client, err := kgo.NewClient(kgo.SeedBrokers(odradek.New(t).Bootstrap...))
//
// The first test starts Odradek, unless ODRADEK_CONTROL=HOST:PORT names one, and ODRADEK_TOKEN the token it asks for.
package odradek

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// JSON is a rule, a condition, options or an answer: see docs/testing.md of Odradek.
type JSON = map[string]any

// Cluster is one broker, or several nodes. Its methods fail the test if the control interface refuses them.
type Cluster struct {
	Bootstrap []string
	t         testing.TB
	path      string
}

// New makes a cluster, and deletes it at the end of the test. Options are those of POST /clusters, such as
// odradek.JSON{"nodes": 3}. A rule that nothing matched fails the test; a failed test logs its last exchanges.
func New(t testing.TB, options ...JSON) *Cluster {
	t.Helper()
	k, body := &Cluster{t: t, path: "/clusters"}, JSON{}
	for _, each := range options {
		maps.Copy(body, each)
	}
	var told struct{ ID, Bootstrap string }
	k.Call("POST", "", body, &told)
	k.path, k.Bootstrap = "/clusters/"+told.ID, strings.Split(told.Bootstrap, ",")
	t.Cleanup(func() {
		defer client.CloseIdleConnections() // their goroutines would count as leaks
		defer k.Call("DELETE", "", nil, nil)
		var rules, exchanges []JSON
		k.Call("GET", "/faults", nil, &rules)
		for _, rule := range rules {
			if rule["matched"] == 0.0 && rule["unused"] != "ok" {
				t.Errorf("no request matched %v", rule)
			}
		}
		if t.Failed() {
			k.Call("GET", "/requests?limit=20", nil, &exchanges)
			for _, each := range exchanges {
				t.Log(each["client_id"], each["api"], each["request"], "->", each["answer"])
			}
		}
	})
	return k
}

// Fault adds a rule.
func (k *Cluster) Fault(rule JSON) { k.t.Helper(); k.Call("POST", "/faults", rule, nil) }

// Wait waits up to ten seconds for a condition.
func (k *Cluster) Wait(condition JSON) { k.t.Helper(); k.Call("POST", "/wait", condition, nil) }

// Advance moves the cluster's clock and returns when all that became due has happened.
func (k *Cluster) Advance(d time.Duration) {
	k.t.Helper()
	k.Call("POST", "/clock/advance", JSON{"ms": d.Milliseconds()}, nil)
}

// Call makes any other call of the control interface, and decodes the answer into answer unless that is nil.
func (k *Cluster) Call(method, path string, body JSON, answer any) {
	k.t.Helper()
	address, err := control()
	if err != nil {
		k.t.Fatalf("odradek did not start: %v", err)
	}
	text, _ := json.Marshal(body)
	request, err := http.NewRequest(method, "http://"+address+"/control/v1"+k.path+path, bytes.NewReader(text))
	if err != nil {
		k.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ODRADEK_TOKEN"))
	response, err := client.Do(request)
	if err != nil {
		k.t.Fatal(err)
	}
	defer response.Body.Close()
	told, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 400 || answer != nil && json.Unmarshal(told, answer) != nil {
		k.t.Fatalf("%s %s %s: %s", method, path, text, told)
	}
}

var client = &http.Client{Transport: &http.Transport{}}

const start = `trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
"$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \
  --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
cat "$folder/ready"; exec >/dev/null 2>&1; cat`

var stdin io.WriteCloser // the process ends when this is closed: with ours, however that ends
var control = sync.OnceValues(func() (string, error) {
	if address := os.Getenv("ODRADEK_CONTROL"); address != "" {
		return address, nil
	}
	command := exec.Command("sh", "-c", start)
	stdin, _ = command.StdinPipe()
	stdout, _ := command.StdoutPipe()
	command.Stderr = os.Stderr
	var ready JSON
	err := errors.Join(command.Start(), json.NewDecoder(stdout).Decode(&ready))
	return fmt.Sprint("127.0.0.1:", ready["http_port"]), err
})
