// Key-value buckets.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func init() {
	verbs["kv.create_bucket"] = createBucket
	verbs["kv.delete_bucket"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		return nil, p.js.DeleteKeyValue(ctx, r.Bucket)
	}
	verbs["kv.names"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		lister := p.js.KeyValueStoreNames(ctx)
		names := []string{}
		for name := range lister.Name() {
			names = append(names, name)
		}
		return names, lister.Error()
	}
	verbs["kv.put"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		return kv.Put(ctx, r.Key, r.Value)
	})
	verbs["kv.create"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		if r.TTL > 0 {
			return kv.Create(ctx, r.Key, r.Value, jetstream.KeyTTL(seconds(r.TTL)))
		}
		return kv.Create(ctx, r.Key, r.Value)
	})
	verbs["kv.update"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		return kv.Update(ctx, r.Key, r.Value, r.Revision)
	})
	verbs["kv.delete"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		return nil, kv.Delete(ctx, r.Key, removal(r)...)
	})
	verbs["kv.purge"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		return nil, kv.Purge(ctx, r.Key, removal(r)...)
	})
	verbs["kv.get"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		var entry jetstream.KeyValueEntry
		var err error
		if r.Revision > 0 {
			entry, err = kv.GetRevision(ctx, r.Key, r.Revision)
		} else {
			entry, err = kv.Get(ctx, r.Key)
		}
		if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return entryOf(entry), nil
	})
	verbs["kv.keys"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		lister, err := kv.ListKeysFiltered(ctx, r.Keys...)
		if err != nil {
			return nil, err
		}
		keys := []string{}
		for key := range lister.Keys() {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		return keys, nil
	})
	verbs["kv.history"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		found, err := kv.History(ctx, r.Key)
		if err != nil {
			return nil, err
		}
		entries := []any{}
		for _, each := range found {
			entries = append(entries, entryOf(each))
		}
		return entries, nil
	})
	verbs["kv.purge_deletes"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		return nil, kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1))
	})
	verbs["kv.status"] = inBucket(func(ctx context.Context, kv jetstream.KeyValue, r *Request) (any, error) {
		status, err := kv.Status(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"bucket": status.Bucket(), "values": status.Values(), "bytes": status.Bytes(),
			"history": status.History(), "ttl": status.TTL().Seconds(),
			"limit_marker_ttl": status.LimitMarkerTTL().Seconds(), "compressed": status.IsCompressed(),
			"metadata": status.Metadata(), "config": status.Config(),
		}, nil
	})
	verbs["kv.watch"] = watchKeys
	verbs["kv.next"] = nextKey
	verbs["kv.stop"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		err := p.keyWatches[r.ID].Stop()
		delete(p.keyWatches, r.ID)
		return nil, err
	}
}

func createBucket(p *Probe, ctx context.Context, r *Request) (any, error) {
	var config jetstream.KeyValueConfig
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return nil, err
	}
	if r.has("or_update") {
		_, err := p.js.CreateOrUpdateKeyValue(ctx, config)
		return nil, err
	}
	_, err := p.js.CreateKeyValue(ctx, config)
	return nil, err
}

func inBucket(do func(context.Context, jetstream.KeyValue, *Request) (any, error)) verb {
	return func(p *Probe, ctx context.Context, r *Request) (any, error) {
		kv, err := p.js.KeyValue(ctx, r.Bucket)
		if err != nil {
			return nil, err
		}
		return do(ctx, kv, r)
	}
}

func removal(r *Request) []jetstream.KVDeleteOpt {
	options := []jetstream.KVDeleteOpt{}
	if r.Revision > 0 {
		options = append(options, jetstream.LastRevision(r.Revision))
	}
	if r.TTL > 0 {
		options = append(options, jetstream.PurgeTTL(seconds(r.TTL)))
	}
	return options
}

func entryOf(entry jetstream.KeyValueEntry) map[string]any {
	names := map[jetstream.KeyValueOp]string{
		jetstream.KeyValuePut: "PUT", jetstream.KeyValueDelete: "DEL", jetstream.KeyValuePurge: "PURGE",
	}
	return map[string]any{
		"bucket": entry.Bucket(), "key": entry.Key(), "value": entry.Value(), "revision": entry.Revision(),
		"operation": names[entry.Operation()], "delta": entry.Delta(), "created_ns": entry.Created().UnixNano(),
	}
}

func watchKeys(p *Probe, ctx context.Context, r *Request) (any, error) {
	kv, err := p.js.KeyValue(ctx, r.Bucket)
	if err != nil {
		return nil, err
	}
	options := []jetstream.WatchOpt{}
	for name, option := range map[string]jetstream.WatchOpt{
		"history": jetstream.IncludeHistory(), "updates_only": jetstream.UpdatesOnly(),
		"ignore_deletes": jetstream.IgnoreDeletes(), "meta_only": jetstream.MetaOnly(),
	} {
		if r.has(name) {
			options = append(options, option)
		}
	}
	if r.Revision > 0 {
		options = append(options, jetstream.ResumeFromRevision(r.Revision))
	}
	watch, err := kv.WatchFiltered(context.Background(), r.Keys, options...)
	if err != nil {
		return nil, err
	}
	p.keyWatches[r.ID] = watch
	return nil, nil
}

// The next entries of a watch: "end" stands for the end of the initial values.
func nextKey(p *Probe, ctx context.Context, r *Request) (any, error) {
	found := []any{}
	for len(found) < r.Count {
		select {
		case entry, open := <-p.keyWatches[r.ID].Updates():
			switch {
			case !open:
				return nil, fmt.Errorf("the watch ended after %d entries", len(found))
			case entry == nil:
				found = append(found, "end")
			default:
				found = append(found, entryOf(entry))
			}
		case <-time.After(patience):
			return nil, fmt.Errorf("only %d entries came", len(found))
		}
	}
	return found, nil
}
