// Key-value buckets.

import { Kvm } from "@nats-io/kv";

import { all, decoded, encoded, given, some } from "./bytes.mjs";

const NS_PER_MS = 1e6;

const entryOf = (entry) => ({
  bucket: entry.bucket,
  key: entry.key,
  value: encoded(entry.value),
  revision: entry.revision,
  operation: entry.operation,
  is_update: entry.isUpdate ?? null,
});

function optionsOf(config) {
  return given({
    history: config.history,
    ttl: config.ttl && config.ttl / NS_PER_MS,
    markerTTL: config.limit_marker_ttl && config.limit_marker_ttl / NS_PER_MS,
    max_bytes: config.max_bytes,
    maxValueSize: config.max_value_size,
    storage: config.storage ?? "file",
    compression: config.compression,
    description: config.description,
    metadata: config.metadata,
  });
}

const removal = (request) =>
  given({ previousSeq: request.revision, ttl: request.ttl && `${request.ttl}s` });

function watchOptions(request) {
  const has = (option) => request.options?.includes(option) ?? false;
  return given({
    include: has("history") ? "history" : has("updates_only") ? "updates" : undefined,
    ignoreDeletes: has("ignore_deletes") || undefined,
    headers_only: has("meta_only") || undefined,
    key: request.keys?.length ? request.keys : undefined,
    resumeFromRevision: request.revision,
  });
}

export function keyValueVerbs(js) {
  const kvm = new Kvm(js);
  const watches = new Map();
  const inBucket = (act) => async (request) => act(await kvm.open(request.bucket), request);
  return {
    "kv.create_bucket": async ({ config }) => {
      await kvm.create(config.bucket, optionsOf(config));
    },
    "kv.delete_bucket": inBucket(async (kv) => {
      await kv.destroy();
    }),
    "kv.names": () => all(kvm.list(), (status) => status.bucket),
    "kv.put": inBucket((kv, { key, value }) => kv.put(key, decoded(value))),
    "kv.create": inBucket((kv, { key, value, ttl }) =>
      kv.create(key, decoded(value), ttl ? `${ttl}s` : undefined)),
    "kv.update": inBucket((kv, { key, value, revision }) => kv.update(key, decoded(value), revision)),
    "kv.delete": inBucket((kv, request) => kv.delete(request.key, removal(request))),
    "kv.purge": inBucket((kv, request) => kv.purge(request.key, removal(request))),
    "kv.get": inBucket(async (kv, { key, revision }) => {
      const entry = await kv.get(key, revision ? { revision } : undefined);
      return entry?.operation === "PUT" ? entryOf(entry) : null;
    }),
    "kv.keys": inBucket(async (kv, { keys }) => {
      return (await all(await kv.keys(keys?.length ? keys : undefined))).sort();
    }),
    "kv.history": inBucket(async (kv, { key }) => all(await kv.history({ key }), entryOf)),
    "kv.status": inBucket(async (kv) => {
      const status = await kv.status();
      return {
        bucket: status.bucket,
        values: status.values,
        bytes: status.size,
        history: status.history,
        ttl: status.ttl / 1000,
        limit_marker_ttl: (status.markerTTL ?? 0) / 1000,
        description: status.description,
        compressed: status.compression,
        max_value_size: status.maxValueSize,
        max_bytes: status.max_bytes,
        storage: status.storage,
        metadata: status.metadata,
      };
    }),
    "kv.watch": inBucket(async (kv, request) => {
      const watch = await kv.watch(watchOptions(request));
      watches.set(request.id, { watch, entries: watch[Symbol.asyncIterator]() });
    }),
    "kv.next": async ({ id, count }) => some(watches.get(id).entries, count, entryOf),
    "kv.stop": async ({ id }) => {
      watches.get(id).watch.stop();
      watches.delete(id);
    },
  };
}
