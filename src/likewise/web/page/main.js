// The page: tabs, the metric, light and dark. Each panel is built when it is opened.
import { get } from "/api.js";
import { byId, count, h, problem, say } from "/dom.js";
import { state, change, listen } from "/state.js";
import { look } from "/look.js";
import { ask } from "/ask.js";
import { understand } from "/understand.js";
import { judge } from "/judge.js";

const PANELS = { look, ask, understand, judge };
const tabs = Object.keys(PANELS).map(name => byId(`tab-${name}`));
let current = null;

export function open(name, { focus = true } = {}) {
  if (!PANELS[name]) return;
  current = name;
  for (const tab of tabs) {
    const on = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
  }
  const main = byId("panel");
  main.setAttribute("aria-labelledby", `tab-${name}`);
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  if (!state.about) return; // start opens the panel of the address once the collection is here
  main.replaceChildren(PANELS[name]());
  if (focus) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => open(tab.id.slice(4), { focus: false }));
  tab.addEventListener("keydown", event => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    const next = tabs[(to + tabs.length) % tabs.length];
    open(next.id.slice(4), { focus: false });
    next.focus();
    event.preventDefault();
  });
});

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  const dark = choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  byId("theme").textContent = dark ? "☀ Light" : "☾ Dark";
  return dark;
}
byId("theme").addEventListener("click", () => {
  const next = theme(document.documentElement.dataset.theme) ? "light" : "dark";
  localStorage.setItem("likewise-theme", next);
  theme(next);
  if (current) open(current, { focus: false }); // canvases are drawn in the new colours
});
theme(localStorage.getItem("likewise-theme"));

async function start() {
  let about;
  try {
    about = await get("collection");
  } catch (error) {
    byId("panel").replaceChildren(problem(error));
    return;
  }
  change({ about, metric: about.metrics[0].name });
  document.title = `${about.name} · likewise`;
  const size = about.kind === "sequences" ? `${about.lengths[0] === about.lengths[1] ? about.lengths[0] : `${about.lengths[0]} to ${about.lengths[1]}`} steps, ${about.channels} channel${about.channels === 1 ? "" : "s"}` : about.image ? about.image.join(" × ") : "";
  byId("about").textContent = `${about.name}: ${count(about.items)} ${about.kind}${size ? `, ${size}` : ""}${about.classes.length ? `, ${about.classes.length} classes` : ""}`;
  const select = byId("metric");
  select.replaceChildren(...about.metrics.map(({ name, about: text }) => h("option", { value: name, title: text }, name)));
  select.addEventListener("change", () => { change({ metric: select.value }); say(`Metric ${select.value}`); });
  open(location.hash.slice(1) in PANELS ? location.hash.slice(1) : "look", { focus: false });
}
listen("metric", () => { byId("metric").value = state.metric; });
start();
