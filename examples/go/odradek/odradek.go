// Package odradek gives each test a fresh Kafka cluster:
//
//	client, err := kgo.NewClient(kgo.SeedBrokers(odradek.New(t).Bootstrap...))
//
// The first test starts Odradek. To use a control interface that is already running, set ODRADEK_CONTROL=HOST:PORT, and
// ODRADEK_TOKEN if it requires a token.
package odradek

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// JSON is a rule, a condition, options or a response. docs/testing.md of Odradek describes their fields.
type JSON = map[string]any

// Listener is one listener of a cluster, with its bootstrap addresses and SASL mechanisms.
type Listener struct {
	Name, Protocol string
	Bootstrap      []string
	Mechanisms     []string
}

// Cluster is a Kafka cluster of one or more nodes. If the control interface refuses a call, the method fails the test.
type Cluster struct {
	ID                 string
	Bootstrap          []string            // addresses of the first listener
	Listeners          map[string]Listener // by name, in upper case
	CACertificate      string              // PEM of the CA to trust, if a listener uses TLS
	ClientCertificates map[string]string   // PEM of key and certificate, by user
	SchemaRegistry     string              // URL, if the cluster has a schema registry
	t                  testing.TB
	path               string
	deleted            bool
	recording          chan error
}

// New creates a cluster and deletes it at the end of the test, after all cleanups that the test registers later. The
// options are those of POST /clusters, such as odradek.JSON{"nodes": 3}. The test fails if a rule has had no effect. If
// the test fails, its last exchanges are logged.
func New(t testing.TB, options ...JSON) *Cluster {
	t.Helper()
	k, body := &Cluster{t: t, path: "/clusters", Listeners: map[string]Listener{}}, JSON{}
	for _, each := range options {
		maps.Copy(body, each)
	}
	var told struct {
		ID, Bootstrap string
		Listeners     []struct {
			Name, Protocol, Bootstrap string
			Mechanisms                []string
		}
		CA       string            `json:"ca_certificate"`
		Clients  map[string]string `json:"client_certificates"`
		Registry string            `json:"schema_registry"`
	}
	k.Call("POST", "", body, &told)
	k.ID, k.path, k.Bootstrap = told.ID, "/clusters/"+told.ID, strings.Split(told.Bootstrap, ",")
	k.CACertificate, k.ClientCertificates, k.SchemaRegistry = told.CA, told.Clients, told.Registry
	for _, each := range told.Listeners {
		addresses := strings.Split(each.Bootstrap, ",")
		k.Listeners[each.Name] = Listener{each.Name, each.Protocol, addresses, each.Mechanisms}
	}
	t.Cleanup(func() {
		if k.deleted {
			return
		}
		defer client.CloseIdleConnections() // A leak detector would report their goroutines.
		defer k.Delete()
		for _, rule := range k.unused() {
			t.Errorf("the rule has done nothing: %v", rule)
		}
		if t.Failed() {
			for _, each := range k.Requests(url.Values{"limit": {"20"}}) {
				t.Log(each["client_id"], each["api"], each["request"], "->", each["answer"])
			}
		}
	})
	return k
}

// Fork creates a copy of the cluster, which is deleted at the end of the same test.
func (k *Cluster) Fork() *Cluster { k.t.Helper(); return New(k.t, JSON{"fork": k.ID}) }

// Fault adds a rule. The test fails at its end if the rule has had no effect.
func (k *Cluster) Fault(rule JSON) { k.t.Helper(); k.Call("POST", "/faults", rule, nil) }

// Faults returns the rules. "matched", "hits" and "unmade" are counters; "unmade" counts responses that could not be
// edited.
func (k *Cluster) Faults() (rules []JSON) {
	k.t.Helper()
	k.Call("GET", "/faults", nil, &rules)
	return
}

// CheckFaults fails the test if a rule matched nothing, or could not edit any response. The same check runs at the end
// of the test.
func (k *Cluster) CheckFaults() {
	k.t.Helper()
	for _, rule := range k.unused() {
		k.t.Fatalf("the rule has done nothing: %v", rule)
	}
}

// IsUnused reports whether a rule, as returned by Faults, matched nothing or could not edit any response.
func IsUnused(rule JSON) bool { return rule["matched"] == rule["unmade"] && rule["unused"] != "ok" }

func (k *Cluster) unused() []JSON {
	return slices.DeleteFunc(k.Faults(), func(rule JSON) bool { return !IsUnused(rule) })
}

// ClearFaults deletes the rules with these names, or all rules. Requests that wait at their holds continue.
func (k *Cluster) ClearFaults(names ...string) {
	k.t.Helper()
	if len(names) == 0 {
		k.Call("DELETE", "/faults", nil, nil)
	}
	for _, name := range names {
		k.Call("DELETE", "/faults/"+url.PathEscape(name), nil, nil)
	}
}

// Holds returns the number of waiting requests and broker steps, by name of the hold.
func (k *Cluster) Holds() map[string]int {
	k.t.Helper()
	var told []struct {
		Name    string
		Waiting int
	}
	k.Call("GET", "/holds", nil, &told)
	holds := map[string]int{}
	for _, each := range told {
		holds[each.Name] = each.Waiting
	}
	return holds
}

