// The other side of tests/interop: nats.go, driven line by line.
//
// Each line of standard input is a request in JSON, {"do": "kv.put", ...}; each line of standard output is its
// answer, {"ok": ...} or {"error": "...", "code": n}. Bytes are base64, times are RFC 3339, durations seconds. What
// goes on in the background (a watch, a service) has an id, which the first request chose.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Patience is how long an answer may take; it ends waits for what will never come.
const patience = 60 * time.Second

// Request has the fields of all verbs.
type Request struct {
	Do        string            `json:"do"`
	ID        string            `json:"id"`
	Bucket    string            `json:"bucket"`
	Key       string            `json:"key"`
	Keys      []string          `json:"keys"`
	Name      string            `json:"name"`
	Value     []byte            `json:"value"`
	Revision  uint64            `json:"revision"`
	TTL       float64           `json:"ttl"`
	Count     int               `json:"count"`
	Options   []string          `json:"options"`
	Subject   string            `json:"subject"`
	Headers   nats.Header       `json:"headers"`
	Metadata  map[string]string `json:"metadata"`
	Text      string            `json:"text"`
	ChunkSize uint32            `json:"chunk_size"`
	Target    string            `json:"target"`
	Config    json.RawMessage   `json:"config"`
}

func (r *Request) has(option string) bool {
	for _, each := range r.Options {
		if each == option {
			return true
		}
	}
	return false
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// Probe holds the connection and what goes on in the background.
type Probe struct {
	nc            *nats.Conn
	js            jetstream.JetStream
	keyWatches    map[string]jetstream.KeyWatcher
	objectWatches map[string]jetstream.ObjectWatcher
	services      map[string]*served
}

type verb func(*Probe, context.Context, *Request) (any, error)

var verbs = map[string]verb{}

func main() {
	nc, err := nats.Connect(os.Args[1], nats.Name("interop"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	probe := &Probe{
		nc:            nc,
		js:            js,
		keyWatches:    map[string]jetstream.KeyWatcher{},
		objectWatches: map[string]jetstream.ObjectWatcher{},
		services:      map[string]*served{},
	}
	answers := json.NewEncoder(os.Stdout)
	answers.Encode(map[string]any{"ok": nats.Version})
	requests := bufio.NewReader(os.Stdin)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		answers.Encode(probe.answer(line))
	}
}

func (p *Probe) answer(line []byte) map[string]any {
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		return map[string]any{"error": err.Error()}
	}
	do, there := verbs[request.Do]
	if !there {
		return map[string]any{"error": "no such verb: " + request.Do}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := do(p, ctx, &request)
	if err != nil {
		code := 0
		var refused jetstream.JetStreamError
		if errors.As(err, &refused) && refused.APIError() != nil {
			code = int(refused.APIError().ErrorCode)
		}
		return map[string]any{"error": err.Error(), "code": code}
	}
	return map[string]any{"ok": found}
}
