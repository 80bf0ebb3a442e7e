// Object stores.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func init() {
	verbs["obj.create_store"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		var config jetstream.ObjectStoreConfig
		if err := json.Unmarshal(r.Config, &config); err != nil {
			return nil, err
		}
		_, err := p.js.CreateObjectStore(ctx, config)
		return nil, err
	}
	verbs["obj.delete_store"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		return nil, p.js.DeleteObjectStore(ctx, r.Bucket)
	}
	verbs["obj.names"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		lister := p.js.ObjectStoreNames(ctx)
		names := []string{}
		for name := range lister.Name() {
			names = append(names, name)
		}
		return names, lister.Error()
	}
	verbs["obj.put"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		meta := metaOf(r)
		if r.ChunkSize > 0 {
			meta.Opts = &jetstream.ObjectMetaOptions{ChunkSize: r.ChunkSize}
		}
		return store.Put(ctx, meta, bytes.NewReader(r.Value))
	})
	verbs["obj.get"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		return store.GetBytes(ctx, r.Name)
	})
	verbs["obj.info"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		if r.has("show_deleted") {
			return store.GetInfo(ctx, r.Name, jetstream.GetObjectInfoShowDeleted())
		}
		return store.GetInfo(ctx, r.Name)
	})
	verbs["obj.update_meta"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		meta := metaOf(r)
		meta.Name = r.Target
		return nil, store.UpdateMeta(ctx, r.Name, meta)
	})
	verbs["obj.delete"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		return nil, store.Delete(ctx, r.Name)
	})
	verbs["obj.link"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		info, err := store.GetInfo(ctx, r.Target)
		if err != nil {
			return nil, err
		}
		return store.AddLink(ctx, r.Name, info)
	})
	verbs["obj.link_bucket"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		store, err := p.js.ObjectStore(ctx, r.Bucket)
		if err != nil {
			return nil, err
		}
		other, err := p.js.ObjectStore(ctx, r.Target)
		if err != nil {
			return nil, err
		}
		return store.AddBucketLink(ctx, r.Name, other)
	}
	verbs["obj.seal"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		return nil, store.Seal(ctx)
	})
	verbs["obj.list"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		options := []jetstream.ListObjectsOpt{}
		if r.has("show_deleted") {
			options = append(options, jetstream.ListObjectsShowDeleted())
		}
		found, err := store.List(ctx, options...)
		if errors.Is(err, jetstream.ErrNoObjectsFound) {
			return []any{}, nil
		}
		return found, err
	})
	verbs["obj.status"] = inStore(func(ctx context.Context, store jetstream.ObjectStore, r *Request) (any, error) {
		status, err := store.Status(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"bucket": status.Bucket(), "description": status.Description(), "ttl": status.TTL().Seconds(),
			"storage": status.Storage().String(), "sealed": status.Sealed(), "size": status.Size(),
			"metadata": status.Metadata(), "compressed": status.IsCompressed(),
		}, nil
	})
	verbs["obj.watch"] = watchObjects
	verbs["obj.next"] = nextObject
	verbs["obj.stop"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		err := p.objectWatches[r.ID].Stop()
		delete(p.objectWatches, r.ID)
		return nil, err
	}
}

func inStore(do func(context.Context, jetstream.ObjectStore, *Request) (any, error)) verb {
	return func(p *Probe, ctx context.Context, r *Request) (any, error) {
		store, err := p.js.ObjectStore(ctx, r.Bucket)
		if err != nil {
			return nil, err
		}
		return do(ctx, store, r)
	}
}

func metaOf(r *Request) jetstream.ObjectMeta {
	return jetstream.ObjectMeta{Name: r.Name, Description: r.Text, Headers: r.Headers, Metadata: r.Metadata}
}

func watchObjects(p *Probe, ctx context.Context, r *Request) (any, error) {
	store, err := p.js.ObjectStore(ctx, r.Bucket)
	if err != nil {
		return nil, err
	}
	options := []jetstream.WatchOpt{}
	for name, option := range map[string]jetstream.WatchOpt{
		"history": jetstream.IncludeHistory(), "updates_only": jetstream.UpdatesOnly(),
		"ignore_deletes": jetstream.IgnoreDeletes(),
	} {
		if r.has(name) {
			options = append(options, option)
		}
	}
	watch, err := store.Watch(context.Background(), options...)
	if err != nil {
		return nil, err
	}
	p.objectWatches[r.ID] = watch
	return nil, nil
}

// The next objects of a watch: "end" stands for the end of those that were there.
func nextObject(p *Probe, ctx context.Context, r *Request) (any, error) {
	found := []any{}
	for len(found) < r.Count {
		select {
		case info, open := <-p.objectWatches[r.ID].Updates():
			switch {
			case !open:
				return nil, fmt.Errorf("the watch ended after %d objects", len(found))
			case info == nil:
				found = append(found, "end")
			default:
				found = append(found, info)
			}
		case <-time.After(patience):
			return nil, fmt.Errorf("only %d objects came", len(found))
		}
	}
	return found, nil
}