// Release lets all requests and broker steps that wait at this hold continue, and returns their number.
func (k *Cluster) Release(hold string) int {
	k.t.Helper()
	var told struct{ Released int }
	k.Call("POST", "/holds/"+url.PathEscape(hold)+"/release", JSON{}, &told)
	return told.Released
}

// Wait waits up to ten seconds for the condition to hold, and returns its facts.
func (k *Cluster) Wait(condition JSON) (facts JSON) {
	k.t.Helper()
	k.Call("POST", "/wait", condition, &facts)
	return
}

// Requests returns the last exchanges, decoded, oldest first. The keys since, api, client_id and limit select
// exchanges; nil returns all.
func (k *Cluster) Requests(where url.Values) (exchanges []JSON) {
	k.t.Helper()
	k.Call("GET", "/requests?"+where.Encode(), nil, &exchanges)
	return
}

// Partitions returns the leader, epoch and offsets of each partition.
func (k *Cluster) Partitions() []JSON { k.t.Helper(); return k.rows("partitions") }

// Transactions returns each transactional id with its state.
func (k *Cluster) Transactions() []JSON { k.t.Helper(); return k.rows("transactions") }

// Groups returns the groups of all types with their state and members.
func (k *Cluster) Groups() []JSON { k.t.Helper(); return k.rows("groups") }

// SharePartitions returns the share partitions in memory with their records in flight.
func (k *Cluster) SharePartitions() []JSON { k.t.Helper(); return k.rows("share_partitions") }

// Producers returns the state of each producer id in each partition.
func (k *Cluster) Producers() []JSON { k.t.Helper(); return k.rows("producers") }

// Sessions returns the fetch sessions and share sessions.
func (k *Cluster) Sessions() []JSON { k.t.Helper(); return k.rows("sessions") }

// Connections returns the open connections.
func (k *Cluster) Connections() []JSON { k.t.Helper(); return k.rows("connections") }

func (k *Cluster) rows(name string) (rows []JSON) {
	k.t.Helper()
	page := struct {
		Rows []JSON
		More bool
	}{More: true}
	for page.More {
		page.Rows = nil
		k.Call("GET", fmt.Sprintf("/%s?skip=%d", name, len(rows)), nil, &page)
		rows = append(rows, page.Rows...)
	}
	return
}

// Preset brings the cluster into the rare state with this name, and returns the facts of that state.
func (k *Cluster) Preset(name string, parameters JSON) (facts JSON) {
	k.t.Helper()
	k.Call("POST", "/presets/"+url.PathEscape(name), parameters, &facts)
	return
}

// Presets returns the available presets with their parameters.
func (k *Cluster) Presets() (told []JSON) {
	k.t.Helper()
	k.Call("GET", "/presets", nil, &told)
	return
}

// Odd makes the cluster give responses that are rare but lawful; seed 0 turns them off. percent sets how often a kind
// of response occurs; nil keeps the defaults.
func (k *Cluster) Odd(seed int, percent map[string]int) (told JSON) {
	k.t.Helper()
	body := JSON{"seed": seed}
	if percent != nil {
		body["percent"] = percent
	}
	k.Call("POST", "/odd", body, &told)
	return
}

// Oddities returns the seed, and how often each kind of rare response was given.
func (k *Cluster) Oddities() (told JSON) { k.t.Helper(); k.Call("GET", "/odd", nil, &told); return }

// Checkpoint saves a copy of the log and the clock under this name.
func (k *Cluster) Checkpoint(name string) {
	k.t.Helper()
	k.Call("POST", "/checkpoint", JSON{"name": name}, nil)
}

// Rewind restores a checkpoint. It closes all connections; the ports stay the same.
func (k *Cluster) Rewind(name string) {
	k.t.Helper()
	k.Call("POST", "/rewind", JSON{"name": name}, nil)
}

// Crash stops the cluster, and leaves on the disk exactly what kill -9 would leave.
func (k *Cluster) Crash() { k.t.Helper(); k.Call("POST", "/crash", JSON{}, nil) }

// Restart stops the cluster and starts it again on the same ports. If clean is false, it crashes first.
func (k *Cluster) Restart(clean bool) {
	k.t.Helper()
	k.Call("POST", "/restart", JSON{"clean": clean}, nil)
}

// Nodes returns the id, host, port and state of each node.
func (k *Cluster) Nodes() []JSON {
	k.t.Helper()
	var told struct{ Nodes []JSON }
	k.Call("GET", "", nil, &told)
	return told.Nodes
}

// StopNode stops a node. If clean is true, other nodes become leaders of its partitions. Otherwise the node is killed,
// and metadata lists it for another 9 s of the cluster's clock.
func (k *Cluster) StopNode(node int, clean bool) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/stop", node), JSON{"clean": clean}, nil)
}

// StartNode starts a stopped node.
func (k *Cluster) StartNode(node int) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/start", node), JSON{}, nil)
}

