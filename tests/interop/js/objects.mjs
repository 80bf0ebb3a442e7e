// Object stores.

import { Objm } from "@nats-io/obj";
import { headers } from "@nats-io/transport-node";

import { all, decoded, encoded, given, some } from "./bytes.mjs";

const CHUNK = 100_000;

function stream(bytes) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, (at += CHUNK)));
    },
  });
}

function headersOf(found) {
  if (typeof found?.keys !== "function") return found; // a list has them as they are stored
  const named = {};
  for (const name of found.keys()) named[name] = found.values(name);
  return named;
}

function metaOf(request, name) {
  const meta = given({
    name,
    description: request.text,
    metadata: request.metadata,
    options: request.chunk_size ? { max_chunk_size: request.chunk_size } : undefined,
  });
  if (request.headers) {
    meta.headers = headers();
    for (const [name, values] of Object.entries(request.headers)) {
      for (const value of values) meta.headers.append(name, value);
    }
  }
  return meta;
}

// In the form of nats.go, without what is empty and without the time.
function infoOf(info) {
  const filled = (value) => (value && Object.keys(value).length ? value : undefined);
  return given({
    name: info.name,
    description: info.description || undefined,
    headers: filled(headersOf(info.headers)),
    metadata: filled(info.metadata),
    options: filled(info.options),
    bucket: info.bucket,
    nuid: info.nuid ?? "",
    size: info.size ?? 0,
    chunks: info.chunks ?? 0,
    digest: info.digest || undefined,
    deleted: info.deleted || undefined,
  });
}

export function objectVerbs(js) {
  const objm = new Objm(js);
  const watches = new Map();
  const inStore = (act) => async (request) => act(await objm.open(request.bucket), request);
  return {
    "obj.create_store": async ({ config }) => {
      const { bucket, description, metadata, storage, max_age: ttl } = config;
      await objm.create(bucket, given({ description, metadata, storage, ttl }));
    },
    "obj.delete_store": inStore(async (store) => {
      await store.destroy();
    }),
    "obj.names": () => all(objm.list(), (status) => status.bucket),
    "obj.put": inStore(async (store, request) =>
      infoOf(await store.put(metaOf(request, request.name), stream(decoded(request.value))))),
    "obj.get": inStore(async (store, { name }) => {
      const found = await store.getBlob(name);
      if (found === null) throw new Error("object not found");
      return encoded(found);
    }),
    "obj.info": inStore(async (store, { name, options }) => {
      const info = await store.info(name);
      if (info === null || (info.deleted && !options?.includes("show_deleted"))) {
        throw new Error("object not found");
      }
      return infoOf(info);
    }),
    "obj.update_meta": inStore(async (store, request) => {
      await store.update(request.name, metaOf(request, request.target));
    }),
    "obj.delete": inStore(async (store, { name }) => {
      await store.delete(name);
    }),
    "obj.link": inStore(async (store, { name, target }) =>
      infoOf(await store.link(name, await store.info(target)))),
    "obj.link_bucket": inStore(async (store, { name, target }) =>
      infoOf(await store.linkStore(name, await objm.open(target)))),
    "obj.seal": inStore(async (store) => {
      await store.seal();
    }),
    "obj.list": inStore(async (store) => (await store.list()).map(infoOf)),
    "obj.status": inStore(async (store) => {
      const status = await store.status();
      return { sealed: status.sealed, size: status.size, description: status.description };
    }),
    "obj.watch": inStore(async (store, { id, options }) => {
      const watch = await store.watch(given({
        includeHistory: options?.includes("history"),
        ignoreDeletes: options?.includes("ignore_deletes"),
      }));
      watches.set(id, { watch, infos: watch[Symbol.asyncIterator]() });
    }),
    "obj.next": async ({ id, count }) =>
      some(watches.get(id).infos, count, (info) => (info === null ? "end" : infoOf(info))),
    "obj.stop": async ({ id }) => {
      watches.get(id).watch.stop();
      watches.delete(id);
    },
  };
}
