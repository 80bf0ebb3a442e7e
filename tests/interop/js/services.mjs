// Services: one that answers, and requests to those of others, as tools send them.

import { Svcm } from "@nats-io/services";
import { headers } from "@nats-io/transport-node";

import { all, decoded, encoded, given } from "./bytes.mjs";

function named(found) {
  const values = {};
  for (const name of found?.keys() ?? []) values[name] = found.values(name);
  return values;
}

// The service of tests/interop/go/services.go.
async function addService(svc, request) {
  const service = await svc.add(given({
    name: request.name,
    version: "1.2.3",
    description: request.text,
    metadata: request.metadata,
    queue: request.key,
    statsHandler: async (endpoint) => ({ endpoint: endpoint.name }),
  }));
  const echo = (_, message) => {
    const told = headers();
    told.set("Subject", message.subject);
    told.set("From", service.info().id);
    for (const [name, values] of Object.entries(named(message.headers))) {
      for (const value of values) told.append(name, value);
    }
    message.respond(message.data, { headers: told });
  };
  const fail = (_, message) =>
    message.respondError(409, `not now: ${message.string()}`, new TextEncoder().encode("details"));
  const asJson = (_, message) => message.respond(JSON.stringify({ got: message.string() }));
  const group = service.addGroup(request.subject);
  group.addEndpoint("echo", { subject: "echo.*", metadata: request.metadata, handler: echo });
  group.addEndpoint("fail", { queue: "of-its-own", handler: fail });
  group.addGroup("deep", "deeper").addEndpoint("json", { handler: asJson });
  return service;
}

export function serviceVerbs(nc) {
  const svc = new Svcm(nc);
  const services = new Map();
  return {
    "svc.add": async (request) => {
      const service = await addService(svc, request);
      services.set(request.id, service);
      await nc.flush();
      return service.info();
    },
    "svc.stop": async ({ id }) => {
      await services.get(id).stop();
      services.delete(id);
    },
    "svc.reset": async ({ id }) => services.get(id).reset(),
    "svc.ask": async ({ text, name, key }) => {
      const ask = svc.client()[text.toLowerCase()];
      return all(await ask.call(svc.client(), name || undefined, key || undefined));
    },
    "svc.request": async (request) => {
      const told = headers();
      for (const [name, values] of Object.entries(request.headers ?? {})) {
        for (const value of values) told.append(name, value);
      }
      const answer = await nc.request(request.subject, decoded(request.value), {
        timeout: 60_000,
        headers: told,
      });
      return { data: encoded(answer.data), headers: named(answer.headers) };
    },
  };
}
