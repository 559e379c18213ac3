// What an application's page does with the service at `?api=`: each entry of the report is one step's outcome.

const api = new URLSearchParams(location.search).get("api");

async function answer(path, options = {}) {
  const response = await fetch(api + path, options);
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text ? JSON.parse(text) : null };
}

function json(document, headers = {}) {
  return { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(document) };
}

const numbers = (...data) => ({
  model: "identity",
  inputs: [{ name: "input", datatype: "FP32", shape: [data.length], data }],
});

const steps = {
  // The key is not needed; the header makes the browser ask first.
  async submitted() {
    const options = json(numbers(1, 2, 3), { Authorization: "Bearer x", "Idempotency-Key": crypto.randomUUID() });
    const first = await answer("/jobs", options);
    const again = await answer("/jobs", options);
    const done = await answer(`/jobs/${first.body.id}?wait=30`);
    return {
      status: first.status,
      location: first.headers.get("Location") === `/jobs/${first.body.id}`,
      hasRequestId: Boolean(first.headers.get("X-Request-Id")),
      replayed: again.headers.get("Idempotent-Replayed"),
      end: done.body.status,
      output: done.body.output.output.data,
    };
  },

  async photo() {
    const form = new FormData();
    form.append("model", "efficientnet_lite0");
    form.append("file", await (await fetch("/coffee.jpg")).blob(), "coffee.jpg");
    const job = await answer("/jobs", { method: "POST", headers: { Prefer: "wait=60" }, body: form });
    return job.body.output.probabilities[0].label;
  },

  async bytes() {
    const blob = await (await fetch("/coffee.jpg")).blob();
    const headers = { "Content-Type": "image/jpeg", Prefer: "wait=60" };
    const job = await answer("/jobs?model=efficientnet_lite0", { method: "POST", headers, body: await blob.arrayBuffer() });
    return job.body.output.probabilities.length;
  },

  // After the end the browser connects again by itself, and is told to stay away.
  async events() {
    const { body } = await answer("/jobs", json(numbers(4)));
    const source = new EventSource(`${api}/jobs/${body.id}/events`);
    const seen = [];
    for (const type of ["snapshot", "change", "done"]) {
      source.addEventListener(type, (event) => seen.push([type, JSON.parse(event.data).status]));
    }
    await new Promise((resolve) => {
      source.onerror = () => source.readyState === EventSource.CLOSED && resolve();
    });
    return [seen[0][0], ...seen.at(-1)];
  },

  async result() {
    const { body } = await answer("/jobs", json(numbers(5, 6), { Prefer: "wait=30" }));
    const first = await fetch(`${api}/jobs/${body.id}/result`, { headers: { Accept: "application/x-npy" } });
    const etag = first.headers.get("ETag");
    const again = await fetch(`${api}/jobs/${body.id}/result`, {
      headers: { Accept: "application/x-npy", "If-None-Match": etag },
      cache: "no-store",
    });
    const floats = new Float32Array((await first.arrayBuffer()).slice(-8));
    return { floats: [...floats], again: again.status };
  },

  async canceled() {
    const { body } = await answer("/jobs", json({ ...numbers(7), run_at: new Date(Date.now() + 3600e3).toISOString() }));
    await answer(`/jobs/${body.id}/cancel`, { method: "POST" });
    const deleted = await answer(`/jobs/${body.id}`, { method: "DELETE" });
    return [deleted.status, (await answer(`/jobs/${body.id}`)).status];
  },

  async facade() {
    const { body } = await answer("/v2/models/identity/infer", json({ inputs: [{ ...numbers(8, 9).inputs[0], shape: [1, 2] }] }));
    return body.outputs[0].data;
  },

  async refused() {
    const { status, headers, body } = await answer("/jobs", json({ model: "nobody" }));
    return { status, type: headers.get("Content-Type"), code: body.code };
  },
};

const report = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    report[name] = await step();
  } catch (error) {
    report[name] = String(error);
  }
}
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