// CutOff makes the node unreachable for this client. It adds a rule; delete the rule to undo this.
func (k *Cluster) CutOff(node int, clientID string) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/unreachable_for", node), JSON{"client_id": clientID}, nil)
}

// MoveLeader makes the node the leader of the partition, in a new leader epoch.
func (k *Cluster) MoveLeader(topic string, partition, node int) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/leader", JSON{"node": node}, nil)
}

// MoveCoordinator moves a coordinator to the node, where it reads its log again. kind is group, transaction or share.
func (k *Cluster) MoveCoordinator(kind, key string, node int) {
	k.t.Helper()
	k.Call("POST", "/coordinators/"+kind+"/"+url.PathEscape(key), JSON{"node": node}, nil)
}

// PutInRack sets the rack of a node. Leaders then send consumers in this rack to the node (KIP-392). "" removes the
// rack.
func (k *Cluster) PutInRack(node int, rack string) {
	k.t.Helper()
	body := JSON{"rack": rack}
	if rack == "" {
		body["rack"] = nil
	}
	k.Call("POST", fmt.Sprintf("/nodes/%d/rack", node), body, nil)
}

// Follow sets the records that the node has as a follower: those below the offset end, or all if end is nil.
func (k *Cluster) Follow(topic string, partition, node int, end *int64) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/follower", JSON{"node": node, "end": end}, nil)
}

// Truncate performs an unclean election: batches that do not lie entirely below the offset are lost. node becomes the
// leader; nil keeps the current leader.
func (k *Cluster) Truncate(topic string, partition int, offset int64, node *int) (facts JSON) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/truncate", JSON{"offset": offset, "node": node}, &facts)
	return
}

func partitionPath(topic string, partition int) string {
	return fmt.Sprintf("/partitions/%s/%d", url.PathEscape(topic), partition)
}

// Now returns the time of the cluster's clock.
func (k *Cluster) Now() time.Time {
	k.t.Helper()
	var told struct {
		Now int64 `json:"now_ms"`
	}
	k.Call("GET", "/clock", nil, &told)
	return time.UnixMilli(told.Now)
}

// Freeze stops the cluster's clock.
func (k *Cluster) Freeze() { k.t.Helper(); k.Call("POST", "/clock/freeze", JSON{}, nil) }

// Resume starts the cluster's clock again after Freeze.
func (k *Cluster) Resume() { k.t.Helper(); k.Call("POST", "/clock/resume", JSON{}, nil) }

// Advance moves the cluster's clock forward. It returns after everything that became due has happened.
func (k *Cluster) Advance(d time.Duration) {
	k.t.Helper()
	k.Call("POST", "/clock/advance", JSON{"ms": d.Milliseconds()}, nil)
}

// SetClock sets the cluster's clock.
func (k *Cluster) SetClock(at time.Time) {
	k.t.Helper()
	k.Call("POST", "/clock/set", JSON{"ms": at.UnixMilli()}, nil)
}

// Record writes all exchanges from now on to a file, until the cluster is deleted. odradek judge can read the file.
func (k *Cluster) Record(file string) {
	k.t.Helper()
	written, err := os.Create(file)
	if err != nil {
		k.t.Fatal(err)
	}
	response := k.send("GET", "/recording", nil)
	if response.StatusCode >= 400 {
		told, _ := io.ReadAll(response.Body)
		k.t.Fatalf("recording: %s", told)
	}
	k.recording = make(chan error, 1)
	go func() {
		_, err := io.Copy(written, response.Body)
		k.recording <- errors.Join(err, response.Body.Close(), written.Close())
	}()
}

// Lease deletes the cluster after this time unless the lease is renewed before. 0 removes the lease.
func (k *Cluster) Lease(d time.Duration) {
	k.t.Helper()
	body := JSON{"ttl_s": nil}
	if d > 0 {
		body["ttl_s"] = int(d.Seconds())
	}
	k.Call("POST", "/lease", body, nil)
}

// Delete closes all connections of the cluster and removes its files, before the end of the test.
func (k *Cluster) Delete() {
	k.t.Helper()
	k.deleted = true
	k.Call("DELETE", "", nil, nil)
	if k.recording != nil {
		if err := <-k.recording; err != nil {
			k.t.Errorf("recording: %v", err)
		}
	}
}

// Call sends any request to the control interface. If answer is not nil, it decodes the response into answer.
func (k *Cluster) Call(method, path string, body JSON, answer any) {
	k.t.Helper()
	response := k.send(method, path, body)
	defer response.Body.Close()
	told, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 400 || answer != nil && json.Unmarshal(told, answer) != nil {
		k.t.Fatalf("%s %s %v: %s", method, path, body, told)
	}
}

func (k *Cluster) send(method, path string, body JSON) *http.Response {
	k.t.Helper()
	address, err := control()
	if err != nil {
		k.t.Fatalf("odradek did not start: %v", err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		k.t.Fatal(err)
	}
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
	return response
}

var client = &http.Client{Transport: &http.Transport{}}

const start = `trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
"$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \
  --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
cat "$folder/ready"; exec >/dev/null 2>&1; cat`

var stdin io.WriteCloser // Odradek stops when this pipe is closed, so it also stops if this process is killed.
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
