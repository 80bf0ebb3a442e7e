// Bytes as they are in requests and answers: base64.

export const encoded = (bytes) => Buffer.from(bytes ?? []).toString("base64");
export const decoded = (text) => new Uint8Array(Buffer.from(text ?? "", "base64"));

// An object without what is not set.
export const given = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

export async function all(iterator, form = (each) => each) {
  const found = [];
  for await (const each of iterator) found.push(form(each));
  return found;
}

// The next so many of an iterator that goes on.
export async function some(iterator, count, form) {
  const found = [];
  while (found.length < count) {
    const { value, done } = await iterator.next();
    if (done) throw new Error(`ended after ${found.length}`);
    found.push(form(value));
  }
  return found;
}
