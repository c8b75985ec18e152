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
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// JSON is a rule, a condition, options or an answer: see docs/testing.md of Odradek.
type JSON = map[string]any

// Listener is one way into a cluster.
type Listener struct {
	Name, Protocol string
	Bootstrap      []string
	Mechanisms     []string
}

// Cluster is one broker, or several nodes. Its methods fail the test if the control interface refuses them.
type Cluster struct {
	ID                 string
	Bootstrap          []string            // of the first listener
	Listeners          map[string]Listener // by name, in upper case
	CACertificate      string              // PEM that clients trust, where a listener has TLS
	ClientCertificates map[string]string   // PEM of key and certificate, by user
	t                  testing.TB
	path               string
	deleted            bool
	recording          chan error
}

// New makes a cluster, and deletes it at the end of the test, after all that the test registers with Cleanup later on.
// Options are those of POST /clusters, such as odradek.JSON{"nodes": 3}. A rule that has done nothing fails the test; a
// failed test logs its last exchanges.
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
		CA      string            `json:"ca_certificate"`
		Clients map[string]string `json:"client_certificates"`
	}
	k.Call("POST", "", body, &told)
	k.ID, k.path, k.Bootstrap = told.ID, "/clusters/"+told.ID, strings.Split(told.Bootstrap, ",")
	k.CACertificate, k.ClientCertificates = told.CA, told.Clients
	for _, each := range told.Listeners {
		addresses := strings.Split(each.Bootstrap, ",")
		k.Listeners[each.Name] = Listener{each.Name, each.Protocol, addresses, each.Mechanisms}
	}
	t.Cleanup(func() {
		if k.deleted {
			return
		}
		defer client.CloseIdleConnections() // their goroutines would count as leaks
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

// Fork makes a copy of the cluster, which the test deletes too.
func (k *Cluster) Fork() *Cluster { k.t.Helper(); return New(k.t, JSON{"fork": k.ID}) }

// Fault adds a rule. If it has done nothing, the test fails.
func (k *Cluster) Fault(rule JSON) { k.t.Helper(); k.Call("POST", "/faults", rule, nil) }

// Faults returns the rules, with "matched", "hits", and "unmade": how many answers could not be edited.
func (k *Cluster) Faults() (rules []JSON) {
	k.t.Helper()
	k.Call("GET", "/faults", nil, &rules)
	return
}

// CheckFaults fails the test if nothing has matched a rule, or no answer had what it edits. The end of the test calls it.
func (k *Cluster) CheckFaults() {
	k.t.Helper()
	for _, rule := range k.unused() {
		k.t.Fatalf("the rule has done nothing: %v", rule)
	}
}

// IsUnused tells of a rule, as Faults returns it, whether nothing has matched it, or no answer had what it edits.
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

// Holds returns how many wait at each hold, by its name.
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

// Release lets all that wait at this hold continue, and returns their number.
func (k *Cluster) Release(hold string) int {
	k.t.Helper()
	var told struct{ Released int }
	k.Call("POST", "/holds/"+url.PathEscape(hold)+"/release", JSON{}, &told)
	return told.Released
}

// Wait waits up to ten seconds for a condition, and returns its facts.
func (k *Cluster) Wait(condition JSON) (facts JSON) {
	k.t.Helper()
	k.Call("POST", "/wait", condition, &facts)
	return
}

// Requests returns the last exchanges, decoded, the oldest first. since, api, client_id and limit choose; nil: all.
func (k *Cluster) Requests(where url.Values) (exchanges []JSON) {
	k.t.Helper()
	k.Call("GET", "/requests?"+where.Encode(), nil, &exchanges)
	return
}

// Partitions returns leader, epoch and offsets of each partition.
func (k *Cluster) Partitions() []JSON { k.t.Helper(); return k.rows("partitions") }

// Transactions returns each transactional id with its state.
func (k *Cluster) Transactions() []JSON { k.t.Helper(); return k.rows("transactions") }

// Groups returns groups of every type with their state and members.
func (k *Cluster) Groups() []JSON { k.t.Helper(); return k.rows("groups") }

// SharePartitions returns share partitions in memory with their records in flight.
func (k *Cluster) SharePartitions() []JSON { k.t.Helper(); return k.rows("share_partitions") }

// Producers returns the state of each producer id in each partition.
func (k *Cluster) Producers() []JSON { k.t.Helper(); return k.rows("producers") }

// Sessions returns fetch sessions and share sessions.
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

// Preset brings a rare state about and returns its facts.
func (k *Cluster) Preset(name string, parameters JSON) (facts JSON) {
	k.t.Helper()
	k.Call("POST", "/presets/"+url.PathEscape(name), parameters, &facts)
	return
}

// Presets returns the rare states that there are, with their parameters.
func (k *Cluster) Presets() (told []JSON) {
	k.t.Helper()
	k.Call("GET", "/presets", nil, &told)
	return
}

// Odd gives rare but lawful answers from now on; seed 0 ends it. percent, or nil: how often some of them come.
func (k *Cluster) Odd(seed int, percent map[string]int) (told JSON) {
	k.t.Helper()
	body := JSON{"seed": seed}
	if percent != nil {
		body["percent"] = percent
	}
	k.Call("POST", "/odd", body, &told)
	return
}

// Oddities returns the seed, and how often each rare answer was given.
func (k *Cluster) Oddities() (told JSON) { k.t.Helper(); k.Call("GET", "/odd", nil, &told); return }

// Checkpoint copies log and clock.
func (k *Cluster) Checkpoint(name string) {
	k.t.Helper()
	k.Call("POST", "/checkpoint", JSON{"name": name}, nil)
}

// Rewind goes back to a checkpoint. Connections are cut; the ports stay.
func (k *Cluster) Rewind(name string) {
	k.t.Helper()
	k.Call("POST", "/rewind", JSON{"name": name}, nil)
}

// Crash leaves on the disk what kill -9 leaves.
func (k *Cluster) Crash() { k.t.Helper(); k.Call("POST", "/crash", JSON{}, nil) }

// Restart starts it again on the same ports. clean: it stops in good order before.
func (k *Cluster) Restart(clean bool) {
	k.t.Helper()
	k.Call("POST", "/restart", JSON{"clean": clean}, nil)
}

// Nodes returns id, host, port and state of each node.
func (k *Cluster) Nodes() []JSON {
	k.t.Helper()
	var told struct{ Nodes []JSON }
	k.Call("GET", "", nil, &told)
	return told.Nodes
}

// StopNode stops a node. clean: others lead from now on; else metadata takes it for alive for 9 s of the cluster's time.
func (k *Cluster) StopNode(node int, clean bool) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/stop", node), JSON{"clean": clean}, nil)
}

// StartNode starts a node that was stopped.
func (k *Cluster) StartNode(node int) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/start", node), JSON{}, nil)
}

