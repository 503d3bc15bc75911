// The error of every table, as bars on one axis; other methods, the variant and the targets stand on the same axis.
import { byId, choice, field, figure, h, panel, percent } from "./dom.js";
import { act, edit, state } from "./store.js";
import { onBudget } from "./budget.js";

const view = { people: 100000, what: "largest" };
const STEPS = 40; // of a handle, for a factor of ten

/** @typedef {{low: number, high: number}} Axis powers of ten */
/** @type {{row: any, bar: any, half: any, share: any, ghosts: {error: number, name: string, mark: any, text: any}[]}[]} */
let drawn = [];
/** @type {Axis} */
let axis = { low: 0, high: 3 };

/** @param {any} row @returns {number} its standard deviation at the plan's budget */
const stddev = (row) => (view.what === "typical" || row.largest === null ? row.typical : row.largest);
/** @returns {number} steps of a handle along the axis */
const steps = () => STEPS * (axis.high - axis.low);
/** @param {number} half @returns {number} a percentage of the axis */
const at = (half) => Math.max(0, Math.min(100, 100 * (Math.log10(half) - axis.low) / (axis.high - axis.low)));
/** @param {number} percentage @returns {number} */
const halfAt = (percentage) => Number((10 ** (axis.low + percentage / 100 * (axis.high - axis.low))).toPrecision(2));

/** @param {any} target @param {number} margin @returns {number | null} half the width of its interval */
function halfOf(target, margin) {
  if (typeof target === "number") return margin * Math.sqrt(target);
  if (target?.half_width && target.level === undefined) return target.half_width;
  if (target?.stddev) return margin * target.stddev;
  return target?.variance ? margin * Math.sqrt(target.variance) : null;
}

/** @param {any} figures @param {any} ghosts @returns {Axis} wide enough for a hundred times more or less privacy */
function axisFor(figures, ghosts) {
  const all = figures.tables.map((/** @type {any} */ row) => figures.margin * stddev(row));
  for (const ghost of Object.values(ghosts)) all.push(...(ghost.tables ?? []).filter(Boolean).map((/** @type {number} */ each) => figures.margin * each));
  const some = all.filter((/** @type {number} */ each) => each > 0);
  return { low: Math.floor(Math.log10(Math.min(...some)) - 0.7), high: Math.ceil(Math.log10(Math.max(...some)) + 0.7) };
}

/** Figures at another budget: nothing is asked of the server. @param {number} factor of all standard deviations */
function scale(factor) {
  const margin = state.figures.margin;
  for (const { row, bar, half, share, ghosts } of drawn) {
    const error = factor * margin * stddev(row);
    bar.style.setProperty("--x", `${at(error)}%`);
    half.data = `± ${figure(error)}`;
    share.data = row.counts ? percent(error * row.numbers / view.people) : "";
    for (const ghost of ghosts) {
      ghost.mark.style.setProperty("--x", `${at(factor * ghost.error)}%`);
      ghost.text.data = `${ghost.name} ± ${figure(factor * ghost.error)}`;
    }
  }
  const overall = byId("overall");
  if (overall && state.figures.rmse) overall.textContent = `± ${figure(factor * margin * state.figures.rmse)}`;
  means(factor);
}

/** @param {number} factor */
function means(factor) {
  const list = byId("means");
  if (!list) return;
  list.replaceChildren(...state.figures.means.map((/** @type {any} */ each) => h("li", {},
    `mean ${each.column}: ± ${figure(factor * state.figures.margin * each.stddev / view.people)}`)));
}

onBudget((other) => { if (state.figures && other !== null) scale(other / state.figures.size); });

/** @param {any} row @param {any} state @returns {any} the handle of a target */
function handle(row, state) {
  const given = state.targets?.[row.table], margin = state.figures.margin;
  const half = halfOf(given, margin);
  if (half === null) return null;
  const say = (/** @type {number} */ value) => `within ± ${figure(value)}`;
  const input = h("input", {
    type: "range", class: "target", min: 0, max: steps(), step: 1, id: `target-${row.table}`, "aria-label": `Target of ${row.table}`,
    "aria-valuetext": say(half), title: say(half),
    oninput: (/** @type {any} */ event) => {
      const value = halfAt(100 * Number(event.target.value) / steps());
      event.target.setAttribute("aria-valuetext", say(value));
      event.target.nextElementSibling.textContent = say(value);
    },
    onchange: (/** @type {any} */ event) => edit({ place: ["targets", row.table], value: { half_width: halfAt(100 * Number(event.target.value) / steps()) } }),
  });
  input.value = String(Math.round(steps() * at(half) / 100));
  const met = state.figures.targets?.met.find((/** @type {any} */ each) => each.name === row.table);
  return [input, h("span", { class: "asked" }, say(half), met && (met.share < 0.001 ? ", costs nothing" : `, takes ${percent(met.share)} of the budget`))];
}

/** @param {any} row @param {number} number @param {any} state */
function line(row, number, state) {
  const margin = state.figures.margin, half = document.createTextNode(""), share = document.createTextNode("");
  const bar = h("i", { class: "bar" });
  /** @type {any[]} */
  const ghosts = [], marks = [], beside = [];
  drawn.push({ row, bar, half, share, ghosts });
  for (const [index, [name, ghost]] of Object.entries(state.ghosts).entries()) {
    const error = ghost.tables?.[number];
    if (!error) continue;
    const mark = h("i", { class: `ghost ghost-${index % 3}`, title: name }), text = document.createTextNode("");
    ghosts.push({ error: margin * error * state.figures.size / ghost.size, name, mark, text });
    marks.push(mark);
    beside.push(h("span", {}, text));
  }
  const kept = state.kept?.tables.find((/** @type {any} */ each) => each.name === row.name);
  if (kept) {
    const error = state.kept.margin * stddev(kept), mark = h("i", { class: "kept", title: `kept variant: ± ${figure(error)}` });
    mark.style.setProperty("--x", `${at(error)}%`);
    marks.push(mark);
    beside.push(h("span", {}, `kept ± ${figure(error)}`));
  }
  const first = state.figures.tables[number - 1]?.at !== row.at; // of a table with counts and sums
  const target = state.targets && first && handle(row, state);
  return h("tr", {},
    h("th", { scope: "row" }, h("b", {}, row.name), h("small", {}, `${row.asks}; ${row.numbers.toLocaleString("en")} number${row.numbers === 1 ? "" : "s"}`)),
    h("td", { class: "track" }, bar, marks, target),
    h("td", {}, half, beside.length > 0 && h("small", {}, beside)), h("td", {}, share));
}

