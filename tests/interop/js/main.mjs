// The other side of tests/interop: nats.js, driven line by line, with the requests and answers of tests/interop/go.
//
// Each line of standard input is a request in JSON, {"do": "kv.put", ...}; each line of standard output is its answer,
// {"ok": ...} or {"error": "...", "code": n}. Bytes are base64, durations seconds. What goes on in the background (a
// watch, a service) has an id, which the first request chose.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

import { keyValueVerbs } from "./keyvalue.mjs";
import { objectVerbs } from "./objects.mjs";
import { serviceVerbs } from "./services.mjs";

// How long an answer may take; it ends waits for what will never come.
const PATIENCE_MS = 60_000;

const nc = await connect({ servers: process.argv[2], name: "interop" });
const js = jetstream(nc);
const verbs = { ...keyValueVerbs(js), ...objectVerbs(js), ...serviceVerbs(nc) };

function inTime(promise, what) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${what} took too long`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function answer(line) {
  const request = JSON.parse(line);
  const verb = verbs[request.do];
  if (verb === undefined) return { error: `no such verb: ${request.do}` };
  try {
    return { ok: (await inTime(verb(request), request.do)) ?? null };
  } catch (error) {
    const code = error.apiError?.()?.err_code ?? error.api_error?.err_code ?? error.code ?? 0;
    return { error: String(error.message ?? error), code: typeof code === "number" ? code : 0 };
  }
}

const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
const described = new URL("./node_modules/@nats-io/nats-core/package.json", import.meta.url);
say({ ok: JSON.parse(readFileSync(described)).version });
for await (const line of createInterface({ input: process.stdin })) say(await answer(line));
await nc.close();
