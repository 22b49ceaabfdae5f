// The state that the panels share: the collection, the metric, and the picked items. Panels listen to its changes.
const listeners = new Map();

export const state = {
  about: null, // the collection
  metric: null,
  selected: [], // positions of items
  query: null, // a reference: {item}, {upload} or {values}, with start and end for a stretch
  pair: [null, null], // references x and y
  verdicts: new Map(), // by metric
};

export function change(values) {
  Object.assign(state, values);
  for (const name of Object.keys(values)) for (const listener of listeners.get(name) ?? []) listener();
}

export function listen(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(listener);
}

export const labelOf = code => code === null || code === undefined ? null : state.about.classes[code];
export const colorCode = label => state.about.classes.indexOf(label);