/** @returns {any} the axis in words */
function ticks() {
  const found = [];
  for (let power = axis.low; power <= axis.high; power += 1) {
    const tick = h("span", {}, figure(10 ** power));
    tick.style.setProperty("--x", `${at(10 ** power)}%`);
    found.push(tick);
  }
  return h("div", { class: "ticks", "aria-hidden": "true" }, found);
}

/** @param {any} state @returns {string | null} what the last change of one target costs */
function change(state) {
  const now = state.figures.targets, old = state.before?.targets;
  if (!now || !old) return null;
  const moved = now.met.filter((/** @type {any} */ each) => old.met.find((/** @type {any} */ other) => other.name === each.name && other.asked !== each.asked));
  if (moved.length !== 1 || now.met.length !== old.met.length) return null;
  const before = old.met.find((/** @type {any} */ each) => each.name === moved[0].name);
  const amount = (/** @type {any} */ each) => each.asked.replace("half-width ", "").replace(/ at .*/, "");
  const more = now.needed / old.needed - 1;
  const words = Math.abs(more) < 5e-4 ? "costs nothing" : `${percent(Math.abs(more))} ${more > 0 ? "more" : "less"} budget`;
  return `${moved[0].name} within ${amount(moved[0])} instead of ${amount(before)}: ${words}.`;
}

/** @param {any} state */
function single(state) {
  const half = halfOf(state.targets, state.figures.margin);
  if (half === null) return null;
  return field("target-all", "Every number within ±", {
    type: "number", min: 0, step: "any", value: Number(half.toPrecision(3)),
    onchange: (/** @type {any} */ event) => edit({ place: ["targets"], value: { half_width: Number(event.target.value) } }),
  });
}

/** @param {any} state */
const ghostChoice = (state) => h("fieldset", { class: "row" }, h("legend", {}, "Beside it"),
  state.methods.map((/** @type {string} */ name) => h("span", {},
    h("input", {
      type: "checkbox", id: `ghost-${name}`, checked: state.wanted.includes(name),
      onchange: () => act({ do: "ghosts", methods: state.methods.filter((/** @type {string} */ each) => byId(`ghost-${each}`).checked) }),
    }), " ", h("label", { for: `ghost-${name}` }, name))));

let turn = 0;
export const errors = panel("errors",
  (state) => [turn, state.figures, state.ghosts, state.wanted, state.kept, state.targets, state.stale, state.before, state.text === null],
  (_, state) => {
    const figures = state.figures;
    drawn = [];
    const heading = h("h2", { id: "errors-h" }, "How wrong a number may be");
    if (!figures) return [heading, h("p", { class: "soft" }, "Errors stand here as soon as there is a plan.")];
    axis = axisFor(figures, state.ghosts);
    const redraw = () => { turn += 1; errors(state); };
    const rows = figures.tables.map((/** @type {any} */ row, /** @type {number} */ number) => line(row, number, state));
    const problems = Object.values(state.ghosts).filter((/** @type {any} */ each) => each.problem);
    const more = figures.table_count - figures.tables.length;
    const changed = change(state);
    const parts = [
      heading,
      h("div", { class: "row" },
        field("people", "Number of people, a guess", {
          type: "number", min: 1, value: view.people,
          onchange: (/** @type {any} */ event) => { view.people = Math.max(1, Number(event.target.value)); redraw(); },
        }),
        choice("what", "Of each table", [["largest", "its least certain number"], ["typical", "a typical number"]], view.what, (value) => { view.what = value; redraw(); }),
        !state.targets && ghostChoice(state)),
      state.stale && h("p", { class: "old" }, "These figures are old: they are of the tables before the last change."),
      changed && h("p", { class: "example", id: "change" }, changed),
      ...(state.targets ? [single(state)] : []),
      figures.rmse && h("p", {}, `A typical ${figures.noun} of all is within `, h("b", { id: "overall" }, ""), " of the truth with probability 95%."),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Errors of the tables" },
        h("table", { class: state.stale ? "bars stale" : "bars" },
          h("caption", {}, "Half the width of the 95% interval, on a logarithmic axis; further left is more accurate. The last column is the error of a number that has its even share of the people."),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "table"), h("th", { scope: "col", class: "axis" }, h("span", { class: "hidden" }, "error as a bar"), ticks()), h("th", { scope: "col" }, "± at 95%"), h("th", { scope: "col" }, "of an even share"))),
          h("tbody", {}, rows))),
      more > 0 && h("p", { class: "soft" }, `${more.toLocaleString("en")} more tables are planned and not drawn.`),
      figures.means.length > 0 && h("div", {}, h("h3", {}, "Means of everybody, at this number of people"), h("ul", { id: "means", class: "flow" })),
      ...problems.map((/** @type {any} */ each) => h("p", { class: "soft" }, each.problem)),
    ];
    queueMicrotask(() => scale(1));
    return parts;
  });