// CutOff makes the node unreachable for this client until the rule is deleted.
func (k *Cluster) CutOff(node int, clientID string) {
	k.t.Helper()
	k.Call("POST", fmt.Sprintf("/nodes/%d/unreachable_for", node), JSON{"client_id": clientID}, nil)
}

// MoveLeader has the node lead the partition in a new leader epoch.
func (k *Cluster) MoveLeader(topic string, partition, node int) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/leader", JSON{"node": node}, nil)
}

// MoveCoordinator moves a coordinator, which reads its log anew. kind: group, transaction or share.
func (k *Cluster) MoveCoordinator(kind, key string, node int) {
	k.t.Helper()
	k.Call("POST", "/coordinators/"+kind+"/"+url.PathEscape(key), JSON{"node": node}, nil)
}

// PutInRack has leaders tell consumers of this rack to read from this node (KIP-392); "": the node is in no rack.
func (k *Cluster) PutInRack(node int, rack string) {
	k.t.Helper()
	body := JSON{"rack": rack}
	if rack == "" {
		body["rack"] = nil
	}
	k.Call("POST", fmt.Sprintf("/nodes/%d/rack", node), body, nil)
}

// Follow gives the node, a follower, the log below the offset end; nil: all of it.
func (k *Cluster) Follow(topic string, partition, node int, end *int64) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/follower", JSON{"node": node, "end": end}, nil)
}

// Truncate is an unclean election: what is not wholly below the offset is lost. node: the next leader; nil: the same.
func (k *Cluster) Truncate(topic string, partition int, offset int64, node *int) (facts JSON) {
	k.t.Helper()
	k.Call("POST", partitionPath(topic, partition)+"/truncate", JSON{"offset": offset, "node": node}, &facts)
	return
}

func partitionPath(topic string, partition int) string {
	return fmt.Sprintf("/partitions/%s/%d", url.PathEscape(topic), partition)
}

// Now returns the cluster's time.
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

// Resume lets the clock run again.
func (k *Cluster) Resume() { k.t.Helper(); k.Call("POST", "/clock/resume", JSON{}, nil) }

// Advance moves the cluster's clock and returns when all that became due has happened.
func (k *Cluster) Advance(d time.Duration) {
	k.t.Helper()
	k.Call("POST", "/clock/advance", JSON{"ms": d.Milliseconds()}, nil)
}

// SetClock sets the cluster's clock.
func (k *Cluster) SetClock(at time.Time) {
	k.t.Helper()
	k.Call("POST", "/clock/set", JSON{"ms": at.UnixMilli()}, nil)
}

// Record writes what clients send and get from now on to a file, for odradek judge, until the cluster is deleted.
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

// Lease has it deleted after this time from now on, unless it is leased again; 0: it stays.
func (k *Cluster) Lease(d time.Duration) {
	k.t.Helper()
	body := JSON{"ttl_s": nil}
	if d > 0 {
		body["ttl_s"] = int(d.Seconds())
	}
	k.Call("POST", "/lease", body, nil)
}

// Delete cuts its connections and removes its files, before the test ends.
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

// Call makes any other call of the control interface, and decodes the answer into answer unless that is nil.
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
