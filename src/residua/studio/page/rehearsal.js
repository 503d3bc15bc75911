// What a table would look like: invented people, real planning, simulated noise, as often as one likes.
import { byId, figure, h, panel } from "./dom.js";
import { question, state } from "./store.js";

const MOST_CELLS = 1500;
/** @type {any} */
let shown = null;
let throws = 0, truth = false;

async function roll() {
  throws += 1;
  const found = await question({
    do: "rehearse", table: Number(byId("rehearsed").value), people: Math.round(Number(byId("people").value)), seed: throws,
  });
  if (found) shown = { ...found, of: state.revision };
  draw();
}

/** @param {number} value */
const count = (value) => Math.round(value).toLocaleString("en").replace("-", "−");

/** @param {number} value @param {number} half @param {number | null} [true_] @param {boolean} [total] */
function cell(value, half, true_ = null, total = false) {
  const unsure = half > Math.abs(value);
  return h("td", { class: [unsure && "unsure", total && "total"].filter(Boolean).join(" ") || null }, count(value),
    h("small", {}, `± ${figure(half)}`), truth && true_ !== null && h("small", { class: "truth" }, `truly ${count(true_)}`));
}

/** @param {any} found */
function grid(found) {
  const { rowNames, columnNames, rows, columns, values, halves, beside, below, corner } = found;
  const head = columnNames.length
    ? columns.map((/** @type {string[]} */ label) => h("th", { scope: "col" }, label.join(", "))) : [h("th", { scope: "col" }, "count")];
  const body = rows.map((/** @type {string[]} */ label, /** @type {number} */ at) => h("tr", {},
    h("th", { scope: "row" }, label.join(", ") || "everybody"),
    values[at].map((/** @type {number} */ value, /** @type {number} */ column) => cell(value, halves[at][column], found.truth?.[at][column] ?? null)),
    beside && cell(beside.values[at], beside.halves[at], null, true)));
  const foot = below && h("tr", {}, h("th", { scope: "row", class: "total" }, "total"),
    below.values.map((/** @type {number} */ value, /** @type {number} */ at) => cell(value, below.halves[at], null, true)),
    beside && corner && cell(corner.values[0], corner.halves[0], null, true), beside && !corner && h("td", {}));
  return h("table", { class: "crosstab" },
    h("caption", {}, `${found.name}, of ${found.people.toLocaleString("en")} invented people; throw ${throws}`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, rowNames.join(", ") || "of"), head, beside && h("th", { scope: "col", class: "total" }, "total"))),
    h("tbody", {}, body, foot));
}

function draw() {
  const place = byId("thrown");
  if (!place) return;
  if (!shown) return place.replaceChildren();
  const old = shown.of !== state.revision;
  place.replaceChildren(...[
    old && h("p", { class: "old" }, "Of the plan before the last change; roll again."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "A rehearsed table" }, grid(shown)),
    h("p", { class: "soft" }, "± is half the width of the 95% interval. Numbers in italics are smaller than that: the noise could be all of them."),
  ].filter(Boolean));
}

export const rehearsal = panel("rehearsal",
  (state) => [state.figures && state.figures.tables.map((/** @type {any} */ each) => [each.table, each.numbers, each.at]), state.revision],
  ([tables]) => {
    if (!tables) return [h("h2", { id: "rehearsal-h" }, "Rehearsal")];
    const before = byId("rehearsed")?.value ?? String(tables.find((/** @type {any} */ each) => each[1] > 1)?.[2] ?? 0);
    const options = tables.map((/** @type {any} */ [name, numbers, at]) => ({ name, numbers, at }))
      .filter((/** @type {any} */ each, /** @type {number} */ place) => each.numbers <= MOST_CELLS && tables[place - 1]?.[2] !== each.at);
    queueMicrotask(draw);
    return [
      h("h2", { id: "rehearsal-h" }, "Rehearsal"),
      h("p", { class: "soft" }, "A table as it might be published, of people who were invented from the columns alone. Every throw draws new noise."),
      h("div", { class: "row" },
        h("div", { class: "field" }, h("label", { for: "rehearsed" }, "Table"),
          h("select", { id: "rehearsed" }, options.map((/** @type {any} */ each) => h("option", { value: each.at, selected: String(each.at) === before }, each.name)))),
        h("button", { type: "button", id: "roll", onclick: roll }, "Roll the dice"),
        h("span", {}, h("input", { type: "checkbox", id: "truth", checked: truth, onchange: (/** @type {any} */ event) => { truth = event.target.checked; draw(); } }), " ",
          h("label", { for: "truth" }, "show the invented truth"))),
      h("div", { id: "thrown", "aria-live": "polite" }),
    ];
  });
