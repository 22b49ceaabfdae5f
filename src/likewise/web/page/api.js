// Requests to this page's own server. A token, where one is needed, goes into a header and stays in this tab.
import { byId } from "/dom.js";

let token = sessionStorage.getItem("likewise-token");

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) {
    await askForToken();
    return send(path, options);
  }
  if (!answer.ok) {
    const { detail } = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
    throw new Error(detail);
  }
  return answer;
}

let asking = null;
function askForToken() {
  asking ??= new Promise(resolve => {
    const dialog = byId("token");
    dialog.addEventListener("close", () => {
      token = byId("token-value").value;
      sessionStorage.setItem("likewise-token", token);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export async function get(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return (await send(`/api/${path}${query ? `?${query}` : ""}`, { signal })).json();
}

const json = (path, body, signal) =>
  send(`/api/${path}`, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });

export const post = async (path, body, signal = undefined) => (await json(path, body, signal)).json();
export const picture = async (path, body) => createImageBitmap(await (await json(path, body)).blob());

const KINDS = { npy: "application/x-npy", csv: "text/csv", tsv: "text/csv", txt: "text/csv",
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", webp: "image/webp" };

export async function upload(file) {
  const kind = KINDS[file.name.split(".").pop().toLowerCase()];
  if (!kind) throw new Error(`${file.name}: expected a .csv or .npy file, or a picture`);
  return (await send("/api/upload", { method: "POST", body: file, headers: { "Content-Type": kind } })).json();
}

// One request of a kind at a time: a newer one cancels the older, and the server stops working on it.
export function latest() {
  let current = null;
  return () => {
    current?.abort();
    current = new AbortController();
    return current.signal;
  };
}
export const cancelled = error => error.name === "AbortError";
